"""Lying stores written after those of the fourth reading, about the promises beside
theirs: erasures everywhere, sizes, departures, limits.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

from memory.adapters.in_memory import InMemoryStore
from memory.ports.query import HOMES, Count, Everywhere, Hit, Partitions, Query, Search, Tenant
from memory.ports.record import Key, Partition, Record, Role
from memory.ports.writes import Annotate, Outcome, Put, RaiseGeneration, Release, Write
from tests.contract.faulty.registry import PerWrite, faulty_adapter
from tests.contract.harnesses import InMemoryServer

WHEREVER = "test_wherever_it_is_asked_a_count_and_an_erasure_keep_to_filter_and_roles_as_a_query_does"
BARE = "test_what_is_erased_leaves_nothing_but_its_id_version_and_end_in_every_collection"
SIZED = "test_every_part_of_a_records_content_and_what_it_owes_count_towards_its_size"
HITS = "test_hits_are_the_same_with_and_without_content_under_roles_filters_places_and_limits"
REPEATED = "test_bookkeeping_departures_and_generations_repeated_leave_what_they_left_the_first_time"

# -- erasures --------------------------------------------------------------------------


@faulty_adapter(WHEREVER)
class ErasesOneTenantOfAll(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        if isinstance(query.where, Everywhere):
            matching, corrupt = self._find_matches(query)
            tenants = sorted({s.key.tenant for s in matching} | {key.tenant for key in corrupt})
            query = replace(query, where=Tenant(tenants[0] if tenants else ""))
        return await super()._delete_matching(query, version, discard_at, carry)


@faulty_adapter(WHEREVER)
class ErasesEveryRoleOfATenant(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        query = replace(query, roles=frozenset(Role)) if isinstance(query.where, Tenant) else query
        return await super()._delete_matching(query, version, discard_at, carry)


@faulty_adapter(WHEREVER)
class CountsEveryRoleOfATenant(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        return await super()._count(
            query if isinstance(query.where, Partitions) else replace(query, roles=frozenset(Role))
        )


@faulty_adapter(BARE)
class KeepsWhatTheErasedOwed(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        owed = {s.key: s.owed for s in self._find_matches(query)[0] if isinstance(s, Record)}
        erased = await super()._delete_matching(query, version, discard_at, carry)
        for key, steps in owed.items():
            stands = self.state.fetch_stored(query.collection.name, key)
            assert stands is not None
            self.state.place(query.collection.name, key, replace(stands, owed=steps))
        return erased


@faulty_adapter(BARE)
class ErasesOthersThanEntriesForGood(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        return await super()._delete_matching(
            query, version, discard_at if query.collection.name == "samples" else None, carry
        )


@faulty_adapter("test_erasure_reaches_a_corrupt_record_in_every_collection", InMemoryServer)
class ErasesDamageOfEntriesAlone(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        name = query.collection.name
        spared = (
            {}
            if name == "samples"
            else {key: self.state.fetch_stored(name, key) for key in self._find_matches(query)[1]}
        )
        erased = await super()._delete_matching(query, version, discard_at, carry)
        for key, stood in spared.items():
            self.state.place(name, key, stood)
            self.state.damage(name, key)
        return erased


@faulty_adapter("test_an_erasure_cut_off_leaves_each_record_whole_or_deleted_and_repeated_takes_the_rest")
class ErasesFromItsIndexesFirst(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        for standing in self._find_matches(query)[0]:
            if isinstance(standing, Record):
                self.state.place(
                    query.collection.name, standing.key, replace(standing, texts={}, vector=None)
                )
        await asyncio.sleep(0)
        return await super()._delete_matching(query, version, discard_at, carry)


@faulty_adapter("test_an_erasure_cut_off_leaves_each_record_whole_or_deleted_and_repeated_takes_the_rest")
class DeletesFirstAndDatesAfterwards(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        keys = [s.key for s in self._find_matches(query)[0]]
        erased = await super()._delete_matching(query, version, None, carry)
        await asyncio.sleep(0)
        for key in keys:
            stands = self.state.fetch_stored(query.collection.name, key)
            if stands is not None and not isinstance(stands, Record):
                self.state.place(query.collection.name, key, replace(stands, discard_at=discard_at))
        return erased


# -- writes ----------------------------------------------------------------------------


@faulty_adapter("test_what_leaves_owes_what_its_departure_says_and_nothing_of_what_it_owed_before")
class KeepsWhatTheReleasedOwed(PerWrite):
    def lie(self, write: Write) -> Outcome:
        before = (
            self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Release) else None
        )
        outcome = super().lie(write)
        if isinstance(write, Release) and isinstance(before, Record) and outcome.applied:
            after = self.state.fetch_stored(write.collection.name, write.key)
            assert after is not None
            self.state.place(
                write.collection.name, write.key, replace(after, owed=(*before.owed, *after.owed))
            )
        return outcome


@faulty_adapter("test_an_annotation_keeps_all_other_bookkeeping")
class TakesTheEndOfATombstoneForARecords(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        stands = (
            self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Annotate) else None
        )
        if (
            isinstance(write, Annotate)
            and write.discard_at
            and outcome.applied
            and isinstance(stands, Record)
        ):
            self.state.place(write.collection.name, write.key, replace(stands, expires_at=write.discard_at))
        return outcome


@faulty_adapter(REPEATED)
class RaisesAgainToTheSameNumber(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if (
            isinstance(write, RaiseGeneration)
            and write.to
            and write.to == self.state.generation(write.partition)
        ):
            write = replace(write, to=write.to + 1)
        return super().lie(write)


@faulty_adapter(REPEATED)
class CountsPutsAsAccesses(PerWrite):
    def lie(self, write: Write) -> Outcome:
        before = self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Put) else None
        outcome = super().lie(write)
        if (
            isinstance(write, Put)
            and outcome.applied
            and isinstance(before, Record)
            and before.version == write.record.version
        ):
            after = self.state.fetch_stored(write.collection.name, write.key)
            assert isinstance(after, Record)
            self.state.place(write.collection.name, write.key, replace(after, accesses=before.accesses + 1))
        return outcome


@faulty_adapter(SIZED, InMemoryServer)
class MeasuresBodiesAlone(InMemoryStore):
    def _record_refusal(self, record: Record) -> str:
        return super()._record_refusal(replace(record, fields={}, texts={}))


@faulty_adapter(SIZED, InMemoryServer)
class MeasuresNoVectors(InMemoryStore):
    def _record_refusal(self, record: Record) -> str:
        short = record.vector is not None and len(record.vector) // 4 <= (
            self.capabilities.max_vector_dims or 0
        )
        return super()._record_refusal(replace(record, vector=None) if short else record)


# -- questions -------------------------------------------------------------------------


@faulty_adapter(HITS)
class FindsHomesBesideTheAskedRolesWithoutContent(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        return await super()._search(search if search.select else replace(search, roles=search.roles | HOMES))


@faulty_adapter(HITS)
class LimitsEachPartition(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        hits, taken = [], dict[Partition, list[Key]]()
        for hit in await super()._search(replace(search, limit=10**9)):
            of_this = taken.setdefault(hit.head.partition, [])
            if len(of_this) < search.limit:
                of_this.append(hit.head.key)
                hits.append(hit)
        return hits
