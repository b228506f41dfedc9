"""The writes of `memory.ports.writes`, one function each, and its table of conditions as code."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from memory.adapters.in_memory.frozen import frozen_mapping, frozen_owed, frozen_record, maybe_in_utc
from memory.adapters.in_memory.state import State
from memory.ports.collections import Collection
from memory.ports.record import FieldValue, Key, Mark, Owed, Record, Role, Standing, Tombstone
from memory.ports.writes import (
    Absent,
    Always,
    Annotate,
    Append,
    AtVersion,
    Delete,
    Newer,
    Outcome,
    Purge,
    Put,
    RaiseGeneration,
    Release,
    Status,
    When,
    Write,
)


def holds(when: When, stored: Standing | None, version: int) -> bool:
    """Whether the condition lets a write of this version replace what is stored: the table of `memory.ports.writes`."""
    match when:
        case Absent():
            return stored is None
        case AtVersion(n, role, tier):
            if stored is None or isinstance(stored, Mark) or stored.version != n:
                return False
            if isinstance(stored, Tombstone):
                return role is None and tier is None
            return role in (None, stored.role) and tier in (None, stored.tier)
        case Newer():
            return stored is None or stored.version < version
        case Always():
            return True
        case _:
            assert_never(when)


def carry_out(state: State, write: Write) -> Outcome:
    """Do one write and say what became of it."""
    match write:
        case Put():
            return _put(state, write)
        case Append():
            return _append(state, write)
        case Delete():
            return _delete(state, write)
        case Release():
            return _release(state, write)
        case Annotate():
            return _annotate(state, write)
        case Purge():
            return _purge(state, write)
        case RaiseGeneration():
            return Outcome(Status.APPLIED, number=state.raise_generation(write.partition, write.to))
        case _:
            assert_never(write)


def _conflict(state: State, collection: Collection, key: Key) -> Outcome:
    stored = state.standing(collection.name, key)
    return Outcome(Status.CONFLICT, version=stored.version if stored else None, stored=state.readable(collection.name, key))


def _erased(state: State, write: Put | Append) -> Outcome | None:
    """The rejection of a record whose scope was erased since; None for one that may be written."""
    carried = write.record.generation
    if carried is None or carried >= state.generation(write.record.partition):
        return None
    stored = state.standing(write.collection.name, write.key)
    return Outcome(Status.REJECTED, version=stored.version if stored else None, reason="generation")


def _store(state: State, write: Put | Append, extra: dict[str, FieldValue] | None = None, number: int | None = None) -> Outcome:
    record = write.record
    generation = state.generation(record.partition) if record.generation is None else record.generation
    state.place(write.collection.name, record.key, frozen_record(record, generation, extra))
    return Outcome(Status.APPLIED, version=record.version, generation=generation, number=number)


def _put(state: State, write: Put) -> Outcome:
    if rejected := _erased(state, write):
        return rejected
    if not holds(write.when, state.standing(write.collection.name, write.key), write.record.version):
        return _conflict(state, write.collection, write.key)
    return _store(state, write)


def _append(state: State, write: Append) -> Outcome:
    if rejected := _erased(state, write):
        return rejected
    if state.standing(write.collection.name, write.key) is not None:
        return _conflict(state, write.collection, write.key)
    number = state.next_number(write.record.partition, write.counter)
    return _store(state, write, {write.field: number}, number)


def _delete(state: State, write: Delete) -> Outcome:
    if not holds(write.when, state.standing(write.collection.name, write.key), write.version):
        return _conflict(state, write.collection, write.key)
    tombstone = Tombstone(write.key, write.version, frozen_owed(write.owed), frozen_mapping(write.note), maybe_in_utc(write.discard_at))
    state.place(write.collection.name, write.key, tombstone)
    return Outcome(Status.APPLIED, version=write.version)


def _release(state: State, write: Release) -> Outcome:
    stored = state.standing(write.collection.name, write.key)
    if isinstance(stored, Mark) and stored.version == write.at and stored.to == write.to:
        return Outcome(Status.APPLIED, version=write.at)
    if not isinstance(stored, Record) or stored.version != write.at or stored.role is not Role.HOME:
        return _conflict(state, write.collection, write.key)
    mark = Mark(write.key, stored.scope, write.at, write.to, frozen_owed(write.owed), maybe_in_utc(write.discard_at))
    state.place(write.collection.name, write.key, mark)
    return Outcome(Status.APPLIED, version=write.at)


def _annotate(state: State, write: Annotate) -> Outcome:
    stored = state.standing(write.collection.name, write.key)
    if stored is None or stored.version != write.at or not _annotatable(stored, write):
        return _conflict(state, write.collection, write.key)
    owed = _without(stored.owed, write.settle)
    annotated: Standing
    if isinstance(stored, Record):
        annotated = replace(
            stored,
            owed=owed,
            role=stored.role if write.role is None else write.role,
            tier=stored.tier if write.tier is None else write.tier,
            accesses=stored.accesses + (write.accessed_at is not None),
            accessed_at=stored.accessed_at if write.accessed_at is None else maybe_in_utc(write.accessed_at),
        )
    else:
        annotated = replace(stored, owed=owed, discard_at=stored.discard_at if write.discard_at is None else maybe_in_utc(write.discard_at))
    state.place(write.collection.name, write.key, annotated)
    return Outcome(Status.APPLIED, version=write.at)


def _annotatable(stored: Standing, write: Annotate) -> bool:
    """Whether every change asked for can be made to what stands there."""
    if isinstance(stored, Record):
        return write.role_is is None or stored.role is write.role_is
    return write.role_is is None and write.role is None and write.tier is None and write.accessed_at is None


def _without(owed: tuple[Owed, ...], settled: tuple[Owed, ...]) -> tuple[Owed, ...]:
    return tuple(o for o in owed if o not in settled) if owed and settled else owed


def _purge(state: State, write: Purge) -> Outcome:
    stored = state.standing(write.collection.name, write.key)
    if stored is not None:
        if not write.takes(stored):
            return _conflict(state, write.collection, write.key)
        state.place(write.collection.name, write.key, None)
    return Outcome(Status.APPLIED)
