"""What becomes of each write of a batch, decided one after the other on what the transaction has locked: no I/O, only the port's rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

from memory.adapters.sql.postgresql.places import Place
from memory.adapters.sql.postgresql.rows import Content, layout_of
from memory.adapters.sql.rows import Unstorable
from memory.ports.collections import Collection
from memory.ports.record import Corrupt, Key, Mark, Owed, Partition, Record, Role, Stored, Tombstone
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

Address: TypeAlias = tuple[str, Key]
Counter: TypeAlias = tuple[Partition, str]


class Unreadable(Unstorable):
    """A write whose condition needs what a corrupt row said."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"record {key.id} is corrupt and was set aside; delete it or put a newer copy over it")


@dataclass(slots=True)
class Standing:
    """What stands under a key, and what is to stand there: `content` of None with `changed` is nothing."""

    collection: Collection
    stored: Stored | None = None
    version: int | None = None
    partition: int | None = None
    checksum: int | None = None
    changed: bool = False
    content: Content | None = None

    @property
    def existed(self) -> bool:
        return self.checksum is not None


def holds(when: When, standing: Standing, version: int, key: Key) -> bool:
    """Whether the condition lets a write of this version replace what stands there: the table of `memory.ports.writes`."""
    stored = standing.stored
    if stored is None or standing.version is None:
        return not isinstance(when, AtVersion)
    match when:
        case Absent():
            return False
        case Always():
            return True
        case Newer():
            return standing.version < version
        case AtVersion(n, role, tier):
            if isinstance(stored, Corrupt):
                raise Unreadable(key)
            if isinstance(stored, Mark) or stored.version != n:
                return False
            if isinstance(stored, Tombstone):
                return role is None and tier is None
            return role in (None, stored.role) and tier in (None, stored.tier)
        case _:
            assert_never(when)


def conflict(standing: Standing) -> Outcome:
    return Outcome(Status.CONFLICT, version=standing.version, stored=standing.stored)


def erased(standing: Standing) -> Outcome:
    """The rejection of a record whose scope was erased since."""
    return Outcome(Status.REJECTED, version=standing.version, reason="generation")


@dataclass(slots=True)
class Desk:
    """What one call has locked and decides about."""

    standings: dict[Address, Standing]
    places: dict[Partition, Place]
    counters: dict[Counter, int] = field(default_factory=dict)
    raised: dict[int, int] = field(default_factory=dict)

    def do(self, write: Write) -> Outcome:
        try:
            return self._do(write)
        except Unstorable as exc:
            return Outcome(Status.REJECTED, reason=str(exc))

    def _do(self, write: Write) -> Outcome:
        match write:
            case RaiseGeneration():
                return self._raise_generation(write)
            case Put():
                return self._put(write, self._standing(write))
            case Append():
                return self._append(write, self._standing(write))
            case _:
                return change(write, self._standing(write))

    def _standing(self, write: Put | Append | Delete | Release | Annotate | Purge) -> Standing:
        return self.standings[(write.collection.name, write.key)]

    def _raise_generation(self, write: RaiseGeneration) -> Outcome:
        place = self.places[write.partition]
        raised = place.generation + 1 if write.to is None else max(place.generation, write.to)
        if raised != place.generation:
            self.places[write.partition] = Place(place.number, raised)
            self.raised[place.number] = raised
        return Outcome(Status.APPLIED, number=raised)

    def _put(self, write: Put, standing: Standing) -> Outcome:
        place = self.places[write.record.partition]
        if write.record.generation is not None and write.record.generation < place.generation:
            return erased(standing)
        if not holds(write.when, standing, write.record.version, write.key):
            return conflict(standing)
        return self._store(standing, write.record, place)

    def _append(self, write: Append, standing: Standing) -> Outcome:
        record = write.record
        place = self.places[record.partition]
        if record.generation is not None and record.generation < place.generation:
            return erased(standing)
        if standing.stored is not None:
            return conflict(standing)
        layout = layout_of(write.collection)
        counter = (record.partition, write.counter)
        number = self.counters[counter] + 1
        numbered = replace(record, fields={**record.fields, layout.field_at(write.field): number})
        outcome = self._store(standing, numbered, place)
        self.counters[counter] = number
        return replace(outcome, number=number)

    @staticmethod
    def _store(standing: Standing, record: Record, place: Place) -> Outcome:
        generation = place.generation if record.generation is None else record.generation
        content = layout_of(standing.collection).record(record, place.number, generation)
        _place(standing, replace(record, generation=generation), record.version, content, place.number)
        return Outcome(Status.APPLIED, version=record.version, generation=generation)


def change(write: Delete | Release | Annotate | Purge, standing: Standing) -> Outcome:
    """What becomes of a write that asks nothing but what stands under its key. Raises `Unstorable`."""
    match write:
        case Delete():
            return _delete(write, standing)
        case Release():
            return _release(write, standing)
        case Annotate():
            return _annotate(write, standing)
        case Purge():
            return _purge(write, standing)
        case _:
            assert_never(write)


def _place(standing: Standing, stored: Stored | None, version: int | None, content: Content | None, partition: int | None = None) -> None:
    standing.stored, standing.version, standing.content, standing.partition, standing.changed = stored, version, content, partition, True


def _delete(write: Delete, standing: Standing) -> Outcome:
    if not holds(write.when, standing, write.version, write.key):
        return conflict(standing)
    tombstone = Tombstone(write.key, write.version, write.owed, write.note, write.discard_at)
    _place(standing, tombstone, write.version, layout_of(write.collection).tombstone(tombstone))
    return Outcome(Status.APPLIED, version=write.version)


def _release(write: Release, standing: Standing) -> Outcome:
    stored = standing.stored
    if isinstance(stored, Mark) and stored.version == write.at and stored.to == write.to:
        return Outcome(Status.APPLIED, version=write.at)
    if not isinstance(stored, Record) or stored.version != write.at or stored.role is not Role.HOME:
        return conflict(standing)
    mark = Mark(write.key, stored.scope, write.at, write.to, write.owed, write.discard_at)
    _place(standing, mark, write.at, layout_of(write.collection).mark(mark))
    return Outcome(Status.APPLIED, version=write.at)


def _annotate(write: Annotate, standing: Standing) -> Outcome:
    stored = standing.stored
    if stored is None or isinstance(stored, Corrupt) or stored.version != write.at or not _annotatable(stored, write):
        return conflict(standing)
    layout = layout_of(write.collection)
    owed = _without(stored.owed, write.settle)
    if isinstance(stored, Record):
        annotated = replace(
            stored,
            owed=owed,
            role=stored.role if write.role is None else write.role,
            tier=stored.tier if write.tier is None else write.tier,
            accesses=stored.accesses + (write.accessed_at is not None),
            accessed_at=stored.accessed_at if write.accessed_at is None else write.accessed_at,
        )
        content = layout.record(annotated, standing.partition, annotated.generation or 0)
        _place(standing, annotated, write.at, content, standing.partition)
    else:
        ended = replace(stored, owed=owed, discard_at=stored.discard_at if write.discard_at is None else write.discard_at)
        _place(standing, ended, write.at, layout.mark(ended) if isinstance(ended, Mark) else layout.tombstone(ended))
    return Outcome(Status.APPLIED, version=write.at)


def _annotatable(stored: Record | Mark | Tombstone, write: Annotate) -> bool:
    """Whether every change asked for can be made to what stands there."""
    if isinstance(stored, Record):
        return write.role_is is None or stored.role is write.role_is
    return write.role_is is None and write.role is None and write.tier is None and write.accessed_at is None


def _without(owed: tuple[Owed, ...], settled: tuple[Owed, ...]) -> tuple[Owed, ...]:
    return tuple([o for o in owed if o not in settled]) if owed and settled else owed


def _purge(write: Purge, standing: Standing) -> Outcome:
    if standing.stored is not None:
        if not write.takes(standing.stored):
            return conflict(standing)
        _place(standing, None, None, None)
    return Outcome(Status.APPLIED)


def addresses(writes: Mapping[int, Write]) -> dict[str, set[Key]]:
    """The keys that writes are about, by the name of their collection."""
    found: dict[str, set[Key]] = {}
    for write in writes.values():
        if not isinstance(write, RaiseGeneration):
            found.setdefault(write.collection.name, set()).add(write.key)
    return found
