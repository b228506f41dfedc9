"""Partitions, as PostgreSQL is asked for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.postgresql.rows import scope_text
from memory.adapters.sql.postgresql.values import checked, unescape
from memory.adapters.sql.server.places import Place, Places
from memory.ports.record import Partition


class PgPlaces(Places[Connection]):
    """The partitions in one schema."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        table = f'"{schema}".memory_partitions'
        found = "RETURNING number, generation"
        self._find_sql = f"SELECT scope, number, generation FROM {table} WHERE tenant = $1 AND scope = ANY($2::text[])"  # noqa: S608
        self._add_sql = (
            f"INSERT INTO {table} (tenant, scope, generation) SELECT tenant, scope, 0 FROM unnest($1::text[], $2::text[]) AS r(tenant, scope) "  # noqa: S608
            "ON CONFLICT (tenant, scope) DO NOTHING"
        )
        self._lock_sql = f"SELECT number, generation FROM {table} WHERE number = ANY($1::bigint[]) ORDER BY number FOR "  # noqa: S608
        self._raise_sql = (
            f"INSERT INTO {table} AS p (tenant, scope, generation) VALUES ($1, $2, $3) "  # noqa: S608
            f"ON CONFLICT (tenant, scope) DO UPDATE SET generation = greatest(p.generation + $4::bigint, $3) {found}"
        )
        self._set_sql = (
            f"UPDATE {table} AS p SET generation = r.generation FROM unnest($1::bigint[], $2::bigint[]) AS r(number, generation) "  # noqa: S608
            "WHERE p.number = r.number"
        )
        self._of_tenant_sql = f"SELECT number FROM {table} WHERE tenant = $1 ORDER BY number"  # noqa: S608
        self._all_sql = f"SELECT number FROM {table} ORDER BY number"  # noqa: S608

    async def _find(self, connection: Connection, tenant: str, scopes: Sequence[str]) -> list[tuple[str, int, int]]:
        rows = await connection.fetch(self._find_sql, checked(tenant), [checked(scope) for scope in scopes])
        return [(unescape(scope), number, generation) for scope, number, generation in rows]

    async def _add(self, connection: Connection, partitions: Sequence[Partition]) -> None:
        tenants, scopes = [checked(p.tenant) for p in partitions], [scope_text(p.tenant, p.scope) for p in partitions]
        await connection.execute(self._add_sql, tenants, scopes)

    async def _lock(self, connection: Connection, numbers: Sequence[int], exclusively: bool) -> list[tuple[int, int]]:
        rows = await connection.fetch(self._lock_sql + ("UPDATE" if exclusively else "SHARE"), numbers)
        return [(number, generation) for number, generation in rows]

    async def _raise(self, connection: Connection, partition: Partition, least: int, step: int) -> Place:
        scope = scope_text(partition.tenant, partition.scope)
        row = await connection.fetchrow(self._raise_sql, checked(partition.tenant), scope, least, step)
        assert row is not None  # noqa: S101 - it was made or raised
        return Place(*row)

    async def store(self, connection: Connection, generations: Mapping[int, int]) -> None:
        await connection.execute(self._set_sql, list(generations), list(generations.values()))

    async def _numbers(self, connection: Connection, tenant: str | None) -> list[int]:
        rows = await (connection.fetch(self._all_sql) if tenant is None else connection.fetch(self._of_tenant_sql, checked(tenant)))
        return [number for (number,) in rows]
