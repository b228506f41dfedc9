"""Partitions: their permanent numbers, and their generations as last seen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeVar

from memory.adapters.sql.naming import TableNames
from memory.adapters.sql.partitions import Directory, PartitionState
from memory.adapters.sql.server.thresholds import ServerThresholds
from memory.ports.record import Partition
from memory.ports.storable import Unstorable

C = TypeVar("C")

TENANT_BYTES, SCOPE_BYTES = 1_000, 1_500
"""The room that an index of every server has for these names, in bytes of UTF-8."""


def check_partition(partition: Partition) -> None:
    """Refuse names that no index can hold.

    Raises:
        Unstorable: The tenant or scope is longer than `TENANT_BYTES` or `SCOPE_BYTES`.
    """
    check_tenant(partition.tenant)
    _check("scope", partition.scope, SCOPE_BYTES)


def check_tenant(tenant: str) -> None:
    """Refuse a name that no index can hold.

    Raises:
        Unstorable: The name is longer than `TENANT_BYTES`.
    """
    _check("tenant", tenant, TENANT_BYTES)


def _check(what: str, name: str, most: int) -> None:
    if 4 * len(name) > most and (size := len(name.encode("utf-8", "replace"))) > most:
        raise Unstorable(f"{what}: takes at most {most} bytes, not {size}; use a shorter name")


def number_of(partition: Partition, turn: int = 0) -> int:
    """Return a partition's number, which is always the same.

    So it is still right where the partition was forgotten and made anew.
    """
    name = [part.encode("utf-8", "surrogatepass") for part in (partition.tenant, partition.scope)]
    digest = blake2b(
        b"%d:%b%b" % (len(name[0]), name[0], name[1]), digest_size=8, salt=turn.to_bytes(8, "big")
    ).digest()
    return int.from_bytes(digest, "big") >> 1


class ServerDirectory(Directory[C]):
    """This process's knowledge of partitions.

    It is forgotten with every new connection: that may lead to a database that was
    restored from a backup.
    """

    def __init__(self, names: TableNames, thresholds: ServerThresholds) -> None:
        self.names = names
        self._thresholds = thresholds
        self._known: dict[Partition, PartitionState] = {}

    def forget(self) -> None:
        self._known.clear()

    def cached_partition(self, partition: Partition) -> PartitionState | None:
        return self._known.get(partition)

    async def look(self, connection: C, partition: Partition) -> PartitionState | None:
        """Return the current state of the partition, or None where there is none."""
        self._known.pop(partition, None)
        return (await self._look_up(connection, [partition])).get(partition)

    async def ensure(self, connection: C, partitions: Iterable[Partition]) -> dict[Partition, PartitionState]:
        """Return the numbers of these partitions, making missing ones."""
        wanted = sorted(set(partitions))
        found = await self._find_all(connection, wanted)
        turn = 0
        while missing := [p for p in wanted if p not in found]:
            await self._add(connection, [(p, number_of(p, turn)) for p in missing])
            found |= await self._look_up(connection, missing)
            turn += 1  # another partition has that number
        return found

    async def lock_generations(
        self, connection: C, wanted: dict[Partition, PartitionState], *, exclusively: bool
    ) -> dict[Partition, PartitionState]:
        """Return their generations, and lock them until the transaction ends."""
        if not wanted:
            return {}
        numbers = sorted({known.number for known in wanted.values()})
        generations = dict(await self._lock(connection, numbers, exclusively))
        locked = {
            p: PartitionState(known.number, generations[known.number])
            for p, known in wanted.items()
            if known.number in generations
        }
        for partition in wanted.keys() - locked.keys():
            self._known.pop(partition, None)
        self._known |= locked
        return locked

    async def raise_generation(self, connection: C, partition: Partition, to: int | None) -> int:
        """Raise the generation to at least `to`, or by one, and return it.

        Looking (`to` of 0) makes nothing.
        """
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
            self._known.pop(partition, None)  # it has been forgotten since

    async def _find_all(
        self, connection: C, partitions: Iterable[Partition]
    ) -> dict[Partition, PartitionState]:
        """Return the numbers of the existing ones among these partitions.

        The known numbers may be forgotten while others are looked up, so the answer is
        built separately.
        """
        wanted = list(dict.fromkeys(partitions))
        found = {p: known for p in wanted if (known := self._known.get(p)) is not None}
        if missing := [p for p in wanted if p not in found]:
            found |= await self._look_up(connection, missing)
        return found

    async def _look_up(
        self, connection: C, partitions: Iterable[Partition]
    ) -> dict[Partition, PartitionState]:
        found = await super()._look_up(connection, partitions)
        if len(self._known) > self._thresholds.partitions_known:
            self._known.clear()
        self._known |= found
        return found

    async def forget_idle(self, connection: C, tables: Sequence[str], idle: Mapping[Partition, int]) -> int:
        forgotten = await super().forget_idle(connection, tables, idle)
        for partition in idle:  # whether it is gone or not
            self._known.pop(partition, None)
        return forgotten

    # -- what a dialect says -----------------------------------------------------------

    @abstractmethod
    async def _add(self, connection: C, partitions: Sequence[tuple[Partition, int]]) -> None:
        """Make the missing ones among these partitions, each at generation 0.

        Each has this number, unless another partition has it.
        """

    @abstractmethod
    async def _raise(
        self, connection: C, partition: Partition, least: int, step: int
    ) -> PartitionState | None:
        """Raise the generation by `step`, and to at least `least`; None if absent."""

    @abstractmethod
    async def store(self, connection: C, generations: Mapping[int, int]) -> None:
        """Set the generations of partitions that this transaction has locked.

        The lock must be exclusive.
        """
