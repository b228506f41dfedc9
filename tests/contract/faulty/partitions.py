"""Lying stores: which partitions there are."""

from __future__ import annotations

from memory.adapters.in_memory import InMemoryStore
from memory.ports.query import Everywhere, Tenant
from memory.ports.query_evaluation import first_partitions
from memory.ports.record import Mark, Partition, Role
from tests.contract.faulty.registry import faulty_adapter
from tests.contract.harnesses import InMemoryServer

THERE = "test_a_partition_is_there_while_a_record_or_a_generation_is"
EVERY_WRITE = "test_what_every_kind_of_write_leaves_is_seen"
ALIKE = "test_partitions_that_are_alike_are_each_named_once"
PREFIX = "test_a_prefix_is_of_scopes_character_by_character"
PAGES = "test_pages_lose_and_repeat_nothing_while_partitions_come_and_go"

Found = list[tuple[Partition, int]]
_ALL = 10**9


class _Lists(InMemoryStore):
    """Lies about all there are."""

    def listed(self) -> Found:
        return list(self.state.partitions())

    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> Found:
        return first_partitions(self.listed(), where, prefix, after, limit)


@faulty_adapter(THERE)
class NamesWhatWasEmptied(_Lists):
    def listed(self) -> Found:
        return super().listed() + [
            (p, self.state.generation(p)) for live in self.state.by_partition.values() for p in live
        ]


@faulty_adapter(THERE)
class NamesNoErasedPartition(_Lists):
    def listed(self) -> Found:
        return [
            (p, g)
            for p, g in super().listed()
            if any(live.get(p) for live in self.state.by_partition.values())
        ]


@faulty_adapter(THERE)
class NamesPartitionsOfHomesAlone(_Lists):
    def listed(self) -> Found:
        homes = {
            r.partition
            for name in self.state.by_partition
            for r in self.state.live(name, Everywhere())
            if r.role is Role.HOME
        }
        return [(p, g) for p, g in super().listed() if p in homes or g]


@faulty_adapter(THERE)
class NamesPartitionsOfOneCollection(_Lists):
    def listed(self) -> Found:
        there = {r.partition for r in self.state.live("samples", Everywhere())}
        return [(p, g) for p, g in super().listed() if p in there or g]


@faulty_adapter(THERE)
class TellsNoGeneration(_Lists):
    def listed(self) -> Found:
        return [(p, 0) for p, _ in super().listed()]


@faulty_adapter(EVERY_WRITE)
class NamesPartitionsOfMarks(_Lists):
    def listed(self) -> Found:
        marks = [s for name in self.state.slots for s in self.state.everything(name) if isinstance(s, Mark)]
        return super().listed() + [(Partition(s.key.tenant, s.scope), 0) for s in marks]


@faulty_adapter(ALIKE)
class NamesTwinsOnce(_Lists):
    """Whatever their case."""

    def listed(self) -> Found:
        return list({(p.tenant, p.scope.lower()): (p, g) for p, g in super().listed()}.values())


@faulty_adapter(ALIKE)
class NamesWhatATenantsNameBegins(_Lists):
    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> Found:
        found = first_partitions(self.listed(), Everywhere(), prefix, after, _ALL)
        return [
            one for one in found if isinstance(where, Everywhere) or one[0].tenant.startswith(where.tenant)
        ][:limit]


@faulty_adapter(ALIKE)
class ContinuesByTheScopeAlone(_Lists):
    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> Found:
        found = first_partitions(self.listed(), where, prefix, None, _ALL)
        return [one for one in found if after is None or one[0].scope > after.scope][:limit]


@faulty_adapter(THERE)
class OrdersByTheScope(_Lists):
    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> Found:
        found = sorted(
            await super()._partitions(where, prefix, None, _ALL),
            key=lambda one: (one[0].scope, one[0].tenant),
        )
        return [
            one
            for one in found
            if after is None or (one[0].scope, one[0].tenant) > (after.scope, after.tenant)
        ][:limit]


@faulty_adapter(PREFIX)
class TakesPrefixesAsPeopleDo(_Lists):
    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> Found:
        found = await super()._partitions(where, "", after, _ALL)
        return [one for one in found if one[0].scope.lower().startswith(prefix.lower())][:limit]


@faulty_adapter(PREFIX)
class EndsPrefixesWithTheBasicPlane(_Lists):
    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> Found:
        found = await super()._partitions(where, prefix, after, _ALL)
        return [one for one in found if not prefix or one[0].scope <= prefix + "\uffff"][:limit]


@faulty_adapter(PAGES)
class CountsHowFarItIs(_Lists):
    """An offset instead of a place."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        self._walked: dict[Partition, int] = {}

    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> Found:
        start = 0 if after is None else self._walked.get(after, 0)
        found = (await super()._partitions(where, prefix, None, _ALL))[start : start + limit]
        if len(found) == limit:
            self._walked[found[-2][0]] = start + limit - 1
        return found


@faulty_adapter("test_a_partition_of_which_nothing_can_be_read_is_named", InMemoryServer)
class NamesNothingThatCannotBeRead(_Lists):
    def listed(self) -> Found:
        sound = {
            r.partition
            for name in self.state.by_partition
            for r in self.state.live(name, Everywhere())
            if not self.state.is_damaged(name, r.key)
        }
        return [(p, g) for p, g in super().listed() if p in sound or g]
