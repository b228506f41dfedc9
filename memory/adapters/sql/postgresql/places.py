"""Partitions: the numbers they keep for good, and their generations as last seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memory.adapters.sql.postgresql.pool import Connection
from memory.adapters.sql.postgresql.rows import scope_text
from memory.adapters.sql.postgresql.values import checked
from memory.ports.query import Everywhere, Tenant, Where
from memory.ports.record import Partition

_MOST = 100_000


@dataclass(frozen=True, slots=True)
class Place:
    """A partition's number, and a generation that it has reached: it may have gone on since."""

    number: int
    generation: int


class Places:
    """What this process knows of partitions. Forgotten with every new connection: behind it may be a database brought back from a backup."""

    def __init__(self, schema: str) -> None:
        self._known: dict[Partition, Place] = {}
        table = f'"{schema}".memory_partitions'
        found = "RETURNING number, generation"
        self._find = f"SELECT scope, number, generation FROM {table} WHERE tenant = $1 AND scope = ANY($2::text[])"  # noqa: S608
        self._add = (
            f"INSERT INTO {table} (tenant, scope, generation) SELECT tenant, scope, 0 FROM unnest($1::text[], $2::text[]) AS r(tenant, scope) "  # noqa: S608
            "ON CONFLICT (tenant, scope) DO NOTHING"
        )
        self._lock = f"SELECT number, generation FROM {table} WHERE number = ANY($1::bigint[]) ORDER BY number FOR "  # noqa: S608
        self._raise = (
            f"INSERT INTO {table} AS p (tenant, scope, generation) VALUES ($1, $2, $3) "  # noqa: S608
            f"ON CONFLICT (tenant, scope) DO UPDATE SET generation = greatest(p.generation + $4::bigint, $3) {found}"
        )
        self._set = (
            f"UPDATE {table} AS p SET generation = r.generation FROM unnest($1::bigint[], $2::bigint[]) AS r(number, generation) "  # noqa: S608
            "WHERE p.number = r.number"
        )
        self._of_tenant = f"SELECT number FROM {table} WHERE tenant = $1 ORDER BY number"  # noqa: S608
        self._all = f"SELECT number FROM {table} ORDER BY number"  # noqa: S608

    def forget(self) -> None:
        self._known.clear()

    def known(self, partition: Partition) -> Place | None:
        return self._known.get(partition)

    async def look(self, connection: Connection, partition: Partition) -> Place | None:
        """The partition as it is now; None where there is none."""
        self._known.pop(partition, None)
        return (await self._look_up(connection, [partition])).get(partition)

    async def ensure(self, connection: Connection, partitions: Iterable[Partition]) -> dict[Partition, Place]:
        """The places of these partitions; made where there is none yet."""
        wanted = sorted(set(partitions))
        found = await self._find_all(connection, wanted)
        if missing := [p for p in wanted if p not in found]:
            await connection.execute(self._add, [checked(p.tenant) for p in missing], [scope_text(p.tenant, p.scope) for p in missing])
            found |= await self._look_up(connection, missing)
        return found

    async def locked(self, connection: Connection, places: dict[Partition, Place], *, exclusively: bool) -> dict[Partition, Place]:
        """The places with the generations they have, which nobody raises until the transaction ends."""
        if not places:
            return {}
        numbers = sorted({place.number for place in places.values()})
        generations = dict(await connection.fetch(self._lock + ("UPDATE" if exclusively else "SHARE"), numbers))
        locked = {p: Place(place.number, generations[place.number]) for p, place in places.items() if place.number in generations}
        for partition in places.keys() - locked.keys():
            self._known.pop(partition, None)
        self._known |= locked
        return locked

    async def raise_generation(self, connection: Connection, partition: Partition, to: int | None) -> int:
        """The generation after raising it to at least `to`, or by one. Looking (`to` of 0) makes nothing."""
        if to == 0:
            place = await self.look(connection, partition)
            return 0 if place is None else place.generation
        least, step = (1, 1) if to is None else (to, 0)
        scope = scope_text(partition.tenant, partition.scope)
        number, generation = await connection.fetchrow(self._raise, checked(partition.tenant), scope, least, step)
        self._known[partition] = Place(number, generation)
        return int(generation)

    async def store(self, connection: Connection, generations: dict[int, int]) -> None:
        """Set the generations of partitions that this transaction has locked exclusively."""
        await connection.execute(self._set, list(generations), list(generations.values()))

    async def numbers(self, connection: Connection, where: Where) -> list[int]:
        """The numbers of the asked partitions that have ever held anything, ascending."""
        if isinstance(where, Tenant):
            return [number for (number,) in await connection.fetch(self._of_tenant, checked(where.tenant))]
        if isinstance(where, Everywhere):
            return [number for (number,) in await connection.fetch(self._all)]
        return sorted({place.number for place in (await self._find_all(connection, where.partitions)).values()})

    async def _find_all(self, connection: Connection, partitions: Sequence[Partition]) -> dict[Partition, Place]:
        """The places of those that there are. What is known may be forgotten while others are looked up: the answer is put together apart."""
        found = {p: place for p in partitions if (place := self._known.get(p)) is not None}
        if missing := [p for p in dict.fromkeys(partitions) if p not in found]:
            found |= await self._look_up(connection, missing)
        return found

    async def _look_up(self, connection: Connection, partitions: Sequence[Partition]) -> dict[Partition, Place]:
        by_tenant: dict[str, dict[str, Partition]] = {}
        for partition in partitions:
            by_tenant.setdefault(checked(partition.tenant), {})[checked(partition.scope)] = partition
        found: dict[Partition, Place] = {}
        for tenant, scopes in by_tenant.items():
            for scope, number, generation in await connection.fetch(self._find, tenant, list(scopes)):
                found[scopes[scope]] = Place(number, generation)
        if len(self._known) > _MOST:
            self._known.clear()
        self._known |= found
        return found
