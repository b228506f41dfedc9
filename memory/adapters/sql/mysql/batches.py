"""Several writes in one transaction, on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.errors import DUPLICATE, number_of
from memory.adapters.sql.mysql.numbers import Numbers
from memory.adapters.sql.mysql.places import MyPlaces
from memory.adapters.sql.mysql.rows import NUMBER, checked_key, checked_name
from memory.adapters.sql.mysql.schema import TENANT_BYTES
from memory.adapters.sql.mysql.shelf import MyShelf
from memory.adapters.sql.server.batch import Batch, Collided
from memory.adapters.sql.server.desk import Held
from memory.ports.collections import Collection
from memory.ports.record import Key
from memory.ports.writes import Append, Put, RaiseGeneration, Write

_START_COUNTER = "INSERT INTO memory_counters (partition_no, name, value) VALUES (?, ?, 0) ON DUPLICATE KEY UPDATE value = value"
_COUNTER = "SELECT value FROM memory_counters WHERE partition_no = ? AND name = ? FOR UPDATE"
_SET_COUNTER = "UPDATE memory_counters SET value = ? WHERE partition_no = ? AND name = ?"


class MyBatch(Batch[Connection, MyShelf]):
    """One call's writes, within one transaction."""

    def __init__(
        self, connection: Connection, shelves: Callable[[Collection], MyShelf], places: MyPlaces, numbers: Numbers, writes: Sequence[Write]
    ) -> None:
        super().__init__(connection, shelves, places, writes)
        self._numbers = numbers
        self._mine: list[int] = []

    async def prepare(self) -> None:
        await super().prepare()
        creating = sum([isinstance(w, Put | Append) or hasattr(w, "when") for w in self._left.values()])
        if creating:
            self._mine = await self._numbers.take(self._connection, creating)

    def finish(self) -> None:
        """The numbers that no row was given are for others."""
        self._numbers.give_back(self._mine)

    def _check_key(self, write: Write) -> None:
        if isinstance(write, RaiseGeneration):
            checked_name("tenant", write.partition.tenant, TENANT_BYTES)
            checked_name("scope", write.partition.scope)
            return
        if isinstance(write, Put | Append):
            checked_name("scope", write.record.scope)
        if isinstance(write, Append):
            checked_name("counter", write.counter)
        checked_key(write.key)

    async def _lock(self, shelf: MyShelf, keys: set[Key]) -> dict[Key, Held]:
        rows = await shelf.find_all(self._connection, list(keys), lock=True)
        return {key: shelf.held(rows.get(key)) for key in keys}

    async def _count(self, partition: int, counter: str) -> int:
        await self._connection.change(_START_COUNTER, partition, counter)
        return int(await self._connection.fetchval(_COUNTER, partition, counter))

    async def _set_counter(self, partition: int, counter: str, value: int) -> None:
        await self._connection.change(_SET_COUNTER, value, partition, counter)

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
            await shelf.replace(self._connection, over)
        if same:
            await shelf.restate(self._connection, same)
        if fresh:
            try:
                await shelf.insert(self._connection, fresh)
            except Exception as exc:
                if number_of(exc) == DUPLICATE:
                    raise Collided from exc
                raise
