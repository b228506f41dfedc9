"""Several writes in one transaction: what they are about is locked, decided in order, and written back at once.

Partitions are locked first, by number, then rows, by key: transactions that meet wait for each other and seldom deadlock. Where they do, or
where a row appears under a key that was free, everything is undone and done again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from memory.adapters.sql.server.desk import Desk, Held, Layout, addresses
from memory.adapters.sql.server.places import Place, Places
from memory.domain.errors import Portable
from memory.ports.collections import Collection
from memory.ports.pace import paced
from memory.ports.record import Key, Partition
from memory.ports.storable import Unstorable
from memory.ports.writes import Outcome, Put, RaiseGeneration, Status, Write

C = TypeVar("C")
S = TypeVar("S")


class NotTogether(Portable):
    """Undoes a batch that was to be kept whole."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        super().__init__()
        self.outcomes = outcomes


class Collided(Exception):
    """Undoes a batch that another transaction got in the way of; to be done again."""


class Batch(ABC, Generic[C, S]):
    """One call's writes, within one transaction. `S` is the dialect's shelf: one collection's statements."""

    def __init__(self, connection: C, shelves: Callable[[Collection], S], places: Places[C], writes: Sequence[Write]) -> None:
        self._connection = connection
        self._shelves = shelves
        self._places = places
        self._left: dict[int, Write] = dict(enumerate(writes))
        self._outcomes: dict[int, Outcome] = {}
        self._known: dict[Partition, Place] = {}

    async def prepare(self) -> None:
        """What is done before the transaction: refuse what no row can hold, and give every partition its number."""
        async for i, write in paced(list(self._left.items())):
            try:
                self._check_key(write)
            except Unstorable as exc:
                self._outcomes[i] = Outcome(Status.REJECTED, reason=str(exc))
                del self._left[i]
        writes = self._left.values()
        self._known = await self._places.ensure(self._connection, {p for w in writes if (p := partition_of(w)) is not None})

    async def carry_out(self, together: bool) -> list[Outcome]:
        """Do the writes. Raises `NotTogether` where nothing may be kept, and `Collided`."""
        raising = any(isinstance(w, RaiseGeneration) for w in self._left.values())
        places = await self._places.locked(self._connection, self._known, exclusively=raising)
        if len(places) != len(self._known):
            raise Collided
        desk = Desk({}, places)
        await self._do_at_once(desk)
        if self._left:
            await self._decide(desk)
        outcomes = [self._outcomes[i] for i in sorted(self._outcomes)]
        if together and not all(o.applied for o in outcomes):
            raise NotTogether([Outcome(Status.SKIPPED) if o.applied else o for o in outcomes])
        return outcomes

    async def _decide(self, desk: Desk) -> None:
        shelves = {w.collection.name: self._shelves(w.collection) for w in self._left.values() if not isinstance(w, RaiseGeneration)}
        for name, keys in sorted(addresses(self._left.values()).items()):
            desk.held |= {(name, key): held for key, held in (await self._lock(shelves[name], keys)).items()}
        async for i in paced(sorted(self._left)):
            self._outcomes[i] = desk.do(self._left[i])
        for name, shelf in sorted(shelves.items()):
            changed = {key: held for (of, key), held in desk.held.items() if of == name and held.changed}
            if changed:
                await self._write_back(shelf, changed)
        if desk.raised:
            await self._places.store(self._connection, desk.raised)

    # -- what a dialect says ------------------------------------------------------------------------------------------

    async def _do_at_once(self, desk: Desk) -> None:
        """What a dialect can do without a look first: it moves such writes from those that are left to the outcomes."""

    @abstractmethod
    def _check_key(self, write: Write) -> None:
        """Refuse a key or partition that no column can hold. Raises `Unstorable`."""

    @abstractmethod
    async def _lock(self, shelf: S, keys: set[Key]) -> dict[Key, Held]:
        """What stands under each key, which nobody else changes until the transaction ends."""

    @abstractmethod
    async def _write_back(self, shelf: S, changed: dict[Key, Held]) -> None:
        """Store what has changed. Raises `Collided` where a row has appeared under a key that was free."""


def rows_of(desk: Desk, layout: Layout, puts: Iterable[tuple[int, Put]]) -> Iterator[tuple[int, Put, int, Any]]:
    """Each write with the generation its record is born in and its row, made as it is asked for. Those that will be rejected are left out."""
    for i, write in puts:
        record, place = write.record, desk.places[write.record.partition]
        generation = place.generation if record.generation is None else record.generation
        if generation < place.generation:
            continue
        try:
            yield i, write, generation, layout.record(record, place.number, generation)
        except Unstorable:
            continue


def partition_of(write: Write) -> Partition | None:
    """The partition whose generation the write asks for or raises."""
    if isinstance(write, RaiseGeneration):
        return write.partition
    return write.record.partition if isinstance(write, Put) else None
