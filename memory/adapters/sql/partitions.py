"""Partitions: their numbers, the existing ones, and the idle ones."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from memory.adapters.sql.naming import IN_A_FILE, TableNames
from memory.adapters.sql.several import in_list, pad_to_power_of_two
from memory.ports.query import Everywhere, Tenant, Under, Where
from memory.ports.query_validation import behind_prefix
from memory.ports.record import Partition

C = TypeVar("C")

LOOKED_AT = 500
"""The number of partitions that one search for idle ones covers, up to twice that."""
_FIRST, _LAST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's number and a generation that it has reached.

    The generation may have advanced since.
    """

    number: int
    generation: int


class Directory(ABC, Generic[C]):
    """The partitions of one database, on connections of type C.

    A dialect implements its queries.
    """

    names: TableNames = IN_A_FILE
    _round: int | None = None
    """The number up to which partitions were looked at last, see `idle`."""

    async def numbers(self, connection: C, where: Where) -> list[int]:
        """Return the numbers of the partitions that ever held anything, ascending."""
        if isinstance(where, Tenant):
            return sorted(await self._numbers(connection, "WHERE p.tenant = ?", [where.tenant]))
        if isinstance(where, Everywhere):
            return sorted(await self._numbers(connection, "", []))
        if isinstance(where, Under):
            return await self._numbers_under(connection, where)
        return sorted(
            {known.number for known in (await self._find_all(connection, where.partitions)).values()}
        )

    async def _numbers_under(self, connection: C, where: Under) -> list[int]:
        named = [Partition(where.tenant, scope) for scope in where.scopes]
        numbers = {known.number for known in (await self._find_all(connection, named)).values()}
        ranges = " OR ".join(["p.scope >= ? AND p.scope < ?"] * len(where.prefixes))
        bounds = [bound for prefix in where.prefixes for bound in (prefix, behind_prefix(prefix) or "")]
        found = await self._numbers(connection, f"WHERE p.tenant = ? AND ({ranges})", [where.tenant, *bounds])
        return sorted(numbers.union(found))

    async def _find_all(
        self, connection: C, partitions: Iterable[Partition]
    ) -> dict[Partition, PartitionState]:
        """Return the existing ones among these partitions."""
        return await self._look_up(connection, dict.fromkeys(partitions))

    async def _look_up(
        self, connection: C, partitions: Iterable[Partition]
    ) -> dict[Partition, PartitionState]:
        """Return the existing ones among these partitions, in their current state."""
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
        """List partitions behind `after` that have a generation or a record, in order.

        Unreadable records count too. `tables` are those of all collections.
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
        ):  # in both forms: servers use one for a lookup in the index of names, SQLite the other
            tests += ["(p.tenant, p.scope) > (?, ?)", "(p.tenant > ? OR p.tenant = ? AND p.scope > ?)"]
            values += [after.tenant, after.scope, after.tenant, after.tenant, after.scope]
        rows = await self._list(
            connection, f"WHERE {' AND '.join(tests)} ORDER BY p.tenant, p.scope LIMIT {limit}", values
        )
        return [(partition, generation) for _, partition, generation in rows]

    # -- partitions that nothing is left of --------------------------------------------

    async def idle(self, connection: C, tables: Sequence[str], limit: int) -> list[tuple[Partition, int]]:
        """Return at most `limit` partitions without rows, with their generations.

        `tables` are those of all collections. Each call looks at some of the partitions
        by their numbers, and the next call at the next ones. So the cost does not
        depend on the number of partitions.
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
        """Return some number to start from.

        So a process that asks only once looks at other partitions than the one before
        it.
        """
        last = await self._list(connection, "ORDER BY p.number DESC LIMIT 1", [])
        return secrets.randbelow(last[0][0] + 1) if last else 0

    async def forget_idle(self, connection: C, tables: Sequence[str], idle: Mapping[Partition, int]) -> int:
        """Forget those of these partitions that are empty and have this generation.

        Call it within a transaction. It locks the rows of the partitions, so no record
        is being put there. It checks the records before the marks, as a record may
        become a mark in between. The next write makes the partition anew, so its number
        as known to other processes stays true.
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
        """Return empty partitions in order: number, name and generation.

        They lie behind the one number up to the other, or among `among`. They have
        neither records nor quarantined rows.
        """
        wanted = pad_to_power_of_two(among) if among else []
        these = [f"p.number IN {in_list(len(wanted))}"] if wanted else []
        which = (
            f"WHERE {' AND '.join(['p.number > ?', 'p.number <= ?', *these, f'{self._stands(tables)} = 0'])}"
            f" ORDER BY p.number LIMIT {most}"
        )
        return await self._list(connection, which, [*within, *wanted])

    def _stands(self, tables: Sequence[str]) -> str:
        """Return an expression: 1 if the partition `p` has a row in a table, else 0.

        The quarantine counts too. The tables are checked one after the other, until the
        first that has a row. A server that was free to choose would join all of them,
        and spend time on the join order. The expression asks for the first row in an
        index's order. For any row, a server that counted when other partitions existed
        scans the whole table.
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
        """Return scope, number and generation of the tenant's existing scopes."""

    @abstractmethod
    async def _numbers(self, connection: C, which: str, values: Sequence[str]) -> list[int]:
        """Return the numbers of the partitions `p` that `which` selects."""

    @abstractmethod
    def _quoted_names(self, tables: Sequence[str]) -> list[str]:
        """Return the tables' names as statements write them."""

    @abstractmethod
    async def _list(
        self, connection: C, which: str, values: Sequence[int | str]
    ) -> list[tuple[int, Partition, int]]:
        """Return number, name and generation of the partitions p that `which` selects.

        `which` is the end of a statement, with '?' for each value.
        """

    @abstractmethod
    async def _lock(
        self, connection: C, numbers: Sequence[int], exclusively: bool
    ) -> Sequence[tuple[int, int]]:
        """Lock partitions; return their numbers and generations.

        The lock keeps others from raising generations, or is exclusive.
        """

    @abstractmethod
    async def _marked_partitions(self, connection: C, tables: Sequence[str]) -> set[Partition]:
        """Return the partitions that have marks."""

    @abstractmethod
    async def _remove(self, connection: C, numbers: Sequence[int]) -> None: ...
