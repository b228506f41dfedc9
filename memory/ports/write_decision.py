"""The effect of a write on the stored item: the table of `memory.ports.writes`.

It is a pure function for adapters that decide themselves. These hold the item, lock it,
or write it back on condition that it is unchanged. Engines that decide (a database
statement, a script on a server) implement the same rules in their own language. The
contract compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from memory.ports.collections import Collection
from memory.ports.record import Corrupt, Key, Mark, PendingStep, Record, Role, Standing, Stored, Tombstone
from memory.ports.rows import Row, stored_of
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


class Slot:
    """The item under a key: nothing, a decoded item, or a row.

    A row is decoded only when a decision needs its content. A corrupt record has the
    version that is still readable, or None.
    """

    __slots__ = ("_row", "_stored", "version")

    def __init__(self, stored: Stored | None, version: int | None) -> None:
        self._stored, self.version = stored, version
        self._row: tuple[Collection, Row] | None = None

    @classmethod
    def of(cls, collection: Collection, row: Row, problem: str = "", version: int | None = None) -> Slot:
        """Make a slot that holds a row, or a corrupt record if there is a `problem`.

        `version` is the version of a corrupt record, or None if it cannot be read.
        """
        if problem:
            return cls(Corrupt(row.key, problem), version)
        slot = cls(None, row.version)
        slot._row = (collection, row)
        return slot

    @property
    def stored_value(self) -> Stored | None:
        if self._stored is None and self._row is not None:
            self._stored = stored_of(*self._row)
        return self._stored

    @property
    def is_empty(self) -> bool:
        return self._stored is None and self._row is None

    @property
    def owes(self) -> bool:
        """Whether the item has a pending step; false if its steps cannot be read."""
        if self._row is not None:
            return self._row[1].owed is not None
        return bool(getattr(self._stored, "owed", ()))


EMPTY = Slot(None, None)


@dataclass(frozen=True, slots=True)
class Decision:
    """The effect of a write.

    If `changes` is true, the key holds `leaves` after the write. If `leaves` is None,
    the key holds nothing. `found_by` says whether the words and the vector of `leaves`
    are new.
    """

    outcome: Outcome
    changes: bool = False
    leaves: Standing | None = None
    found_by: bool = True


def decide(write: KeyedWrite, slot: Slot, generation: int) -> Decision:
    """Decide the write; `generation` is the current one of the key's partition."""
    match write:
        case Put():
            return _put(write, slot, generation)
        case Delete():
            if not _holds(write.when, slot, write.version) or _owes_on(slot, write.owed, write.settles):
                return _conflict(slot)
            tombstone = Tombstone(write.key, write.version, write.owed, write.note, write.discard_at)
            return Decision(Outcome(Status.APPLIED, version=write.version), True, tombstone)
        case Release():
            return _release(write, slot)
        case Annotate():
            return _annotate(write, slot)
        case Purge():
            stored = slot.stored_value
            if stored is None:
                return Decision(Outcome(Status.APPLIED))
            forgets = write.forgets(stored) and not _owes_on(slot, (), write.settles)
            return Decision(Outcome(Status.APPLIED), True) if forgets else _conflict(slot)
        case _:
            assert_never(write)


def _holds(when: When, slot: Slot, version: int) -> bool:
    """Return whether the condition lets a write of this version replace the item.

    Only the version of a corrupt record can be compared.
    """
    match when:
        case Absent():
            return slot.is_empty
        case AtVersion(n, role, tier):
            stored = slot.stored_value
            if isinstance(stored, Record):
                return stored.version == n and role in (None, stored.role) and tier in (None, stored.tier)
            return isinstance(stored, Tombstone) and stored.version == n and role is None and tier is None
        case Newer():
            return slot.is_empty or slot.version is None or slot.version < version
        case Always():
            return True
        case _:
            assert_never(when)


def owes_on(stored: Stored | None, owed: tuple[PendingStep, ...], settles: frozenset[str]) -> bool:
    """Return whether the write would lose a pending step of the stored item.

    `owed` has the pending steps that the write stores. `settles` names the steps that
    the write completes. All other steps of the stored item are lost.
    """
    if stored is None or isinstance(stored, Corrupt) or not stored.owed:
        return False
    too = {o.id for o in owed}
    return any(o.id not in too and o.step not in settles for o in stored.owed)


def _owes_on(slot: Slot, owed: tuple[PendingStep, ...], settles: frozenset[str]) -> bool:
    return slot.owes and owes_on(slot.stored_value, owed, settles)


def tombstone_over(
    key: Key, slot: Slot, version: int, discard_at: datetime | None, carry: frozenset[str]
) -> Tombstone:
    """Return the tombstone that `delete_matching` leaves in place of the item.

    The tombstone's version is above the item's version. The tombstone keeps the pending
    steps of the item that `carry` names. The version of a corrupt item is used only if
    it is a possible version.
    """
    stored = slot.stored_value
    owed = () if stored is None or isinstance(stored, Corrupt) else carried_steps(stored.owed, carry)
    stood = slot.version or 0
    if isinstance(stored, Corrupt) and not 0 < stood < 2 * max(version, 1):
        stood = 0
    return Tombstone(key, max(stood + 1, version), owed, discard_at=discard_at)


def carried_steps(owed: tuple[PendingStep, ...], carry: frozenset[str]) -> tuple[PendingStep, ...]:
    """Return the pending steps that the tombstone of `delete_matching` keeps."""
    return tuple([o for o in owed if o.step in carry])


def _conflict(slot: Slot) -> Decision:
    return Decision(Outcome(Status.CONFLICT, version=slot.version, stored=slot.stored_value))


def _put(write: Put, slot: Slot, generation: int) -> Decision:
    record = (
        write.record if write.record.generation is not None else replace(write.record, generation=generation)
    )
    if record.generation is not None and record.generation < generation:
        return Decision(Outcome(Status.REJECTED, version=slot.version, reason="generation"))
    if not _holds(write.when, slot, record.version) or (
        not isinstance(write.when, Always) and _owes_on(slot, record.owed, write.settles)
    ):
        return _conflict(slot)
    return Decision(
        Outcome(Status.APPLIED, version=record.version, generation=record.generation), True, record
    )


def _release(write: Release, slot: Slot) -> Decision:
    stored = slot.stored_value
    if isinstance(stored, Mark) and stored.version == write.at and stored.to == write.to:
        return Decision(Outcome(Status.APPLIED, version=write.at))
    if not isinstance(stored, Record) or stored.version != write.at or stored.role is not Role.HOME:
        return _conflict(slot)
    if owes_on(stored, write.owed, write.settles):
        return _conflict(slot)
    return Decision(
        Outcome(Status.APPLIED, version=write.at),
        True,
        Mark(write.key, stored.scope, write.at, write.to, write.owed, write.discard_at),
    )


def _annotate(write: Annotate, slot: Slot) -> Decision:
    stored = slot.stored_value
    if (
        stored is None
        or isinstance(stored, Corrupt)
        or stored.version != write.at
        or not _annotatable(stored, write)
    ):
        return _conflict(slot)
    owed = without(stored.owed, write.settle)
    annotated: Standing
    if isinstance(stored, Record):
        annotated = replace(
            stored,
            owed=owed,
            role=stored.role if write.role is None else write.role,
            tier=stored.tier if write.tier is None else write.tier,
            accesses=stored.accesses + (write.accessed_at is not None),
            accessed_at=stored.accessed_at if write.accessed_at is None else write.accessed_at,
            expires_at=_later(stored.expires_at, write.expires_at),
        )
    else:
        annotated = replace(
            stored, owed=owed, discard_at=stored.discard_at if write.discard_at is None else write.discard_at
        )
    return Decision(Outcome(Status.APPLIED, version=write.at), True, annotated, found_by=False)


def _annotatable(stored: Standing, write: Annotate) -> bool:
    """Return whether the item allows every requested change."""
    if isinstance(stored, Record):
        return write.role_is is None or stored.role is write.role_is
    of_records = (write.role_is, write.role, write.tier, write.accessed_at, write.expires_at)
    return all(one is None for one in of_records)


def _later(stored: datetime | None, given: datetime | None) -> datetime | None:
    """Return the expiry after an annotation; None stays None."""
    return stored if stored is None or given is None else max(stored, given)


def without(owed: tuple[PendingStep, ...], settled: tuple[str, ...]) -> tuple[PendingStep, ...]:
    """Return the steps that stay pending once the steps of these ids are done."""
    return tuple([o for o in owed if o.id not in settled]) if owed and settled else owed
