"""Faulty adapters that were written when the tests were done, to learn whether others of their
kinds fail too. All but one did; its test was mended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.ports.collections import Collection
from memory.ports.query import Count, Hit, Page, Query, RowType, Search, Tenant
from memory.ports.record import Key, Mark, Partition, PendingStep, Record, Role, Stored, Tombstone
from memory.ports.writes import (
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Outcome,
    Purge,
    Put,
    RaiseGeneration,
    Release,
    Status,
    Write,
)
from tests.contract.faulty.registry import PerWrite, faulty_adapter, hit_of
from tests.contract.harnesses import InMemoryServer


@faulty_adapter("test_everything_stands_after_a_good_close_as_it_stood_before", InMemoryServer)
class ForgetsVersionsOfMarksWhenClosed(InMemoryStore):
    async def _close(self) -> None:
        for s in list(self.state.everything("samples")):
            if isinstance(s, Mark):
                self.state.place("samples", s.key, replace(s, version=s.version + 1))


@faulty_adapter("test_everything_stands_after_a_good_close_as_it_stood_before", InMemoryServer)
class KeepsOnlyTheFirstStepWhenClosed(InMemoryStore):
    async def _close(self) -> None:
        for s in list(self.state.everything("samples")):
            if len(s.owed) > 1:
                self.state.place("samples", s.key, replace(s, owed=s.owed[:1]))


@faulty_adapter("test_strange_but_lawful_contents_come_back_exactly")
class TrimsTiersAtNul(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Release):
            write = replace(write, to=write.to.replace("\x00", ""))
        return super().lie(write)


@faulty_adapter("test_json_comes_back_as_the_same_text_wherever_it_stands")
class TakesEmptyListsForEmptyObjects(PerWrite):
    """As PHP does."""

    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put):
            body = {k: {} if v == [] else v for k, v in write.record.body.items()}
            write = replace(write, record=replace(write.record, body=body))
        return super().lie(write)


@faulty_adapter("test_json_comes_back_as_the_same_text_wherever_it_stands")
class DropsStepsThatAreAlike(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put):
            distinct: list[PendingStep] = []
            for step in write.record.owed:
                if step.step not in [d.step for d in distinct]:
                    distinct.append(step)
            write = replace(write, record=replace(write.record, owed=tuple(distinct)))
        return super().lie(write)


@faulty_adapter("test_answers_over_ten_thousand_records_are_whole")
class CountsWithinItsFirstPage(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        counted = await super()._count(query)
        return (
            replace(counted, records=min(counted.records, 1_000))
            if query.filter is None and isinstance(query.where, Tenant)
            else counted
        )


@faulty_adapter("test_nothing_is_forgotten_before_its_time", InMemoryServer)
class ForgetsInLocalTime(InMemoryStore):
    def _forget(self) -> None:
        self.state.forget(self._clock() + timedelta(hours=2))


@faulty_adapter("test_an_end_that_is_moved_is_the_end_that_counts", InMemoryServer)
class KeepsTheFirstEnd(InMemoryStore):
    """Sets an expiry with a put and never takes it away."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ends: dict[Key, datetime] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        for write in writes:
            if isinstance(write, Put) and write.record.expires_at is not None:
                self._ends[write.key] = write.record.expires_at
        return await super()._apply(writes, together)

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        now = datetime.now(UTC)
        found = await super()._get(collection, keys)
        return [
            None
            if isinstance(s, Record)
            and s.role is Role.CACHED
            and self._ends.get(s.key, now) < now
            and not s.owed
            else s
            for s in found
        ]


@faulty_adapter("test_a_write_sees_a_generation_raised_earlier_in_its_batch", InMemoryServer)
class ChecksGenerationsOncePerBatch(PerWrite):
    """Of a batch with several records the generation of the first is checked."""

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        puts = [w for w in writes if isinstance(w, Put)]
        if together or len(puts) < 2 or puts[0].record.generation is not None:
            return await super()._apply(writes, together)
        return await super()._apply(
            [
                replace(w, record=replace(w.record, generation=None)) if isinstance(w, Put) else w
                for w in writes
            ],
            together,
        )


@faulty_adapter("test_a_client_sees_all_that_another_did_a_moment_ago", InMemoryServer)
class CachesItsHits(InMemoryStore):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hits: dict[str, list[Hit]] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        self._hits.clear()
        return await super()._apply(writes, together)

    async def _search(self, search: Search) -> list[Hit]:
        return self._hits.setdefault(repr(search), await super()._search(search))


@faulty_adapter("test_deleting_under_every_kind_of_filter_deletes_what_a_query_finds")
class ErasesOnlyWhatIsHome(InMemoryStore):
    """And takes what owes for busy."""

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        owing = [s for s in self.state.everything(query.collection.name) if s.owed]
        count = await super()._delete_matching(query, version, discard_at, carry)
        for s in owing:
            self.state.place(query.collection.name, s.key, s)
        return count


@faulty_adapter("test_a_put_meets_what_stands_there_as_the_table_says")
class TakesTheNewestForNewer(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put) and isinstance(write.when, Newer):
            stands = self.state.fetch_stored(write.collection.name, write.key)
            if isinstance(stands, Mark) and stands.version == write.record.version:
                write = replace(write, record=write.record, when=AtVersion(stands.version))
                self.state.place(write.collection.name, write.key, None)
                write = replace(write, when=Newer())
        return super().lie(write)


@faulty_adapter("test_strange_but_lawful_contents_come_back_exactly")
class ForgetsTheStepsSettledDeep(PerWrite):
    """Cannot settle what it finds hard to compare."""

    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Annotate):
            write = replace(write, settle=tuple(s for s in write.settle if "\x00" not in s))
        return super().lie(write)


@faulty_adapter("test_nothing_that_was_handed_in_leads_into_the_store")
class KeepsTheNotesItWasHanded(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        stands = (
            self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Delete) else None
        )
        if isinstance(write, Delete) and isinstance(stands, Tombstone) and outcome.applied:
            self.state.place(write.collection.name, write.key, replace(stands, note=write.note))
        return outcome


@faulty_adapter("test_what_is_found_follows_every_kind_of_departure_and_change_of_role")
class SearchesTheReleased(InMemoryStore):
    _gone: tuple[Record, ...] = ()

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        for write in writes:
            stands = self.state.fetch_stored("samples", write.key) if isinstance(write, Release) else None
            self._gone += (stands,) if isinstance(stands, Record) and stands.vector else ()
        return await super()._apply(writes, together)

    async def _search(self, search: Search) -> list[Hit]:
        return [
            *await super()._search(search),
            *(hit_of(search, r, -1.0) for r in self._gone if not hasattr(search.by, "text")),
        ]


@faulty_adapter("test_marks_tombstones_and_cached_copies_can_be_purged")
class PurgesByHidingIt(PerWrite):
    """Leaves a tombstone of version nought."""

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Purge) and outcome.applied:
            self.state.place(write.collection.name, write.key, Tombstone(write.key, 0))
        return outcome


@faulty_adapter("test_only_an_idle_partition_at_its_generation_is_forgotten")
class ForgetsTheWholeTenant(InMemoryStore):
    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        count = await super()._forget_partitions(idle)
        for partition in [
            p for p in self.state.generations if count and any(p.tenant == q.tenant for q, _ in idle)
        ]:
            del self.state.generations[partition]
        return count


@faulty_adapter("test_together_that_failed_leaves_no_trace_in_generations_or_indexes")
class RaisesWhatItTookBack(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = await super()._apply(writes, together)
        if together and any(o.status is Status.REJECTED for o in outcomes):
            for write in writes:
                if isinstance(write, RaiseGeneration):
                    self.state.raise_generation(write.partition, write.to)
        return outcomes


@faulty_adapter("test_tombstones_are_paged_and_filtered_too")
class ListsTombstonesUnfiltered(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        return await super()._query(
            replace(query, filter=None) if query.types == {RowType.TOMBSTONE} else query
        )
