"""Several writes in one transaction, on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.errors import DUPLICATE, number_of
from memory.adapters.sql.mysql.numbers import Numbers
from memory.adapters.sql.mysql.places import MyPlaces
from memory.adapters.sql.mysql.rows import NUMBER, Content, checked_key, checked_name
from memory.adapters.sql.mysql.schema import TENANT_BYTES
from memory.adapters.sql.mysql.shelf import MyShelf
from memory.adapters.sql.mysql.thresholds import Thresholds
from memory.adapters.sql.server.batch import Batch, Collided, rows_of
from memory.adapters.sql.server.desk import Desk, Held
from memory.ports.collections import Collection
from memory.ports.pace import paced
from memory.ports.record import Key
from memory.ports.writes import Absent, Outcome, Put, RaiseGeneration, Status, Write


class MyBatch(Batch[Connection, MyShelf]):
    """One call's writes, within one transaction."""

    def __init__(
        self,
        connection: Connection,
        shelves: Callable[[Collection], MyShelf],
        places: MyPlaces,
        numbers: Numbers,
        thresholds: Thresholds,
        writes: Sequence[Write],
    ) -> None:
        super().__init__(connection, shelves, places, writes)
        self._numbers = numbers
        self._thresholds = thresholds
        self._mine: list[int] = []
        self.at_once = _are_new(writes)
        """Whether all of them are to go in without a look at what stands there."""

    async def prepare(self) -> None:
        await super().prepare()
        creating = sum([hasattr(w, "when") for w in self._left.values()])
        if creating:
            of = {w.collection.name for w in self._left.values() if not isinstance(w, RaiseGeneration)}
            segments = creating // self._thresholds.segment + 2 * len(of)  # each collection has new rows and old ones
            self._mine = (await self._numbers.take(self._connection, creating + segments))[::-1]

    def finish(self) -> None:
        """The numbers that nothing was given are for others."""
        self._numbers.give_back(self._mine[::-1])

    # -- new records --------------------------------------------------------------------------------------------------

    async def _do_at_once(self, desk: Desk) -> None:
        """Store all new records. Raises `Collided` where something stands under one of their keys: then they are to be decided about."""
        if not self.at_once:
            return
        by_collection: dict[str, list[tuple[int, Put]]] = {}
        for i, write in self._left.items():
            assert isinstance(write, Put)  # noqa: S101 - see `_are_new`
            by_collection.setdefault(write.collection.name, []).append((i, write))
        numbers = self._mine.copy()  # all of them are needed again if this is undone
        outcomes: dict[int, Outcome] = {}
        for _, puts in sorted(by_collection.items()):
            shelf = self._shelves(puts[0][1].collection)
            await self._insert(shelf, self._fresh(desk, shelf, sorted(puts, key=_key), numbers, outcomes), numbers)
        self._mine = numbers
        self._outcomes |= outcomes
        for i in outcomes:
            del self._left[i]

    @staticmethod
    def _fresh(
        desk: Desk, shelf: MyShelf, puts: Iterable[tuple[int, Put]], numbers: list[int], outcomes: dict[int, Outcome]
    ) -> Iterator[tuple[Content, int]]:
        """The rows of these writes, made as they are asked for, and their outcomes. Those that will be rejected are left out."""
        for i, write, generation, content in rows_of(desk, shelf.layout, puts):
            outcomes[i] = Outcome(Status.APPLIED, version=write.record.version, generation=generation)
            yield content, numbers.pop()

    async def _insert(self, shelf: MyShelf, fresh: Iterable[tuple[Content, int]], numbers: list[int]) -> None:
        try:
            await shelf.insert(self._connection, fresh, _drawn(numbers))
        except Exception as exc:
            if number_of(exc) == DUPLICATE:
                raise Collided from exc
            raise

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _check_key(self, write: Write) -> None:
        if isinstance(write, RaiseGeneration):
            checked_name("tenant", write.partition.tenant, TENANT_BYTES)
            checked_name("scope", write.partition.scope)
            return
        if isinstance(write, Put):
            checked_name("scope", write.record.scope)
        checked_key(write.key)

    async def _lock(self, shelf: MyShelf, keys: set[Key]) -> dict[Key, Held]:
        rows = await shelf.find_all(self._connection, list(keys), lock=True)
        return {key: shelf.held(rows.get(key)) async for key in paced(sorted(keys))}

    async def _write_back(self, shelf: MyShelf, changed: dict[Key, Held]) -> None:
        held = [changed[key] for key in sorted(changed)]
        standing = [(h, h.row) for h in held if h.row is not None]
        await shelf.forget_aside(self._connection, [row for _, row in standing])
        gone = [row[NUMBER] for h, row in standing if h.content is None]
        over = [(h.content, row[NUMBER]) for h, row in standing if h.content is not None and h.found_anew]
        same = [(h.content, row[NUMBER]) for h, row in standing if h.content is not None and not h.found_anew]
        fresh = [(h.content, self._mine.pop()) for h in held if h.content is not None and h.row is None]
        if gone:
            await shelf.delete(self._connection, gone)
        if over:
            await shelf.replace(self._connection, over, _drawn(self._mine))
        if same:
            await shelf.restate(self._connection, same)
        if fresh:
            await self._insert(shelf, fresh, self._mine)


def _are_new(writes: Sequence[Write]) -> bool:
    """Whether every write puts a record of its own where nothing stands."""
    keys = {(w.collection.name, w.record.key) for w in writes if isinstance(w, Put) and isinstance(w.when, Absent)}
    return len(keys) == len(writes)


def _key(numbered: tuple[int, Put]) -> tuple[str, str]:
    key = numbered[1].record.key
    return key.tenant, key.id


def _drawn(numbers: list[int]) -> Iterator[int]:
    """The numbers, the lowest first, taken away one by one."""
    while True:
        yield numbers.pop()
