"""Several writes in one transaction: lock, decide in order, and write back at once.

Partitions are locked first, by number, then rows, by key. So transactions that meet
wait for each other and seldom deadlock. A deadlock, or a row that appears under a free
key, undoes and repeats the whole batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from memory.adapters.sql.partitions import PartitionState
from memory.adapters.sql.server.partitions import ServerDirectory, check_partition, check_tenant
from memory.adapters.sql.table import Table
from memory.ports.batch import (
    BatchRollback,
    ResolvedWrite,
    StoredRow,
    WriteCollision,
    WriteResolver,
    as_skipped,
    partition_of,
)
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.record import Key, Partition
from memory.ports.rows import Row, row_of
from memory.ports.storable import Unstorable
from memory.ports.writes import Outcome, Put, RaiseGeneration, Status, Write

C = TypeVar("C")
T = TypeVar("T", bound=Table[Any])


class Batch(ABC, Generic[C, T]):
    """One call's writes, within one transaction.

    `T` is the dialect's table: one collection's statements.
    """

    def __init__(
        self,
        connection: C,
        tables: Callable[[Collection], T],
        directory: ServerDirectory[C],
        writes: Sequence[Write],
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._directory = directory
        self._left: dict[int, Write] = dict(enumerate(writes))
        self._outcomes: dict[int, Outcome] = {}
        self._known: dict[Partition, PartitionState] = {}

    async def prepare(self) -> None:
        """Refuse names that no index can hold, and give every partition its number.

        This happens before the transaction.
        """
        async for i, write in iterate_cooperatively(list(self._left.items())):
            try:
                check_names(write)
            except Unstorable as exc:
                self._outcomes[i] = Outcome(Status.REJECTED, reason=str(exc))
                del self._left[i]
        writes = self._left.values()
        self._known = await self._directory.ensure(
            self._connection, {p for w in writes if (p := partition_of(w)) is not None}
        )

    async def carry_out(self, together: bool) -> list[Outcome]:
        """Do the writes.

        Raises:
            BatchRollback: Nothing may be kept.
            WriteCollision: A row has appeared under a key that was free.
        """
        raising = any(isinstance(w, RaiseGeneration) for w in self._left.values())
        self._known = await self._directory.lock_generations(
            self._connection, wanted := self._known, exclusively=raising
        )
        if len(self._known) != len(wanted):
            self._known = wanted
            raise WriteCollision
        await self._put_at_once()
        if self._left:
            await self._decide()
        outcomes = [self._outcomes[i] for i in sorted(self._outcomes)]
        if together and not all(o.applied for o in outcomes):
            raise BatchRollback(as_skipped(outcomes))
        return outcomes

    async def _decide(self) -> None:
        desk = WriteResolver(self._left)
        held: dict[tuple[str, Key], StoredRow] = {}
        for collection, keys in sorted(desk.reads.keys.items(), key=lambda pair: pair[0].name):
            table = self._tables(collection)
            rows = await table.find_all(self._connection, keys, lock=True)
            held |= {
                (collection.name, key): table.held_in(row, key)
                async for key, row in iterate_cooperatively(rows.items())
            }
        desk.take(held, {partition: known.generation for partition, known in self._known.items()})
        async for number in iterate_cooperatively(sorted(self._left)):
            desk.decide(number)
        self._outcomes |= desk.outcomes
        changes: dict[str, list[ResolvedWrite]] = {}
        for change in sorted(desk.changes, key=lambda change: change.address):
            changes.setdefault(change.collection.name, []).append(change)
        for _, some in sorted(changes.items()):
            await self._write_back(self._tables(some[0].collection), some)
        if desk.raised:
            await self._directory.store(
                self._connection, {self._known[p].number: generation for p, generation in desk.raised.items()}
            )

    def rows_of(self, puts: Iterable[tuple[int, Put]]) -> Iterator[tuple[int, Row, int]]:
        """Yield each write's number, its resulting row, and its partition's number.

        The row is the result if the write's condition holds, and is made on demand.
        Writes that will be rejected are left out.
        """
        for i, write in puts:
            known, generation = self._known[write.record.partition], write.record.generation
            if generation is None or generation >= known.generation:
                yield i, put_row(write, known), known.number

    def partition_no(self, change: ResolvedWrite) -> int | None:
        """Return the partition number of the record that a write puts, or None."""
        return None if change.born is None else self._known[change.born].number

    # -- what a dialect says -----------------------------------------------------------

    async def _put_at_once(self) -> None:
        """Do the writes that need no look first, as the dialect can.

        It moves such writes from the remaining ones to the outcomes.
        """

    @abstractmethod
    async def _write_back(self, table: T, changes: Sequence[ResolvedWrite]) -> None:
        """Store the changes, which come by key.

        Raises:
            WriteCollision: A row has appeared under a key that was free.
        """


def put_row(write: Put, known: PartitionState) -> Row:
    """Return the row of a record that is put into a partition of this generation."""
    row = row_of(write.collection, write.record)
    return (
        row
        if write.record.generation is not None or not known.generation
        else row._replace(generation=known.generation)
    )


def check_names(write: Write) -> None:
    """Refuse names that no index can hold.

    Raises:
        Unstorable: The tenant or scope has too many bytes for an index.
    """
    if not isinstance(write, RaiseGeneration):
        check_tenant(write.key.tenant)
    if (partition := partition_of(write)) is not None:
        check_partition(partition)
