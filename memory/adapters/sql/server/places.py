"""Partitions: the numbers they keep for good, and their generations as last seen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from memory.ports.query import Everywhere, Tenant, Where
from memory.ports.record import Partition

_MOST = 100_000

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Place:
    """A partition's number, and a generation that it has reached: it may have gone on since."""

    number: int
    generation: int


class Places(ABC, Generic[C]):
    """What this process knows of partitions. Forgotten with every new connection: behind it may be a database brought back from a backup.

    What is asked of the database is the dialect's.
    """

    def __init__(self) -> None:
        self._known: dict[Partition, Place] = {}

    def forget(self) -> None:
        self._known.clear()

    def known(self, partition: Partition) -> Place | None:
        return self._known.get(partition)

    async def look(self, connection: C, partition: Partition) -> Place | None:
        """The partition as it is now; None where there is none."""
        self._known.pop(partition, None)
        return (await self._look_up(connection, [partition])).get(partition)

    async def ensure(self, connection: C, partitions: Iterable[Partition]) -> dict[Partition, Place]:
        """The places of these partitions; made where there is none yet."""
        wanted = sorted(set(partitions))
        found = await self._find_all(connection, wanted)
        if missing := [p for p in wanted if p not in found]:
            await self._add(connection, missing)
            found |= await self._look_up(connection, missing)
        return found

    async def locked(self, connection: C, places: dict[Partition, Place], *, exclusively: bool) -> dict[Partition, Place]:
        """The places with the generations they have, which nobody raises until the transaction ends."""
        if not places:
            return {}
        numbers = sorted({place.number for place in places.values()})
        generations = dict(await self._lock(connection, numbers, exclusively))
        locked = {p: Place(place.number, generations[place.number]) for p, place in places.items() if place.number in generations}
        for partition in places.keys() - locked.keys():
            self._known.pop(partition, None)
        self._known |= locked
        return locked

    async def raise_generation(self, connection: C, partition: Partition, to: int | None) -> int:
        """The generation after raising it to at least `to`, or by one. Looking (`to` of 0) makes nothing."""
        if to == 0:
            place = await self.look(connection, partition)
            return 0 if place is None else place.generation
        least, step = (1, 1) if to is None else (to, 0)
        place = self._known[partition] = await self._raise(connection, partition, least, step)
        return place.generation

    async def numbers(self, connection: C, where: Where) -> list[int]:
        """The numbers of the asked partitions that have ever held anything, ascending."""
        if isinstance(where, Tenant):
            return await self._numbers(connection, where.tenant)
        if isinstance(where, Everywhere):
            return await self._numbers(connection, None)
        return sorted({place.number for place in (await self._find_all(connection, where.partitions)).values()})

    async def _find_all(self, connection: C, partitions: Sequence[Partition]) -> dict[Partition, Place]:
        """The places of those that there are. What is known may be forgotten while others are looked up: the answer is put together apart."""
        found = {p: place for p in partitions if (place := self._known.get(p)) is not None}
        if missing := [p for p in dict.fromkeys(partitions) if p not in found]:
            found |= await self._look_up(connection, missing)
        return found

    async def _look_up(self, connection: C, partitions: Sequence[Partition]) -> dict[Partition, Place]:
        by_tenant: dict[str, list[str]] = {}
        for partition in partitions:
            by_tenant.setdefault(partition.tenant, []).append(partition.scope)
        found: dict[Partition, Place] = {}
        for tenant, scopes in by_tenant.items():
            for scope, number, generation in await self._find(connection, tenant, scopes):
                found[Partition(tenant, scope)] = Place(number, generation)
        if len(self._known) > _MOST:
            self._known.clear()
        self._known |= found
        return found

    # -- what a dialect says ------------------------------------------------------------------------------------------

    @abstractmethod
    async def _find(self, connection: C, tenant: str, scopes: Sequence[str]) -> Sequence[tuple[str, int, int]]:
        """Scope, number and generation of those of the tenant's scopes that there are."""

    @abstractmethod
    async def _add(self, connection: C, partitions: Sequence[Partition]) -> None:
        """Make those that there are not, each at generation 0."""

    @abstractmethod
    async def _lock(self, connection: C, numbers: Sequence[int], exclusively: bool) -> Sequence[tuple[int, int]]:
        """Numbers and generations, locked in order: against raising, or against everyone."""

    @abstractmethod
    async def _raise(self, connection: C, partition: Partition, least: int, step: int) -> Place:
        """Raise the generation by the step, and to the least at least; make the partition where there is none."""

    @abstractmethod
    async def store(self, connection: C, generations: Mapping[int, int]) -> None:
        """Set the generations of partitions that this transaction has locked exclusively."""

    @abstractmethod
    async def _numbers(self, connection: C, tenant: str | None) -> list[int]:
        """The numbers of a tenant's partitions, or of all, ascending."""
