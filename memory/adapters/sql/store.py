"""The operations that every SQL store shares, in any dialect.

They read, delete matching rows, quarantine rows, and remove empty partitions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from memory.adapters.sql import reading
from memory.adapters.sql.partitions import Directory
from memory.adapters.sql.reading import Deletion
from memory.adapters.sql.several import portions
from memory.adapters.sql.table import DamagedRow, Table
from memory.adapters.sql.thresholds import SqlThresholds
from memory.ports.base import BaseStore
from memory.ports.collections import Collection
from memory.ports.quarantine import sound, try_quarantine
from memory.ports.query import Count, Everywhere, Page, Query, Tenant
from memory.ports.record import Key, Partition, Stored

C = TypeVar("C")
R = TypeVar("R", bound=Table[Any])
T = TypeVar("T")


class SqlStore(BaseStore, Generic[C, R]):
    """Records in a SQL database.

    `C` is the dialect's connection, `R` the dialect's table.
    """

    answers_under: ClassVar[bool] = True
    notes_format: ClassVar[bool] = True

    def __init__(self, name: str, directory: Directory[C], thresholds: SqlThresholds) -> None:
        super().__init__(name)
        self.directory = directory
        self._thresholds = thresholds

    # -- what a dialect says -----------------------------------------------------------

    @abstractmethod
    async def with_connection(self, work: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine that reads on a connection."""

    @abstractmethod
    async def _within(self, work: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in one transaction: all of it is kept, or nothing."""

    async def _at_length(self, work: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine that reads for a long time."""
        return await self.with_connection(work)

    @abstractmethod
    def _table_on(self, connection: C, collection: Collection) -> R:
        """Return the statements of a collection for its table as it exists."""

    @abstractmethod
    async def _names(self, connection: C) -> list[str]:
        """List all collections of the database, also those not passed to `open`."""

    async def _tables_in_order(self, connection: C) -> list[str]:
        """List the tables of all collections in the order of their declaration.

        Collections that the store was not opened with come last.
        """
        declared = list(self._collections)
        names = sorted(
            await self._names(connection),
            key=lambda name: declared.index(name) if name in declared else len(declared),
        )
        return list(map(self.directory.names.table, names))

    @abstractmethod
    async def _move(self, collection: Collection, unreadable: Sequence[DamagedRow]) -> None:
        """Move rows that still cannot be read into the quarantine."""

    # -- reading, and deleting what matches --------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        answers, unreadable = await self.with_connection(
            lambda connection: reading.get(connection, self._table_on(connection, collection), keys)
        )
        if unreadable:
            await self._quarantine(collection, unreadable)
        return answers

    async def _query(self, query: Query) -> Page:
        return await self._until_sound(
            query.collection,
            lambda connection, table: reading.query(connection, table, self.directory, query),
        )

    async def _count(self, query: Query) -> Count:
        return await self.with_connection(
            lambda c: reading.count(c, self._table_on(c, query.collection), self.directory, query)
        )

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        deletion = Deletion(query, version, discard_at, carry)
        return await self._within(
            lambda c: reading.delete_matching(
                c, self._table_on(c, query.collection), self.directory, deletion
            )
        )

    async def _may_be_due(self, now: datetime, expired: Mapping[Collection, datetime]) -> bool:
        async def may_be_due(connection: C) -> bool:
            tables = [self._table_on(connection, collection) for collection in self._collections.values()]
            return await reading.may_be_due(connection, tables, now, expired)

        return await self.with_connection(may_be_due)

    # -- unreadable rows ---------------------------------------------------------------

    async def _until_sound(
        self, collection: Collection, read: Callable[[C, R], Coroutine[Any, Any, tuple[T, list[DamagedRow]]]]
    ) -> T:
        """Read; quarantine unreadable rows and read again until all rows are readable.

        So limits and statistics count readable rows only.
        """
        return await sound(
            lambda: self.with_connection(
                lambda connection: read(connection, self._table_on(connection, collection))
            ),
            lambda unreadable: self._quarantine(collection, unreadable),
        )

    async def _quarantine(self, collection: Collection, unreadable: Sequence[DamagedRow]) -> bool:
        """Quarantine rows; return whether that worked.

        The rows are not served either way.
        """
        return await try_quarantine(
            self.name, lambda some: self._move(collection, some), unreadable, self._translate
        )

    # -- partitions --------------------------------------------------------------------

    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> Sequence[tuple[Partition, int]]:
        async def look(connection: C) -> list[tuple[Partition, int]]:
            return await self.directory.list_partitions(
                connection, await self._tables_in_order(connection), where, prefix, after, limit
            )

        return await self.with_connection(look)

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        async def look(connection: C) -> list[tuple[Partition, int]]:
            return await self.directory.idle(connection, await self._tables_in_order(connection), limit)

        return await self._at_length(look)

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        forgotten = 0
        for some in portions(list(dict(idle).items()), self._thresholds.partitions_forgotten):
            wanted = dict(some)

            async def forget(connection: C, wanted: dict[Partition, int] = wanted) -> int:
                return await self.directory.forget_idle(
                    connection, await self._tables_in_order(connection), wanted
                )

            forgotten += await self._within(forget)
        return forgotten
