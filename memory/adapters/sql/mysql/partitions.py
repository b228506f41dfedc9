"""Statements about partitions on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory.adapters.sql.mysql.codec import to_text
from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.thresholds import Thresholds
from memory.adapters.sql.naming import TableNames
from memory.adapters.sql.partitions import PartitionState
from memory.adapters.sql.server.partitions import ServerDirectory
from memory.adapters.sql.several import in_list, pad_to_power_of_two, portions
from memory.ports.record import Partition
from memory.ports.rows import MARK


class MyDirectory(ServerDirectory[Connection]):
    """The partitions of one database."""

    _thresholds: Thresholds

    def __init__(self, names: TableNames, thresholds: Thresholds) -> None:
        super().__init__(names, thresholds)
        table = self._table = f"`{names.partitions}`"
        self._add_sql = f"INSERT INTO {table} (number, tenant, scope, generation) VALUES (?, ?, ?, 0) ON DUPLICATE KEY UPDATE number = number"  # noqa: S608
        self._raise_sql = (
            f"UPDATE {table} SET generation = GREATEST(generation + ?, ?) WHERE tenant = ? AND scope = ?"  # noqa: S608
        )
        self._one_sql = f"SELECT number, generation FROM {table} WHERE tenant = ? AND scope = ?"  # noqa: S608
        self._set_sql = f"UPDATE {table} SET generation = ? WHERE number = ?"  # noqa: S608

    async def _find(
        self, connection: Connection, tenant: str, scopes: Sequence[str]
    ) -> list[tuple[str, int, int]]:
        wanted = pad_to_power_of_two(scopes)
        sql = f"SELECT scope, number, generation FROM {self._table} WHERE tenant = ? AND scope IN {in_list(len(wanted))}"  # noqa: S608
        return [
            (scope.decode(), number, generation)
            for scope, number, generation in await connection.fetch(sql, tenant, *wanted)
        ]

    async def _add(self, connection: Connection, partitions: Sequence[tuple[Partition, int]]) -> None:
        for partition, number in partitions:
            await connection.change(self._add_sql, number, partition.tenant, partition.scope)

    async def _lock(
        self, connection: Connection, numbers: Sequence[int], exclusively: bool
    ) -> Sequence[tuple[int, int]]:
        wanted = pad_to_power_of_two(numbers)
        which = f"SELECT number, generation FROM {self._table} WHERE number IN {in_list(len(wanted))} ORDER BY number"  # noqa: S608
        return [
            (n, g)
            for n, g in await connection.fetch(
                f"{which} {'FOR UPDATE' if exclusively else 'LOCK IN SHARE MODE'}", *wanted
            )
        ]

    async def _raise(
        self, connection: Connection, partition: Partition, least: int, step: int
    ) -> PartitionState | None:
        await connection.change(self._raise_sql, step, least, partition.tenant, partition.scope)
        found = await connection.fetchrow(self._one_sql, partition.tenant, partition.scope)
        return None if found is None else PartitionState(*found)

    async def store(self, connection: Connection, generations: Mapping[int, int]) -> None:
        for number, generation in sorted(generations.items()):
            await connection.change(self._set_sql, generation, number)

    async def _marked_partitions(self, connection: Connection, tables: Sequence[str]) -> set[Partition]:
        """Find them by the index of roles, since marks and tombstones have no role."""
        found: set[Partition] = set()
        for table in tables:
            rows = await connection.fetch(
                f"SELECT DISTINCT tenant, scope FROM `{table}` WHERE role IS NULL AND row_type = '{MARK}'"  # noqa: S608
            )
            found |= {Partition(to_text(tenant), to_text(scope)) for tenant, scope in rows}
        return found

    def _quoted_names(self, tables: Sequence[str]) -> list[str]:
        return [f"`{name}`" for name in tables]

    async def _list(
        self, connection: Connection, which: str, values: Sequence[int | str]
    ) -> list[tuple[int, Partition, int]]:
        rows = await connection.fetch(
            f"SELECT p.number, p.tenant, p.scope, p.generation FROM {self._table} AS p {which}",  # noqa: S608
            *values,
        )
        return [
            (number, Partition(to_text(tenant), to_text(scope)), generation)
            for number, tenant, scope, generation in rows
        ]

    async def _remove(self, connection: Connection, numbers: Sequence[int]) -> None:
        for some in portions(sorted(numbers), self._thresholds.listed):
            wanted = pad_to_power_of_two(some)
            await connection.change(
                f"DELETE FROM {self._table} WHERE number IN {in_list(len(wanted))}",  # noqa: S608
                *wanted,
            )

    async def _numbers(self, connection: Connection, which: str, values: Sequence[str]) -> list[int]:
        rows = await connection.fetch(f"SELECT p.number FROM {self._table} AS p {which}", *values)  # noqa: S608
        return [number for (number,) in rows]
