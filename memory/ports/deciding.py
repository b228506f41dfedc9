"""What a write does to what stands under its key: the table of `memory.ports.writes` as a pure function.

For adapters that decide by themselves, on what they hold, have locked, or write back on condition that it is still as read. Engines that decide
(a database's statement, a script on a server) say the same in their own language, and the contract compares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from memory.ports.record import Corrupt, Mark, Owed, Record, Role, Standing, Tombstone
from memory.ports.writes import (
    Absent,
    Always,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Outcome,
    Purge,
    Put,
    Release,
    Status,
    When,
)

KeyedWrite = Put | Delete | Release | Annotate | Purge


@dataclass(frozen=True, slots=True)
class Slot:
    """What stands under a key. A corrupt record has the version its payload still tells, which may be none."""

    stored: Standing | Corrupt | None
    version: int | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a write.

    Where `changes`, `leaves` stands there afterwards, nothing where it is None; `found_by` says whether its words and vector are new.
    """

    outcome: Outcome
    changes: bool = False
    leaves: Standing | None = None
    found_by: bool = True


def decide(write: KeyedWrite, slot: Slot, generation: int) -> Decision:
    """What the write comes to. `generation` is its partition's current one."""
    match write:
        case Put():
            return _put(write, slot, generation)
        case Delete():
            if not _holds(write.when, slot, write.version):
                return _conflict(slot)
            tombstone = Tombstone(write.key, write.version, write.owed, write.note, write.discard_at)
            return Decision(Outcome(Status.APPLIED, version=write.version), True, tombstone)
        case Release():
            return _release(write, slot)
        case Annotate():
            return _annotate(write, slot)
        case Purge():
            if slot.stored is None:
                return Decision(Outcome(Status.APPLIED))
            return Decision(Outcome(Status.APPLIED), True) if write.takes(slot.stored) else _conflict(slot)
        case _:
            assert_never(write)


def _holds(when: When, slot: Slot, version: int) -> bool:
    """Whether the condition lets a write of this version replace what stands there. Of a corrupt record only the version can be asked."""
    stored = slot.stored
    match when:
        case Absent():
            return stored is None
        case AtVersion(n, role, tier):
            if isinstance(stored, Record):
                return stored.version == n and role in (None, stored.role) and tier in (None, stored.tier)
            return isinstance(stored, Tombstone) and stored.version == n and role is None and tier is None
        case Newer():
            return stored is None or slot.version is None or slot.version < version
        case Always():
            return True
        case _:
            assert_never(when)


def _conflict(slot: Slot) -> Decision:
    return Decision(Outcome(Status.CONFLICT, version=slot.version, stored=slot.stored))


def _put(write: Put, slot: Slot, generation: int) -> Decision:
    record = write.record if write.record.generation is not None else replace(write.record, generation=generation)
    if record.generation is not None and record.generation < generation:
        return Decision(Outcome(Status.REJECTED, version=slot.version, reason="generation"))
    if not _holds(write.when, slot, record.version):
        return _conflict(slot)
    return Decision(Outcome(Status.APPLIED, version=record.version, generation=record.generation), True, record)


def _release(write: Release, slot: Slot) -> Decision:
    stored = slot.stored
    if isinstance(stored, Mark) and stored.version == write.at and stored.to == write.to:
        return Decision(Outcome(Status.APPLIED, version=write.at))
    if not isinstance(stored, Record) or stored.version != write.at or stored.role is not Role.HOME:
        return _conflict(slot)
    return Decision(Outcome(Status.APPLIED, version=write.at), True, Mark(write.key, stored.scope, write.at, write.to, write.owed, write.discard_at))


def _annotate(write: Annotate, slot: Slot) -> Decision:
    stored = slot.stored
    if stored is None or isinstance(stored, Corrupt) or stored.version != write.at or not _annotatable(stored, write):
        return _conflict(slot)
    owed = _without(stored.owed, write.settle)
    annotated: Standing
    if isinstance(stored, Record):
        annotated = replace(
            stored,
            owed=owed,
            role=stored.role if write.role is None else write.role,
            tier=stored.tier if write.tier is None else write.tier,
            accesses=stored.accesses + (write.accessed_at is not None),
            accessed_at=stored.accessed_at if write.accessed_at is None else write.accessed_at,
        )
    else:
        annotated = replace(stored, owed=owed, discard_at=stored.discard_at if write.discard_at is None else write.discard_at)
    return Decision(Outcome(Status.APPLIED, version=write.at), True, annotated, found_by=False)


def _annotatable(stored: Standing, write: Annotate) -> bool:
    """Whether every change asked for can be made to what stands there."""
    if isinstance(stored, Record):
        return write.role_is is None or stored.role is write.role_is
    return write.role_is is None and write.role is None and write.tier is None and write.accessed_at is None


def _without(owed: tuple[Owed, ...], settled: tuple[Owed, ...]) -> tuple[Owed, ...]:
    return tuple([o for o in owed if o not in settled]) if owed and settled else owed
