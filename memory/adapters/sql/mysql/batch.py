"""Writes on MySQL and MariaDB.

Alone, without a transaction: one statement that decides by itself, or a look and a swap
that holds only if nothing changed since. All others: several writes in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.errors import DUPLICATE, NO_VALUE, number_of
from memory.adapters.sql.mysql.partitions import MyDirectory
from memory.adapters.sql.mysql.table import NUMBER, PARTITION, MyTable, Numbered
from memory.adapters.sql.mysql.thresholds import Thresholds
from memory.adapters.sql.naming import TableNames
from memory.adapters.sql.server.batch import Batch, check_names, put_row
from memory.ports.batch import ResolvedWrite, WriteCollision, slot_of
from memory.ports.collections import Collection
from memory.ports.rows import row_of
from memory.ports.write_decision import decide
from memory.ports.writes import Absent, Annotate, Outcome, Put, RaiseGeneration, Status, Write


class NumberAllocator:
    """The record numbers that this process may give out.

    They are forgotten with every new connection: it may lead to a database that was
    restored from a backup.
    """

    def __init__(self, names: TableNames, at_once: int) -> None:
        self._take = f"UPDATE `{names.numbers}` SET given = LAST_INSERT_ID(given + ?) WHERE name = 'records'"  # noqa: S608
        self._at_once = at_once
        self._left: list[int] = []

    def forget(self) -> None:
        self._left.clear()

    async def take(self, connection: Connection, count: int = 1) -> list[int]:
        """Return `count` numbers that nobody else has.

        Never call it within a transaction: all others would wait for its end.
        """
        if len(self._left) < count:
            wanted = max(self._at_once, count)
            last = await connection.insert_id(self._take, wanted)
            self._left += range(last, last - wanted, -1)
        taken = self._left[-count:]
        del self._left[-count:]
        return taken[::-1]

    def give_back(self, numbers: list[int]) -> None:
        """Take back numbers that were not used after all."""
        self._left += reversed(numbers)


# -- one write -------------------------------------------------------------------------


async def put_absent(
    connection: Connection, table: MyTable, directory: MyDirectory, numbers: NumberAllocator, write: Put
) -> Outcome | None:
    """Store a record under a free key.

    Returns None, with nothing stored, where it might be stored now.

    The statement reads its partition under a shared lock. It has a number for the row
    only where the generation is still the expected one. A raise waits for the puts
    under way, and every later put sees it.

    Raises:
        Unstorable: The tenant or scope has too many bytes for an index.
    """
    check_names(write)
    record = write.record
    known = (
        directory.cached_partition(record.partition)
        or (await directory.ensure(connection, [record.partition]))[record.partition]
    )
    row = put_row(write, known)
    (number,) = await numbers.take(connection)
    values = table.values(row, number, known.number, 0)
    where = (
        known.number,
        row.tenant,
        row.scope,
        row.generation,
        record.generation is not None,
        row.generation,
    )
    try:
        await connection.change(table.put_absent, number, *where, *values[1:])
        return Outcome(Status.APPLIED, version=row.version, generation=row.generation)
    except Exception as exc:
        if number_of(exc) not in (DUPLICATE, NO_VALUE):
            raise
    now = await directory.look(connection, record.partition)
    held = table.held_in(await table.find(connection, write.key), write.key)
    decision = decide(write, slot_of(table.collection, write.key, held), now.generation if now else 0)
    return None if decision.changes else decision.outcome


async def annotate(connection: Connection, table: MyTable, write: Annotate) -> Outcome | None:
    """Decide on the current row, and replace exactly that one.

    Returns None where it changed in between.
    """
    held = table.held_in(await table.find(connection, write.key), write.key)
    decision = decide(write, slot_of(table.collection, write.key, held), 0)
    if not decision.changes or decision.leaves is None:
        return decision.outcome
    row = row_of(table.collection, decision.leaves, b"")
    return decision.outcome if await table.swap(connection, row, held.token) else None


# -- several ---------------------------------------------------------------------------


class MyBatch(Batch[Connection, MyTable]):
    """One call's writes, within one transaction."""

    def __init__(
        self,
        connection: Connection,
        tables: Callable[[Collection], MyTable],
        directory: MyDirectory,
        numbers: NumberAllocator,
        thresholds: Thresholds,
        writes: Sequence[Write],
    ) -> None:
        super().__init__(connection, tables, directory, writes)
        self._numbers = numbers
        self._thresholds = thresholds
        self._mine: list[int] = []
        self.at_once = _are_new(writes)
        """Whether all of them go in without a look at existing rows."""

    async def prepare(self) -> None:
        await super().prepare()
        creating = sum([hasattr(w, "when") for w in self._left.values()])
        if creating:
            of = {w.collection.name for w in self._left.values() if not isinstance(w, RaiseGeneration)}
            segments = creating // self._thresholds.segment + 2 * len(
                of
            )  # every collection has new and old rows
            self._mine = (await self._numbers.take(self._connection, creating + segments))[::-1]

    def finish(self) -> None:
        """Free unused numbers for others."""
        self._numbers.give_back(self._mine[::-1])

    # -- new records -------------------------------------------------------------------

    async def _put_at_once(self) -> None:
        """Store all new records.

        Raises:
            WriteCollision: A key is taken; then the writes must be decided.
        """
        if not self.at_once:
            return
        by_collection: dict[str, list[tuple[int, Put]]] = {}
        for i, write in self._left.items():
            assert isinstance(write, Put)  # noqa: S101 - see `_are_new`
            by_collection.setdefault(write.collection.name, []).append((i, write))
        numbers = self._mine.copy()  # a rollback needs all of them again
        outcomes: dict[int, Outcome] = {}
        for _, puts in sorted(by_collection.items()):
            puts.sort(key=lambda numbered: numbered[1].key)
            await self._insert(
                self._tables(puts[0][1].collection), self._fresh(puts, numbers, outcomes), numbers
            )
        self._mine = numbers
        self._outcomes |= outcomes
        for i in outcomes:
            del self._left[i]

    def _fresh(
        self, puts: Iterable[tuple[int, Put]], numbers: list[int], outcomes: dict[int, Outcome]
    ) -> Iterator[Numbered]:
        for i, row, partition in self.rows_of(puts):
            outcomes[i] = Outcome(Status.APPLIED, version=row.version, generation=row.generation)
            yield row, numbers.pop(), partition

    async def _insert(self, table: MyTable, fresh: Iterable[Numbered], numbers: list[int]) -> None:
        try:
            await table.insert(self._connection, fresh, _pop_numbers(numbers))
        except Exception as exc:
            if number_of(exc) == DUPLICATE:
                raise WriteCollision from exc
            raise

    # -- decisions ---------------------------------------------------------------------

    async def _write_back(self, table: MyTable, changes: Sequence[ResolvedWrite]) -> None:
        standing = [c for c in changes if c.held.token is not None]
        await table.forget_quarantined(self._connection, [c.held.token for c in standing])
        gone = [c.held.token[NUMBER] for c in standing if c.row is None]
        over = [
            (c.row, c.held.token[NUMBER], self.partition_no(c))
            for c in standing
            if c.row is not None and c.found_anew
        ]
        same = [
            (c.row, c.held.token[NUMBER], c.held.token[PARTITION])
            for c in standing
            if c.row is not None and not c.found_anew
        ]
        fresh = [
            (c.row, self._mine.pop(), self.partition_no(c))
            for c in changes
            if c.row is not None and c.held.token is None
        ]
        if gone:
            await table.delete(self._connection, gone)
        if over:
            await table.replace(self._connection, over, _pop_numbers(self._mine))
        if same:
            await table.restate(self._connection, same)
        if fresh:
            await self._insert(table, fresh, self._mine)


def _are_new(writes: Sequence[Write]) -> bool:
    """Whether every write puts a record of its own under a free key."""
    keys = {
        (w.collection.name, w.record.key) for w in writes if isinstance(w, Put) and isinstance(w.when, Absent)
    }
    return len(keys) == len(writes)


def _pop_numbers(numbers: list[int]) -> Iterator[int]:
    """Yield the numbers, the lowest first, and remove each."""
    while True:
        yield numbers.pop()
