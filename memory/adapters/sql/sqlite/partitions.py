"""Partitions in SQLite.

Each has a number, a generation, and for each collection a revision, see `transaction`.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.adapters.sql.partitions import Directory
from memory.adapters.sql.several import in_list
from memory.adapters.sql.sqlite.session import Session
from memory.ports.record import Partition
from memory.ports.rows import MARK

_LOCKED = "SELECT number, generation FROM memory_partitions WHERE number IN "
ONE = "SELECT number, generation FROM memory_partitions WHERE tenant = ? AND scope = ?"


class SqliteDirectory(Directory[Session]):
    """The partitions of one file.

    None is remembered: each transaction sees the changes of other processes.
    """

    async def _find(
        self, connection: Session, tenant: str, scopes: Sequence[str]
    ) -> list[tuple[str, int, int]]:
        return [
            (scope, *row) for scope in scopes if (row := connection.row(ONE, (tenant, scope))) is not None
        ]

    async def _numbers(self, connection: Session, which: str, values: Sequence[str]) -> list[int]:
        rows = connection.rows(f"SELECT p.number FROM memory_partitions AS p {which}", values)  # noqa: S608
        return [number for (number,) in rows]

    def _quoted_names(self, tables: Sequence[str]) -> list[str]:
        return [f'"{name}"' for name in tables]

    async def _list(
        self, connection: Session, which: str, values: Sequence[int | str]
    ) -> list[tuple[int, Partition, int]]:
        rows = connection.rows(
            f"SELECT p.number, p.tenant, p.scope, p.generation FROM memory_partitions AS p {which}",  # noqa: S608
            values,
        )
        return [(number, Partition(tenant, scope), generation) for number, tenant, scope, generation in rows]

    async def _lock(
        self, connection: Session, numbers: Sequence[int], exclusively: bool
    ) -> list[tuple[int, int]]:
        """Return the rows: the file is already locked against all other writers."""
        return connection.rows(f"{_LOCKED}{in_list(len(numbers))}", numbers)

    async def _marked_partitions(self, connection: Session, tables: Sequence[str]) -> set[Partition]:
        """Return the partitions of marks, found among rows without a number.

        Only rows that are not records have no partition's number.
        """
        found: set[Partition] = set()
        for table in self._quoted_names(tables):
            rows = connection.rows(
                f"SELECT DISTINCT tenant, scope FROM {table} WHERE partition_no IS NULL AND row_type = '{MARK}'"  # noqa: S608
            )
            found |= {Partition(tenant, scope) for tenant, scope in rows}
        return found

    async def _remove(self, connection: Session, numbers: Sequence[int]) -> None:
        for table, column in (("memory_revisions", "partition_no"), ("memory_partitions", "number")):
            connection.run_many(f"DELETE FROM {table} WHERE {column} = ?", [(number,) for number in numbers])  # noqa: S608
