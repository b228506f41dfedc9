"""Writes of a call, read and stored point by point: a backend of `memory.ports.batch`.

Edge belongs to this store alone. Reading, deciding and storing happen under one lock,
and nothing is decided twice. On a server, each change is conditional on the payload on
which it was decided. A record cannot be conditional on its partition's generation,
which is another point. So the generation is read again afterwards. If it was raised or
forgotten meanwhile, the record is undone and decided again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from memory.adapters.qdrant.codec import Payload, generation_payload, held_in, is_sound, over, payload_of
from memory.adapters.qdrant.engine import Engine, PointChange, Vectors
from memory.adapters.qdrant.errors import PartialBatch
from memory.adapters.qdrant.keys import generation_point, record_point
from memory.adapters.qdrant.words import sparse_record, unit
from memory.domain.errors import CorruptRecord, StoreFull
from memory.ports import batch
from memory.ports.batch import Address, ReadSet, StoredRow
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.record import Partition
from memory.ports.rows import RECORD, Row
from memory.ports.writes import RaiseGeneration, Write


def points_changed(writes: Iterable[Write]) -> set[str]:
    """Return the points that the writes may change."""
    return {
        generation_point(w.partition)
        if isinstance(w, RaiseGeneration)
        else record_point(w.collection.name, w.key)
        for w in writes
    }


def vectors_of(collection: Collection, row: Row | None) -> Vectors:
    """Return a row's vectors for searches; only live records have some."""
    if row is None or row.type != RECORD:
        return Vectors()
    words = sparse_record(collection, row.words) if row.words is not None else None
    return Vectors(words, None if row.vector is None else unit(row.vector))


def change_to(
    collection: Collection, point: str, before: Payload | None, row: Row, *, found_anew: bool = True
) -> PointChange:
    """Return the change that stores the row at the point."""
    return PointChange(
        point,
        before,
        over(collection, payload_of(collection, row), before),
        vectors_of(collection, row) if found_anew else None,
    )


class Points:
    """The engine as one call sees it."""

    atomic = False

    def __init__(self, store: str, engine: Engine) -> None:
        self._store, self._engine = store, engine
        self.fenced = engine.alone
        self._numbered: dict[Partition, Payload] = {}
        """Generations as read before the writes."""
        self._stored: dict[Address, PointChange] = {}
        self._afterwards: dict[str, Payload | None] = {}
        """Generations as read after the writes."""
        self._kept = False
        """Whether an earlier round of the call has stored something."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        return self._engine.turn

    def lay_out(self, collection: Collection, row: Row) -> None:
        """Do nothing: every valid row has a payload, built when it is stored."""

    async def read(self, reads: ReadSet) -> tuple[Mapping[Address, StoredRow], Mapping[Partition, int]]:
        addresses = {record_point(c.name, key): (c, key) for c, keys in reads.keys.items() for key in keys}
        partitions = {generation_point(p): p for p in reads.partitions}
        found = await self._engine.retrieve(sorted([*addresses, *partitions]))
        self._numbered = {
            partition: found[point] for point, partition in partitions.items() if point in found
        }
        held = {
            (c.name, key): held_in(c, found[point]) for point, (c, key) in addresses.items() if point in found
        }
        return held, {partition: self._number(payload) for partition, payload in self._numbered.items()}

    def _number(self, payload: Payload) -> int:
        number = payload.get("number")
        if not is_sound(payload) or not isinstance(number, int):
            raise CorruptRecord(self._store, "generation of a partition", "checksum mismatch")
        return number

    async def raise_generations(self, raised: Mapping[Partition, int]) -> set[Partition]:
        changes = {
            generation_point(p): PointChange(
                generation_point(p), self._numbered.get(p), generation_payload(p, number), Vectors()
            )
            for p, number in raised.items()
        }
        lost = await self._engine.commit(list(changes.values()))
        return {p for p in raised if generation_point(p) in lost}

    async def store(self, changes: Sequence[batch.ResolvedWrite]) -> set[Address]:
        made = {c.address: self._change(c) async for c in iterate_cooperatively(changes)}
        born = {generation_point(c.born) for c in changes if c.born is not None}
        self._afterwards = dict.fromkeys(() if self.fenced else sorted(born))
        try:
            lost = await self._engine.commit(list(made.values()), self._afterwards)
        except Exception as exc:
            raise_if_kept(self._engine, exc, self._kept)
            raise
        self._stored = made
        self._kept = self._kept or len(lost) < len(made)
        return {address for address, change in made.items() if change.point in lost}

    def _change(self, change: batch.ResolvedWrite) -> PointChange:
        point, before = record_point(change.collection.name, change.key), change.held.token
        if change.row is None:
            return PointChange(point, before, None)
        return change_to(change.collection, point, before, change.row, found_anew=change.found_anew)

    async def generations(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return the generations as read after the writes.

        A generation that was forgotten meanwhile counts as raised above all others.
        """
        payloads = {p: self._afterwards[generation_point(p)] for p in partitions}
        return {
            p: _FORGOTTEN if payload is None and p in self._numbered else (payload or {}).get("number", 0)
            for p, payload in payloads.items()
        }

    async def take_back(self, changes: Sequence[batch.ResolvedWrite]) -> set[Address]:
        standing = await self._engine.retrieve([self._stored[c.address].point for c in changes])
        undo: dict[str, tuple[Address, PointChange]] = {}
        for change in changes:
            stored, held = self._stored[change.address], change.held
            now = standing.get(stored.point)
            if now is not None and now.get("checksum") == (stored.payload or {}).get("checksum"):
                undo[stored.point] = (
                    change.address,
                    PointChange(stored.point, now, held.token, vectors_of(change.collection, held.row)),
                )
        lost = await self._engine.commit([change for _, change in undo.values()]) if undo else set()
        return {address for point, (address, _) in undo.items() if point not in lost}


_FORGOTTEN = 2**63


def raise_if_kept(engine: Engine, error: Exception, kept: bool) -> None:
    """Raise `PartialBatch` if the store is full after a part of the call was kept.

    `StoreFull` promises that nothing of the call was kept.
    """
    if kept and isinstance(engine.translate(error), StoreFull):
        raise PartialBatch(
            "no space is left, and a part of the call was kept; make room and try again"
        ) from error
