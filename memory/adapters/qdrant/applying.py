"""Writes carried out: read what stands there, decide every write of the batch on it, commit, and decide again what others got to first.

Where the engine is this store's alone (Edge), reading, deciding and committing are one turn (`Engine.turn`), and nothing is ever decided twice. On a
server each change is conditional on the very state it was decided on. Generations are committed before the records born
in them. A record cannot be made conditional on its partition's generation, which is
another point: so the generation is read again afterwards, and a record of one that was raised meanwhile is taken back and decided again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from memory.adapters.qdrant.engine import Change, Engine, Vectors
from memory.adapters.qdrant.keys import generation_point, record_point
from memory.adapters.qdrant.payloads import Payload, generation_payload, is_sound, payload_of, reader_of
from memory.adapters.qdrant.searching import unit
from memory.adapters.qdrant.words import sparse_record
from memory.domain.errors import CorruptRecord, StoreUnavailable
from memory.ports.collections import Collection
from memory.ports.deciding import KeyedWrite, Slot, decide
from memory.ports.pace import paced
from memory.ports.record import Corrupt, Record, Standing
from memory.ports.storable import Unstorable
from memory.ports.writes import Outcome, Put, RaiseGeneration, Status, Write

ATTEMPTS = 100
NOTHING = Slot(None, None)


async def apply(store: str, engine: Engine, writes: Sequence[Write]) -> list[Outcome]:
    """The outcome of each write. Raises `StoreUnavailable` when others keep getting there first."""
    outcomes: dict[int, Outcome] = {}
    waiting = list(range(len(writes)))
    for attempt in range(ATTEMPTS):
        board = Board(store, engine)
        async with engine.turn:
            await board.read([writes[i] for i in waiting])
            decided = {i: board.decide(writes[i]) async for i in paced(waiting)}
            lost = await board.commit()
        outcomes.update(decided)
        waiting = [i for i in waiting if points_read(writes[i]) & lost]
        if not waiting:
            return [outcomes[i] for i in range(len(writes))]
        await asyncio.sleep(random.random() * 0.002 * min(attempt + 1, 20))  # noqa: S311  spreads writers, guards nothing
    raise StoreUnavailable(store, f"other writers changed the same records {ATTEMPTS} times in a row; try again later")


def points_changed(write: Write) -> set[str]:
    """The points that the write may change; none for one that names what cannot be stored."""
    try:
        if isinstance(write, RaiseGeneration):
            return {generation_point(write.partition)}
        return {record_point(write.collection.name, write.key)}
    except UnicodeEncodeError:
        return set()


def points_read(write: Write) -> set[str]:
    """The points that the write is decided on."""
    points = points_changed(write)
    if points and isinstance(write, Put):
        points.add(generation_point(write.record.partition))
    return points


def read_slot(collection: Collection, payload: Payload | None) -> Slot:
    if payload is None:
        return NOTHING
    stored = reader_of(collection).read(payload)
    if not isinstance(stored, Corrupt):
        return Slot(stored, stored.version)
    version = payload.get("version")
    return Slot(stored, version if isinstance(version, int) and 0 < version < 2**62 else None)


def vectors_of(collection: Collection, standing: Standing | None) -> Vectors:
    """What the point is found by: only live records are."""
    if not isinstance(standing, Record):
        return Vectors()
    words = sparse_record(collection, standing.texts) if collection.texts else None
    return Vectors(words, None if standing.vector is None else unit(standing.vector))


def change_to(collection: Collection, point: str, before: Payload | None, standing: Standing, found_by: bool = True) -> Change:
    """The change that lets `standing` stand at the point. Raises `Unstorable`."""
    return Change(point, before, payload_of(collection, standing, before), vectors_of(collection, standing) if found_by else None)


@dataclass
class Board:
    """What stood at the points of some writes, and what stands there after those decided so far."""

    store: str
    engine: Engine
    _before: dict[str, Payload] = field(default_factory=dict)
    _slots: dict[str, Slot] = field(default_factory=dict)
    _generations: dict[str, int] = field(default_factory=dict)
    _changes: dict[str, Change] = field(default_factory=dict)
    _raised: dict[str, Change] = field(default_factory=dict)
    _born: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Of records put: the point of their partition's generation, and what that was when it was read."""
    _collections: dict[str, Collection] = field(default_factory=dict)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, writes: Sequence[Write]) -> None:
        points = sorted({point for write in writes for point in points_read(write)})
        self._before = await self.engine.retrieve(points)

    def _generation(self, point: str) -> int:
        """The generation at this point."""
        if point not in self._generations:
            payload = self._before.get(point)
            if payload is not None and not (is_sound(payload) and isinstance(payload.get("number"), int)):
                raise CorruptRecord(self.store, "generation of a partition", "checksum mismatch")
            self._generations[point] = 0 if payload is None else payload["number"]
        return self._generations[point]

    # -- deciding -----------------------------------------------------------------------------------------------------

    def decide(self, write: Write) -> Outcome:
        try:
            return self._raise(write) if isinstance(write, RaiseGeneration) else self._decide(write)
        except Unstorable as exc:
            return Outcome(Status.REJECTED, reason=str(exc))
        except UnicodeEncodeError:
            return Outcome(Status.REJECTED, reason="key: text holds half of a surrogate pair, which is no character")

    def _raise(self, write: RaiseGeneration) -> Outcome:
        point = generation_point(write.partition)
        current = self._generation(point)
        raised = current + 1 if write.to is None else max(current, write.to)
        if raised != current:
            self._raised[point] = Change(point, self._before.get(point), generation_payload(write.partition, raised), Vectors())
            self._generations[point] = raised
        return Outcome(Status.APPLIED, number=raised)

    def _decide(self, write: KeyedWrite) -> Outcome:
        collection, point = write.collection, record_point(write.collection.name, write.key)
        if point not in self._slots:
            self._slots[point] = read_slot(collection, self._before.get(point))
        slot = self._slots[point]
        partition = write.record.partition if isinstance(write, Put) else None
        generation = 0 if partition is None else self._generation(generation_point(partition))
        decision = decide(write, slot, generation)
        if not decision.changes:
            return decision.outcome
        self._place(collection, point, decision.leaves, decision.found_by)
        if partition is not None:
            self._born[point] = (generation_point(partition), generation)
        return decision.outcome

    def _place(self, collection: Collection, point: str, leaves: Standing | None, found_by: bool) -> None:
        before = self._before.get(point)
        self._collections[point] = collection
        if leaves is None:
            self._slots[point] = NOTHING
            self._changes[point] = Change(point, before, None)
            return
        new = found_by or point in self._changes
        change = change_to(collection, point, before, leaves, found_by=new)
        self._slots[point] = read_slot(collection, change.payload)
        self._changes[point] = change

    # -- committing ---------------------------------------------------------------------------------------------------

    async def commit(self) -> set[str]:
        """Make the changes; the points where others were first, with everything that was decided on those."""
        engine = self.engine
        lost = await engine.commit(list(self._raised.values())) if self._raised else set()
        changes = [c for point, c in self._changes.items() if self._born.get(point, ("", 0))[0] not in lost]
        lost |= self._changes.keys() - {c.point for c in changes}
        changes = [c for c in changes if c.before is not None or c.payload is not None]
        if changes:
            lost |= await engine.commit(changes)
        if not engine.alone and self._born:
            lost |= await self._take_back([c for c in changes if c.point in self._born and c.point not in lost])
        return lost

    async def _take_back(self, written: Sequence[Change]) -> set[str]:
        """Undo what was written under a generation that was raised or forgotten meanwhile, where it still stands."""
        generations = sorted({self._born[c.point][0] for c in written})
        current = await self.engine.retrieve(generations)
        late = []
        for change in written:
            point, _ = self._born[change.point]
            now = current.get(point)
            was = self._generation(point)
            if was > 0 if now is None else now.get("number", 0) > was:
                late.append(change)
        if not late:
            return set()
        standing = await self.engine.retrieve([c.point for c in late])
        undo = []
        for change in late:
            payload = standing.get(change.point)
            if payload is not None and payload.get("checksum") == (change.payload or {}).get("checksum"):
                undo.append(self._undo(change, payload))
        return {c.point for c in undo} - await self.engine.commit(undo) if undo else set()

    def _undo(self, change: Change, now: Payload) -> Change:
        collection = self._collections[change.point]
        stood = read_slot(collection, change.before).stored
        return Change(change.point, now, change.before, vectors_of(collection, None if isinstance(stood, Corrupt) else stood))
