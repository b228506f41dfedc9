"""Partitions: the numbers they keep for good, and their generations as last seen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, TypeVar

from memory.adapters.sql.server.thresholds import ServerThresholds
from memory.ports.query import Everywhere, Tenant, Where
from memory.ports.questions import behind_prefix
from memory.ports.record import Partition
from memory.ports.storable import Unstorable

C = TypeVar("C")

TENANT_BYTES, SCOPE_BYTES = 1_000, 1_500
"""What an index of every server has room for, in UTF-8."""


@dataclass(frozen=True, slots=True)
class Known:
    """A partition's number, and a generation that it has reached: it may have gone on since."""

    number: int
    generation: int


def check_partition(partition: Partition) -> None:
    """Refuse names that no index can hold. Raises `Unstorable`."""
    check_tenant(partition.tenant)
    _check("scope", partition.scope, SCOPE_BYTES)


def check_tenant(tenant: str) -> None:
    """Refuse a name that no index can hold. Raises `Unstorable`."""
    _check("tenant", tenant, TENANT_BYTES)


def _check(what: str, name: str, most: int) -> None:
    if 4 * len(name) > most and (size := len(name.encode("utf-8", "replace"))) > most:
        raise Unstorable(f"{what}: takes at most {most} bytes, not {size}")


def number_of(partition: Partition, turn: int = 0) -> int:
    """A partition's number: always the same, so that it is still right where the partition was forgotten and made anew."""
    name = [part.encode("utf-8", "surrogatepass") for part in (partition.tenant, partition.scope)]
    digest = blake2b(b"%d:%b%b" % (len(name[0]), name[0], name[1]), digest_size=8, salt=turn.to_bytes(8, "big")).digest()
    return int.from_bytes(digest, "big") >> 1


class Directory(ABC, Generic[C]):
    """What this process knows of partitions. Forgotten with every new connection: behind it may be a database brought back from a backup.

    What is asked of the database is the dialect's.
    """

    def __init__(self, thresholds: ServerThresholds) -> None:
        self._thresholds = thresholds
        self._known: dict[Partition, Known] = {}

    def forget(self) -> None:
        self._known.clear()

    def known(self, partition: Partition) -> Known | None:
        return self._known.get(partition)

    async def look(self, connection: C, partition: Partition) -> Known | None:
        """The partition as it is now; None where there is none."""
        self._known.pop(partition, None)
        return (await self._look_up(connection, [partition])).get(partition)

    async def ensure(self, connection: C, partitions: Iterable[Partition]) -> dict[Partition, Known]:
        """The numbers of these partitions; made where there is none yet."""
        wanted = sorted(set(partitions))
        found = await self._find_all(connection, wanted)
        turn = 0
        while missing := [p for p in wanted if p not in found]:
            await self._add(connection, [(p, number_of(p, turn)) for p in missing])
            found |= await self._look_up(connection, missing)
            turn += 1  # another partition has that number
        return found

    async def locked(self, connection: C, wanted: dict[Partition, Known], *, exclusively: bool) -> dict[Partition, Known]:
        """The generations they have, which nobody raises until the transaction ends."""
        if not wanted:
            return {}
        numbers = sorted({known.number for known in wanted.values()})
        generations = dict(await self._lock(connection, numbers, exclusively))
        locked = {p: Known(known.number, generations[known.number]) for p, known in wanted.items() if known.number in generations}
        for partition in wanted.keys() - locked.keys():
            self._known.pop(partition, None)
        self._known |= locked
        return locked

    async def raise_generation(self, connection: C, partition: Partition, to: int | None) -> int:
        """The generation after raising it to at least `to`, or by one. Looking (`to` of 0) makes nothing."""
        if to == 0:
            known = await self.look(connection, partition)
            return 0 if known is None else known.generation
        least, step = (1, 1) if to is None else (to, 0)
        while True:
            await self.ensure(connection, [partition])
            known = await self._raise(connection, partition, least, step)
            if known is not None:
                self._known[partition] = known
                return known.generation
            self._known.pop(partition, None)  # it was forgotten since

    async def numbers(self, connection: C, where: Where) -> list[int]:
        """The numbers of the asked partitions that have ever held anything, ascending."""
        if isinstance(where, Tenant):
            return await self._numbers(connection, where.tenant)
        if isinstance(where, Everywhere):
            return await self._numbers(connection, None)
        return sorted({known.number for known in (await self._find_all(connection, where.partitions)).values()})

    async def _find_all(self, connection: C, partitions: Sequence[Partition]) -> dict[Partition, Known]:
        """The numbers of those that there are. What is known may be forgotten while others are looked up: the answer is put together apart."""
        found = {p: known for p in partitions if (known := self._known.get(p)) is not None}
        if missing := [p for p in dict.fromkeys(partitions) if p not in found]:
            found |= await self._look_up(connection, missing)
        return found

    async def _look_up(self, connection: C, partitions: Sequence[Partition]) -> dict[Partition, Known]:
        by_tenant: dict[str, list[str]] = {}
        for partition in partitions:
            by_tenant.setdefault(partition.tenant, []).append(partition.scope)
        found: dict[Partition, Known] = {}
        for tenant, scopes in by_tenant.items():
            for scope, number, generation in await self._find(connection, tenant, scopes):
                found[Partition(tenant, scope)] = Known(number, generation)
        if len(self._known) > self._thresholds.partitions_known:
            self._known.clear()
        self._known |= found
        return found

    # -- what a dialect says ------------------------------------------------------------------------------------------

    @abstractmethod
    async def _find(self, connection: C, tenant: str, scopes: Sequence[str]) -> Sequence[tuple[str, int, int]]:
        """Scope, number and generation of those of the tenant's scopes that there are."""

    @abstractmethod
    async def _add(self, connection: C, partitions: Sequence[tuple[Partition, int]]) -> None:
        """Make those that there are not, each at generation 0 and under this number, unless another partition has that."""

    @abstractmethod
    async def _lock(self, connection: C, numbers: Sequence[int], exclusively: bool) -> Sequence[tuple[int, int]]:
        """Numbers and generations, locked in order: against raising, or against everyone."""

    @abstractmethod
    async def _raise(self, connection: C, partition: Partition, least: int, step: int) -> Known | None:
        """Raise the generation by the step, and to the least at least; None where there is no such partition."""

    @abstractmethod
    async def store(self, connection: C, generations: Mapping[int, int]) -> None:
        """Set the generations of partitions that this transaction has locked exclusively."""

    # -- which there are ----------------------------------------------------------------------------------------------

    async def listed(
        self, connection: C, tables: Sequence[str], where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> list[tuple[Partition, int]]:
        """The first so many behind `after` that have a generation or a record, readable or not, in order. `tables` are those of all collections."""
        holding = [f"EXISTS (SELECT 1 FROM {table} AS t WHERE t.partition_no = p.number)" for table in self._named([*tables, "memory_quarantine"])]  # noqa: S608
        tests, values = [f"(p.generation > 0 OR {' OR '.join(holding)})"], list[str]()
        if isinstance(where, Tenant):
            tests, values = [*tests, "p.tenant = ?"], [*values, where.tenant]
        if prefix:
            tests, values = [*tests, "p.scope >= ?"], [*values, prefix]
        if (end := behind_prefix(prefix)) is not None:
            tests, values = [*tests, "p.scope < ?"], [*values, end]
        if after is not None:
            tests, values = [*tests, "(p.tenant > ? OR p.tenant = ? AND p.scope > ?)"], [*values, after.tenant, after.tenant, after.scope]
        return await self._list(connection, f"WHERE {' AND '.join(tests)} ORDER BY p.tenant, p.scope LIMIT {limit}", values)

    @abstractmethod
    def _named(self, tables: Sequence[str]) -> list[str]:
        """Tables as statements name them."""

    @abstractmethod
    async def _list(self, connection: C, which: str, values: Sequence[str]) -> list[tuple[Partition, int]]:
        """Those partitions p, with their generations, that this end of a statement asks for: its values are marked by '?'."""

    # -- partitions that nothing is left of ---------------------------------------------------------------------------

    async def idle(self, connection: C, tables: Sequence[str], limit: int) -> list[tuple[Partition, int]]:
        """At most so many partitions in which nothing stands, with their generations. `tables` are those of all collections."""
        found: list[tuple[Partition, int]] = []
        marked: set[Partition] | None = None
        after = -(2**63)
        while len(found) < limit and (rows := await self._empty(connection, tables, after, limit)):
            after = rows[-1][0]
            marked = await self._marked(connection, tables) if marked is None else marked
            found += [(partition, generation) for _, partition, generation in rows if partition not in marked]
        return found[:limit]

    async def forget_idle(self, connection: C, tables: Sequence[str], idle: Mapping[Partition, int]) -> int:
        """Forget those of these partitions in which nothing stands and that have this generation. Within a transaction.

        Their rows are locked, so no record is being put there; the records are looked for before the marks, which they may become in between.
        Who puts one next makes the partition anew, and under the number it had: what other processes know of it stays true.
        """
        standing = {p: known for p, known in (await self._look_up(connection, list(idle))).items() if known.generation == idle[p]}
        numbers = sorted([known.number for known in standing.values()])
        if not numbers:
            return 0
        generations = dict(await self._lock(connection, numbers, True))
        empty = {partition for _, partition, _ in await self._empty(connection, tables, -(2**63), len(numbers), numbers)}
        empty -= await self._marked(connection, tables)
        gone = [p for p in empty if p in standing and generations.get(standing[p].number) == idle[p]]
        if gone:
            await self._remove(connection, [standing[p].number for p in gone])
        for partition in gone:
            self._known.pop(partition, None)
        return len(gone)

    @abstractmethod
    async def _empty(
        self, connection: C, tables: Sequence[str], after: int, most: int, among: Sequence[int] | None = None
    ) -> Sequence[tuple[int, Partition, int]]:
        """Number, name and generation of partitions behind that number without records and rows set aside, in order."""

    @abstractmethod
    async def _marked(self, connection: C, tables: Sequence[str]) -> set[Partition]:
        """The partitions of which there are marks."""

    @abstractmethod
    async def _remove(self, connection: C, numbers: Sequence[int]) -> None: ...

    @abstractmethod
    async def _numbers(self, connection: C, tenant: str | None) -> list[int]:
        """The numbers of a tenant's partitions, or of all, ascending."""
