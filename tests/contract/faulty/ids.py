"""Lying stores: ids, and the partitions they were made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.in_memory.state import State
from memory.domain.ids import is_id, partition_digest
from memory.ports.base import Question
from memory.ports.collections import Collection
from memory.ports.query import Page, Query
from memory.ports.record import Key, Partition, Stored
from memory.ports.writes import Put, RaiseGeneration, Write
from tests.contract.faulty.registry import faulty_adapter

ASKED = "test_what_no_store_asks_is_refused_by_name_and_its_neighbours_are_answered"


@faulty_adapter("test_a_record_has_an_id_of_its_partition_or_is_rejected")
class TakesIdsOfOtherPartitions(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        reason = super()._refusal(write)
        return "" if isinstance(write, Put) and reason.startswith("id: ") and is_id(write.key.id) else reason


@faulty_adapter("test_a_record_has_an_id_of_its_partition_or_is_rejected")
class AsksForTheTenantOfAnIdAlone(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        reason = super()._refusal(write)
        if (
            isinstance(write, Put)
            and reason.startswith("id: ")
            and is_id(write.key.id)
            and write.key.tenant == "acme"
        ):
            return ""
        return reason


@faulty_adapter("test_what_is_no_id_is_rejected_in_every_kind_of_write")
class TakesAnyTextForAnId(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        reason = super()._refusal(write)
        return (
            ""
            if not isinstance(write, Put | RaiseGeneration)
            and reason.startswith("id: ")
            and isinstance(write.key.id, str)
            else reason
        )


@faulty_adapter("test_without_an_order_records_come_by_id")
class RefusesDerivedIds(InMemoryStore):
    """What was not made now is not its own."""

    def _refusal(self, write: Write) -> str:
        late = isinstance(write, Put) and write.key.id > "01"
        return super()._refusal(write) or ("id: not made for this partition" if late else "")


@faulty_adapter("test_what_is_no_id_is_not_asked_for")
class FindsNothingUnderWhatIsNoId(InMemoryStore):
    async def get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        proper = [key for key in keys if is_id(key.id)]
        found = dict(zip(proper, await super().get(collection, proper), strict=True))
        return [found.get(key) for key in keys]


@faulty_adapter("test_an_id_under_another_tenant_finds_nothing_and_no_write_reaches_the_record")
class FindsAnIdUnderAnyTenant(InMemoryStore):
    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        whose = {standing.key.id: standing.key for standing in self.state.everything(collection.name)}
        return await super()._get(collection, [whose.get(key.id, key) for key in keys])


@faulty_adapter(ASKED)
class AsksForRangesOfIds(InMemoryStore):
    def _prepare_question(self, asked: Question, *, exactly: bool = False) -> Question:
        return (
            asked
            if asked.filter is not None and getattr(asked.filter, "field", "") == "id"
            else super()._prepare_question(asked, exactly=exactly)
        )


@faulty_adapter("test_without_an_order_records_come_by_id")
class SortsIdsByTheirLastHalf(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        return (
            page
            if query.order
            else replace(page, records=tuple(sorted(page.records, key=lambda r: r.key.id[19:])))
        )


class _OfDigests(State):
    def generation(self, partition: Partition) -> int:
        digest = partition_digest(partition.tenant, partition.scope)
        return max(
            (g for p, g in self.generations.items() if partition_digest(p.tenant, p.scope) == digest),
            default=0,
        )


@faulty_adapter("test_every_partition_has_a_generation_of_its_own[TakesADigestForThePartition-digests]")
class TakesADigestForThePartition(InMemoryStore):
    def __init__(self, *args: Any, state: State | None = None, **more: Any) -> None:
        super().__init__(*args, state=state or _OfDigests(), **more)
