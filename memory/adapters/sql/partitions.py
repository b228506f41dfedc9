"""Partitions: their numbers, which there are, and those that nothing is left of."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from memory.adapters.sql.naming import IN_A_FILE, TableNames
from memory.adapters.sql.several import in_list, pad_to_power_of_two
from memory.ports.query import Everywhere, Tenant, Where
from memory.ports.query_validation import behind_prefix
from memory.ports.record import Partition

C = TypeVar("C")

LOOKED_AT = 500
"""At so many partitions, or twice as many, one look for those that are idle goes."""
_FIRST, _LAST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's number, and a generation that it has reached: it may have gone on
    since.
    """

    number: int
    generation: int


class Directory(ABC, Generic[C]):
    """The partitions of one database, on connections of type C. What is asked of it is
    the dialect's.
    """

    names: TableNames = IN_A_FILE
    _round: int | None = None
    """The number up to which partitions were looked at last, see `idle`."""

    async def numbers(self, connection: C, where: Where) -> list[int]:
        """The numbers of the asked partitions that have ever held anything, ascending."""
        if isinstance(where, Tenant):
            return await self._numbers(connection, where.tenant)
        if isinstance(where, Everywhere):
            return await self._numbers(connection, None)
        return sorted(
            {known.number for known in (await self._find_all(connection, where.partitions)).values()}
        )

    async def _find_all(
        self, connection: C, partitions: Iterable[Partition]
    ) -> dict[Partition, PartitionState]:
        """Those that there are."""
        return await self._look_up(connection, dict.fromkeys(partitions))

    async def _look_up(
        self, connection: C, partitions: Iterable[Partition]
    ) -> dict[Partition, PartitionState]:
        """Those that there are, as they are now."""
        by_tenant: dict[str, list[str]] = {}
        for partition in partitions:
            by_tenant.setdefault(partition.tenant, []).append(partition.scope)
        found: dict[Partition, PartitionState] = {}
        for tenant, scopes in by_tenant.items():
            for scope, number, generation in await self._find(connection, tenant, scopes):
                found[Partition(tenant, scope)] = PartitionState(number, generation)
        return found

    # -- which there are ---------------------------------------------------------------

    async def list_partitions(
        self,
        connection: C,
        tables: Sequence[str],
        where: Tenant | Everywhere,
        prefix: str,
        after: Partition | None,
        limit: int,
    ) -> list[tuple[Partition, int]]:
        """The first so many behind `after` that have a generation or a record, readable
        or not, in order. `tables` are those of all collections.
        """
        tests, values = [f"(p.generation > 0 OR {self._stands(tables)} = 1)"], list[int | str]()
        if isinstance(where, Tenant):
            tests, values = [*tests, "p.tenant = ?"], [*values, where.tenant]
        if prefix:
            tests, values = [*tests, "p.scope >= ?"], [*values, prefix]
        if (end := behind_prefix(prefix)) is not None:
            tests, values = [*tests, "p.scope < ?"], [*values, end]
        if (
            after is not None
        ):  # said twice: servers and SQLite look up the one or the other in the index of names
            tests += ["(p.tenant, p.scope) > (?, ?)", "(p.tenant > ? OR p.tenant = ? AND p.scope > ?)"]
            values += [after.tenant, after.scope, after.tenant, after.tenant, after.scope]
        rows = await self._list(
            connection, f"WHERE {' AND '.join(tests)} ORDER BY p.tenant, p.scope LIMIT {limit}", values
        )
        return [(partition, generation) for _, partition, generation in rows]

    # -- partitions that nothing is left of --------------------------------------------

    async def idle(self, connection: C, tables: Sequence[str], limit: int) -> list[tuple[Partition, int]]:
        """At most so many partitions in which nothing stands, with their generations.
        `tables` are those of all collections.

        It looks at some of the partitions, by their numbers, and at the next ones when
        it is asked again: it costs alike however many there are.
        """
        start = self._round if self._round is not None else await self._anywhere(connection)
        idle: list[tuple[int, Partition, int]] = []
        marked: set[Partition] | None = None
        for after, end in ((start, _LAST), (_FIRST, start)):
            far = await self._list(
                connection,
                f"WHERE p.number > ? AND p.number <= ? ORDER BY p.number LIMIT 1 OFFSET {LOOKED_AT - 1}",
                [after, end],
            )
            self._round = far[0][0] if far else end
            if empty := await self._empty(connection, tables, (after, self._round), LOOKED_AT):
                marked = await self._marked_partitions(connection, tables) if marked is None else marked
                idle += [one for one in empty if one[1] not in marked]
            if len(idle) > limit:
                self._round = idle[limit - 1][0]
            if far or len(idle) >= limit:
                break
        return [(partition, generation) for _, partition, generation in idle[:limit]]

    async def _anywhere(self, connection: C) -> int:
        """Some number: who is asked once in a process does not look at the same
        partitions as the one before it.
        """
        last = await self._list(connection, "ORDER BY p.number DESC LIMIT 1", [])
        return secrets.randbelow(last[0][0] + 1) if last else 0

    async def forget_idle(self, connection: C, tables: Sequence[str], idle: Mapping[Partition, int]) -> int:
        """Forget those of these partitions in which nothing stands and that have this
        generation. Within a transaction.

        Their rows are locked, so no record is being put there; the records are looked
        for before the marks, which they may become in between. Who puts one next makes
        the partition anew: what other processes know of its number stays true.
        """
        standing = {
            p: known
            for p, known in (await self._look_up(connection, idle)).items()
            if known.generation == idle[p]
        }
        numbers = sorted([known.number for known in standing.values()])
        if not numbers:
            return 0
        generations = dict(await self._lock(connection, numbers, True))
        empty = {
            partition
            for _, partition, _ in await self._empty(
                connection, tables, (_FIRST, _LAST), len(numbers), numbers
            )
        }
        empty -= await self._marked_partitions(connection, tables)
        gone = [p for p in empty if p in standing and generations.get(standing[p].number) == idle[p]]
        if gone:
            await self._remove(connection, [standing[p].number for p in gone])
        return len(gone)

    async def _empty(
        self,
        connection: C,
        tables: Sequence[str],
        within: tuple[int, int],
        most: int,
        among: Sequence[int] = (),
    ) -> Sequence[tuple[int, Partition, int]]:
        """Number, name and generation of partitions behind the one number up to the
        other, or of some of these, without records and quarantined rows, in order.
        """
        wanted = pad_to_power_of_two(among) if among else []
        these = [f"p.number IN {in_list(len(wanted))}"] if wanted else []
        which = f"WHERE {' AND '.join(['p.number > ?', 'p.number <= ?', *these, f'{self._stands(tables)} = 0'])} ORDER BY p.number LIMIT {most}"
        return await self._list(connection, which, [*within, *wanted])

    def _stands(self, tables: Sequence[str]) -> str:
        """1 where a row of the partition `p` stands in one of these tables or in the
        quarantine, else 0.

        They are looked at one after the other, and the first that has one ends it. A
        server that was free to choose would join all of them, and take its time to find
        in which order. Of each the first row in an index's order is asked for: for any
        row a server that counted when other partitions stood there goes through the
        whole table.
        """
        looks = [
            *((table, " ORDER BY t.created_at") for table in self._quoted_names(tables)),
            *((table, "") for table in self._quoted_names([self.names.quarantine])),
        ]
        found = [
            f"WHEN EXISTS (SELECT 1 FROM {table} AS t WHERE t.partition_no = p.number{first} LIMIT 1 OFFSET 0) THEN 1"  # noqa: S608
            for table, first in looks
        ]
        return f"CASE {' '.join(found)} ELSE 0 END"

    # -- what a dialect says -----------------------------------------------------------

    @abstractmethod
    async def _find(
        self, connection: C, tenant: str, scopes: Sequence[str]
    ) -> Sequence[tuple[str, int, int]]:
        """Scope, number and generation of those of the tenant's scopes that there are."""

    @abstractmethod
    async def _numbers(self, connection: C, tenant: str | None) -> list[int]:
        """The numbers of a tenant's partitions, or of all, ascending."""

    @abstractmethod
    def _quoted_names(self, tables: Sequence[str]) -> list[str]:
        """Tables as statements name them."""

    @abstractmethod
    async def _list(
        self, connection: C, which: str, values: Sequence[int | str]
    ) -> list[tuple[int, Partition, int]]:
        """Number, name and generation of those partitions p that this end of a
        statement asks for: its values are marked by '?'.
        """

    @abstractmethod
    async def _lock(
        self, connection: C, numbers: Sequence[int], exclusively: bool
    ) -> Sequence[tuple[int, int]]:
        """Numbers and generations, locked in order: against raising, or against
        everyone.
        """

    @abstractmethod
    async def _marked_partitions(self, connection: C, tables: Sequence[str]) -> set[Partition]:
        """The partitions of which there are marks."""

    @abstractmethod
    async def _remove(self, connection: C, numbers: Sequence[int]) -> None: ...
