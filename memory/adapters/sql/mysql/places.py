"""Partitions, as MySQL and MariaDB are asked for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.rows import checked_name, spelled
from memory.adapters.sql.mysql.schema import TENANT_BYTES
from memory.adapters.sql.mysql.several import in_list, padded
from memory.adapters.sql.server.places import Place, Places
from memory.ports.record import Partition

_TABLE = "memory_partitions"
_ADD = f"INSERT INTO {_TABLE} (tenant, scope, generation) VALUES (?, ?, 0) ON DUPLICATE KEY UPDATE number = number"  # noqa: S608
_RAISE = f"INSERT INTO {_TABLE} (tenant, scope, generation) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE generation = GREATEST(generation + ?, ?)"  # noqa: S608
_ONE = f"SELECT number, generation FROM {_TABLE} WHERE tenant = ? AND scope = ?"  # noqa: S608
_SET = f"UPDATE {_TABLE} SET generation = ? WHERE number = ?"  # noqa: S608
_OF_TENANT = f"SELECT number FROM {_TABLE} WHERE tenant = ? ORDER BY number"  # noqa: S608
_ALL = f"SELECT number FROM {_TABLE} ORDER BY number"  # noqa: S608


class MyPlaces(Places[Connection]):
    """Names too long for their column raise `Unstorable` where a partition is made, and are found nowhere."""

    async def _find(self, connection: Connection, tenant: str, scopes: Sequence[str]) -> list[tuple[str, int, int]]:
        wanted = padded([spelled(scope) for scope in scopes])
        sql = f"SELECT scope, number, generation FROM {_TABLE} WHERE tenant = ? AND scope IN {in_list(len(wanted))}"  # noqa: S608
        return [(scope.decode(), number, generation) for scope, number, generation in await connection.fetch(sql, spelled(tenant), *wanted)]

    async def _add(self, connection: Connection, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            await connection.change(_ADD, checked_name("tenant", partition.tenant, TENANT_BYTES), checked_name("scope", partition.scope))

    async def _lock(self, connection: Connection, numbers: Sequence[int], exclusively: bool) -> Sequence[tuple[int, int]]:
        wanted = padded(numbers)
        which = f"SELECT number, generation FROM {_TABLE} WHERE number IN {in_list(len(wanted))} ORDER BY number"  # noqa: S608
        return [(n, g) for n, g in await connection.fetch(f"{which} {'FOR UPDATE' if exclusively else 'LOCK IN SHARE MODE'}", *wanted)]

    async def _raise(self, connection: Connection, partition: Partition, least: int, step: int) -> Place:
        await connection.change(_RAISE, partition.tenant, checked_name("scope", partition.scope), least, step, least)
        found = await connection.fetchrow(_ONE, partition.tenant, partition.scope)
        assert found is not None  # noqa: S101 - it was made
        return Place(*found)

    async def store(self, connection: Connection, generations: Mapping[int, int]) -> None:
        for number, generation in sorted(generations.items()):
            await connection.change(_SET, generation, number)

    async def _numbers(self, connection: Connection, tenant: str | None) -> list[int]:
        rows = await connection.fetch(_ALL) if tenant is None else await connection.fetch(_OF_TENANT, tenant)
        return [number for (number,) in rows]
