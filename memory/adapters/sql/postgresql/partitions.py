"""Statements about partitions on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory.adapters.sql.naming import TableNames
from memory.adapters.sql.partitions import PartitionState
from memory.adapters.sql.postgresql.codec import escape, unescape
from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.server.partitions import ServerDirectory
from memory.adapters.sql.server.thresholds import ServerThresholds
from memory.ports.record import Partition
from memory.ports.rows import MARK


class PgDirectory(ServerDirectory[Connection]):
    """The partitions in one schema."""

    def __init__(self, schema: str, names: TableNames, thresholds: ServerThresholds) -> None:
        super().__init__(names, thresholds)
        self._schema = schema
        table = self._table = f'"{schema}"."{names.partitions}"'
        found = "RETURNING number, generation"
        self._find_sql = (
            "SELECT scope, p.number, p.generation FROM unnest($2::text[]) AS wanted(scope), LATERAL "  # noqa: S608
            f"(SELECT number, generation FROM {table} WHERE tenant = $1 AND scope = wanted.scope LIMIT 1) AS p"
        )
        self._add_sql = (
            f"INSERT INTO {table} (number, tenant, scope, generation) "  # noqa: S608
            "SELECT number, tenant, scope, 0 FROM unnest($1::bigint[], $2::text[], $3::text[]) AS r(number,"
            " tenant, scope) ON CONFLICT DO NOTHING"
        )
        self._lock_sql = (
            f"SELECT number, generation FROM {table} WHERE number = ANY($1::bigint[]) ORDER BY number FOR "  # noqa: S608
        )
        self._raise_sql = (
            f"UPDATE {table} AS p SET generation = greatest(p.generation + $4::bigint, $3::bigint) "  # noqa: S608
            f"WHERE p.tenant = $1 AND p.scope = $2 {found}"
        )
        self._set_sql = (
            f"UPDATE {table} AS p SET generation = r.generation FROM unnest($1::bigint[], $2::bigint[]) AS r(number, generation) "  # noqa: S608
            "WHERE p.number = r.number"
        )

    async def _find(
        self, connection: Connection, tenant: str, scopes: Sequence[str]
    ) -> list[tuple[str, int, int]]:
        rows = await connection.fetch(self._find_sql, escape(tenant), [escape(scope) for scope in scopes])
        return [(unescape(scope), number, generation) for scope, number, generation in rows]

    async def _add(self, connection: Connection, partitions: Sequence[tuple[Partition, int]]) -> None:
        tenants, scopes = [escape(p.tenant) for p, _ in partitions], [escape(p.scope) for p, _ in partitions]
        await connection.execute(self._add_sql, [number for _, number in partitions], tenants, scopes)

    async def _lock(
        self, connection: Connection, numbers: Sequence[int], exclusively: bool
    ) -> list[tuple[int, int]]:
        rows = await connection.fetch(self._lock_sql + ("UPDATE" if exclusively else "SHARE"), numbers)
        return [(number, generation) for number, generation in rows]

    async def _raise(
        self, connection: Connection, partition: Partition, least: int, step: int
    ) -> PartitionState | None:
        scope = escape(partition.scope)
        row = await connection.fetchrow(self._raise_sql, escape(partition.tenant), scope, least, step)
        return None if row is None else PartitionState(*row)

    async def store(self, connection: Connection, generations: Mapping[int, int]) -> None:
        await connection.execute(self._set_sql, list(generations), list(generations.values()))

    async def _marked_partitions(self, connection: Connection, tables: Sequence[str]) -> set[Partition]:
        found: set[Partition] = set()
        for table in self._quoted_names(tables):
            rows = await connection.fetch(
                f"SELECT DISTINCT t.tenant, t.scope FROM {table} AS t WHERE t.row_type = '{MARK}'"  # noqa: S608
            )
            found |= {Partition(unescape(tenant), unescape(scope)) for tenant, scope in rows}
        return found

    async def _remove(self, connection: Connection, numbers: Sequence[int]) -> None:
        await connection.execute(f"DELETE FROM {self._table} WHERE number = ANY($1::bigint[])", list(numbers))  # noqa: S608

    def _quoted_names(self, tables: Sequence[str]) -> list[str]:
        return [f'"{self._schema}"."{name}"' for name in tables]

    async def _list(
        self, connection: Connection, which: str, values: Sequence[int | str]
    ) -> list[tuple[int, Partition, int]]:
        rows = await self._select(connection, "p.number, p.tenant, p.scope, p.generation", which, values)
        return [
            (number, Partition(unescape(tenant), unescape(scope)), generation)
            for number, tenant, scope, generation in rows
        ]

    async def _numbers(self, connection: Connection, which: str, values: Sequence[str]) -> list[int]:
        return [number for (number,) in await self._select(connection, "p.number", which, values)]

    async def _select(
        self, connection: Connection, columns: str, which: str, values: Sequence[int | str]
    ) -> Sequence[Any]:
        for number, value in enumerate(values, 1):
            which = which.replace("?", f"${number}::{'text' if isinstance(value, str) else 'bigint'}", 1)
        sql = f"SELECT {columns} FROM {self._table} AS p {which}"  # noqa: S608
        rows: Sequence[Any] = await connection.fetch(
            sql, *[escape(value) if isinstance(value, str) else value for value in values]
        )
        return rows
