"""Stores that lie about what they do, each in one way that a real backend has. The
contract must catch every one.

Each is registered with the test that has to fail on it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.in_memory.writing import carry_out
from memory.domain.errors import StoreError, StoreUnavailable
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.contract.depth import FULL, Depth
from memory.ports.contract.harness import Harness
from memory.ports.heads import head_of
from memory.ports.query import (
    MAX_LIMIT,
    And,
    Count,
    Eq,
    Everywhere,
    Ge,
    Has,
    Head,
    Hit,
    IsNull,
    Le,
    Lt,
    Near,
    Not,
    Or,
    Page,
    Partitions,
    Query,
    RowType,
    Search,
    Words,
)
from memory.ports.query_evaluation import lets_through
from memory.ports.record import Key, Mark, Partition, PendingStep, Record, Role, Tombstone
from memory.ports.store import Store
from memory.ports.text import fold
from memory.ports.writes import Always, Annotate, Delete, Newer, Outcome, Put, Release, Status, Write
from tests.contract.harnesses import InMemory, InMemoryPlain, InMemoryServer

FAULTY_ADAPTERS: dict[str, tuple[type[Harness], str]] = {}
"""The harness of each faulty adapter by its name, and the test that must fail. Those of
`failing_faulty_adapters` are among them once that is imported.
"""


def faulty_adapter(
    caught_by: str, base: type[InMemory] = InMemory
) -> Callable[[type[InMemoryStore]], type[InMemoryStore]]:
    def register(store_type: type[InMemoryStore]) -> type[InMemoryStore]:
        name = f"{store_type.__name__}Harness"
        harness = type(
            name,
            (base,),
            {"name": store_type.__name__, "store_type": store_type, "__module__": store_type.__module__},
        )
        FAULTY_ADAPTERS[store_type.__name__] = (harness, caught_by)
        setattr(sys.modules[store_type.__module__], name, harness)
        return store_type

    return register


class Honest(InMemory):
    """Not faulty: goes along so that a contract which fails everyone is noticed."""

    name = "Honest"


class HonestAtLength(InMemory):
    """It draws in full, also where the run draws little: the base of adapters that are
    faulty beyond so many records only.
    """

    name = "HonestAtLength"

    @property
    def depth(self) -> Depth:
        return FULL

    @depth.setter
    def depth(self, _given: Depth) -> None:
        """The run's depth changes nothing."""


# -- writes ----------------------------------------------------------------------------


class PerWrite(InMemoryStore):
    """Lies about single writes."""

    def lie(self, write: Write) -> Outcome:
        return carry_out(self.state, write)

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        return await super()._apply(writes, together) if together else [self.lie(write) for write in writes]


@faulty_adapter("test_a_put_meets_what_stands_there_as_the_table_says")
class IgnoresConditions(PerWrite):
    def lie(self, write: Write) -> Outcome:
        return super().lie(replace(write, when=Always()) if isinstance(write, Put) else write)


@faulty_adapter("test_a_stale_copy_under_newer_does_not_bring_a_deleted_record_back")
class ResurrectsTheDeleted(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if (
            isinstance(write, Put)
            and isinstance(write.when, Newer)
            and isinstance(self.state.fetch_stored(write.collection.name, write.key), Tombstone)
        ):
            write = replace(write, when=Always())
        return super().lie(write)


@faulty_adapter("test_a_record_of_an_erased_generation_is_rejected_in_every_collection")
class ForgetsGenerations(PerWrite):
    def lie(self, write: Write) -> Outcome:
        return super().lie(
            replace(write, record=replace(write.record, generation=None)) if isinstance(write, Put) else write
        )


@faulty_adapter("test_a_release_repeated_on_its_own_mark_is_applied_and_changes_nothing")
class ReleasesOnce(PerWrite):
    def lie(self, write: Write) -> Outcome:
        stored = (
            self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Release) else None
        )
        return (
            Outcome(Status.CONFLICT, stored.version, stored)
            if isinstance(stored, Mark)
            else super().lie(write)
        )


@faulty_adapter("test_an_annotation_changes_bookkeeping_and_nothing_else")
class AnnotatesWithANewVersion(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        stored = (
            self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Annotate) else None
        )
        if isinstance(write, Annotate) and isinstance(stored, Record) and outcome.applied:
            self.state.place(write.collection.name, write.key, replace(stored, version=stored.version + 1))
        return outcome


@faulty_adapter("test_moments_keep_their_microseconds")
class LosesMicroseconds(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put):
            at = write.record.created_at
            write = replace(
                write,
                record=replace(
                    write.record, created_at=at.replace(microsecond=at.microsecond // 1000 * 1000)
                ),
            )
        return super().lie(write)


@faulty_adapter("test_a_full_record_of_every_collection_comes_back_as_it_was")
class KeepsNumbersAsDoubles(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put) and isinstance(write.record.body.get("numbers"), list):
            body = {**write.record.body, "numbers": [float(n) for n in write.record.body["numbers"]]}
            write = replace(write, record=replace(write.record, body=body))
        return super().lie(write)


@faulty_adapter("test_changing_what_was_handed_in_changes_nothing_stored")
class KeepsTheCallersRecord(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Put) and outcome.applied:
            self.state.place(
                write.collection.name, write.key, replace(write.record, generation=outcome.generation)
            )
        return outcome


@faulty_adapter("test_nothing_of_a_deleted_records_content_stays_readable")
class KeepsTextInTombstones(PerWrite):
    def lie(self, write: Write) -> Outcome:
        stored = (
            self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Delete) else None
        )
        if isinstance(write, Delete) and isinstance(stored, Record) and stored.texts:
            write = replace(write, note={**write.note, "was": dict(stored.texts)})
        return super().lie(write)


# -- batches and many at once ----------------------------------------------------------


@faulty_adapter("test_together_keeps_nothing_when_one_write_conflicts")
class KeepsHalf(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = await super()._apply(writes, False)
        broken = together and not all(o.applied for o in outcomes)
        return [Outcome(Status.SKIPPED) if broken and o.applied else o for o in outcomes]


@faulty_adapter("test_a_call_that_is_cut_off_is_kept_whole_or_not_at_all")
class KeepsHalfWhenCutOff(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = []
        for write in writes:
            outcomes += await super()._apply([write], together)
            await asyncio.sleep(0)
        return outcomes


@faulty_adapter("test_what_no_store_keeps_is_rejected_by_name_and_its_neighbours_are_applied")
class FailsTheWholeBatch(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        if reason := super()._refusal(write):
            raise StoreError(self.name, reason)
        return ""


@faulty_adapter("test_of_many_writers_at_one_version_exactly_one_wins_each_round")
class LooksThenWrites(InMemoryStore):
    """Decides on what it read before, as one does without a conditional write."""

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        before = {
            w.key: self.state.fetch_stored(w.collection.name, w.key) for w in writes if isinstance(w, Put)
        }
        await asyncio.sleep(0)
        outcomes = []
        for write in writes:
            if isinstance(write, Put) and before[write.key] is not None:
                self.state.place(write.collection.name, write.key, before[write.key])
            outcomes.append(carry_out(self.state, write))
        return outcomes


# -- where -----------------------------------------------------------------------------


class _Widens(InMemoryStore):
    """Looks where it was not asked to."""

    def same(self, asked: Partition, other: Partition) -> bool:
        raise NotImplementedError

    async def _query(self, query: Query) -> Page:
        if isinstance(query.where, Partitions):
            mine = query.where.partitions
            wide = await super()._query(replace(query, where=Everywhere()))
            return replace(
                wide,
                records=tuple(
                    r
                    for r in wide.records
                    if isinstance(r, Record) and any(self.same(p, r.partition) for p in mine)
                ),
            )
        return await super()._query(query)


@faulty_adapter("test_a_partition_sees_its_own_records_and_no_others[DropsTheTenant-tenants]")
class DropsTheTenant(_Widens):
    def same(self, asked: Partition, other: Partition) -> bool:
        return asked.scope == other.scope


@faulty_adapter("test_a_partition_sees_its_own_records_and_no_others[IgnoresCaseAndAccents-scopes]")
class IgnoresCaseAndAccents(_Widens):
    def same(self, asked: Partition, other: Partition) -> bool:
        return fold(asked.scope).rstrip() == fold(other.scope).rstrip() and fold(asked.tenant) == fold(
            other.tenant
        )


@faulty_adapter("test_a_partition_sees_its_own_records_and_no_others[JoinsKeysWithColons-joined]")
class JoinsKeysWithColons(_Widens):
    def same(self, asked: Partition, other: Partition) -> bool:
        return f"{asked.tenant}:{asked.scope}" == f"{other.tenant}:{other.scope}"


@faulty_adapter("test_everywhere_sees_every_tenant")
class SeesOneTenantEverywhere(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        return replace(page, records=tuple(r for r in page.records if r.key.tenant == "acme"))


# -- filters, order, pages -------------------------------------------------------------


@faulty_adapter("test_every_operator_holds_for_exactly_what_it_says")
class ComparesTagsWithoutCase(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        if isinstance(query.filter, Has):
            all_ = await super()._query(replace(query, filter=Not(IsNull(query.filter.field))))
            tag = query.filter.tag.lower()
            kept = [
                r
                for r in all_.records
                if isinstance(r, Record) and tag in [t.lower() for t in r.fields["tags"]]  # type: ignore[union-attr]
            ]
            return Page(tuple(kept))
        return await super()._query(query)


@faulty_adapter("test_every_operator_holds_for_exactly_what_it_says")
class NegatesLikeSql(InMemoryStore):
    """Not of a comparison with NULL is NULL, which is not true."""

    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if isinstance(query.filter, Not) and isinstance(query.filter.part, Eq | Lt):
            missing = IsNull(query.filter.part.field)
            return replace(
                page,
                records=tuple(
                    r for r in page.records if isinstance(r, Record) and not lets_through(missing, r)
                ),
            )
        return page


@faulty_adapter("test_any_filter_finds_what_an_independent_evaluator_finds")
class TakesEmptyTextForNothing(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if query.filter is None or isinstance(query.filter, Not):
            return page
        return replace(
            page,
            records=tuple(r for r in page.records if isinstance(r, Record) and r.fields.get("type") != ""),
        )


@faulty_adapter("test_pages_through_ties_alone_lose_and_repeat_nothing")
class LosesTiesBetweenPages(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if query.order and page.cursor and page.records:
            last = page.records[-1]
            at = last.updated_at if isinstance(last, Record) else None
            everything = await super()._query(replace(query, cursor=None, limit=10**9))
            rest = [
                r
                for r in everything.records
                if isinstance(r, Record) and at is not None and r.updated_at != at
            ]
            return page if rest else replace(page, cursor=None)
        return page


@faulty_adapter("test_pages_follow_the_order_and_lose_and_repeat_nothing")
class SortsMissingValuesLast(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if (
            query.order
            and query.order[0].field == "type"
            and not query.order[0].descending
            and query.limit == MAX_LIMIT
        ):
            return replace(
                page,
                records=tuple(
                    sorted(page.records, key=lambda r: isinstance(r, Record) and r.fields.get("type") is None)
                ),
            )
        return page


@faulty_adapter("test_a_count_leaves_out_marks_and_tombstones")
class CountsTheDead(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        counted = await super()._count(query)
        dead = [s for s in self.state.everything(query.collection.name) if not isinstance(s, Record)]
        return replace(counted, records=counted.records + len(dead))


@faulty_adapter("test_only_the_asked_roles_are_found")
class ShowsEveryRole(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        return await super()._query(replace(query, roles=frozenset(Role)))


# -- search ----------------------------------------------------------------------------


def hit_of(search: Search, record: Record, score: float) -> Hit:
    """A hit with what the search selects."""
    return Hit(head_of(search.collection, record, search.select), score)


@faulty_adapter("test_part_of_a_word_finds_nothing")
class MatchesPrefixes(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        if hits or not isinstance(search.by, Words):
            return hits
        wanted = fold(search.by.text).split()
        records = self.state.live(search.collection.name, search.where)
        return [
            hit_of(search, r, 1.0)
            for r in records
            if any(w.startswith(q) for w in fold(" ".join(r.texts.values())).split() for q in wanted)
        ]


@faulty_adapter("test_no_text_is_syntax_or_raises")
class TakesTextForSyntax(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        if isinstance(search.by, Words) and search.by.text.count('"') % 2:
            raise StoreError(self.name, "unterminated string")
        return await super()._search(search)


@faulty_adapter("test_what_left_is_no_longer_found_by_words")
class FindsTheDeleted(InMemoryStore):
    """Its index keeps what the table lost."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._index: dict[Key, Head] = {}

    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        for hit in hits:
            self._index[hit.head.key] = hit.head
        return hits or [Hit(head, 1.0) for head in self._index.values()]


@faulty_adapter("test_what_others_store_changes_neither_rank_nor_score")
class SharesItsStatistics(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        if isinstance(search.by, Near) or not isinstance(search.where, Partitions):
            return await super()._search(search)
        mine = search.where.partitions
        hits = await super()._search(replace(search, where=Everywhere(), limit=10_000))
        return [hit for hit in hits if hit.head.partition in mine][: search.limit]


@faulty_adapter("test_a_filter_chooses_before_the_limit_cuts")
class FiltersAfterTheLimit(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        passing = {hit.head.key for hit in await super()._search(replace(search, limit=10**9))}
        return [hit for hit in await super()._search(replace(search, filter=None)) if hit.head.key in passing]


@faulty_adapter("test_the_nearest_of_many_are_found")
class FindsAnythingNear(InMemoryStore):
    """Claims search by meaning and returns approximate nonsense."""

    async def _search(self, search: Search) -> list[Hit]:
        if isinstance(search.by, Words):
            return await super()._search(search)
        hits = await super()._search(replace(search, limit=10_000))
        return hits[: search.limit] if len(hits) < 100 else hits[:: len(hits) // search.limit][: search.limit]


@faulty_adapter("test_searching_by_what_is_no_direction_is_refused")
class AcceptsInfinity(InMemoryStore):
    async def search(self, search: Search) -> list[Hit]:
        return await self._search(search) if isinstance(search.by, Near) else await super().search(search)


# -- claims ----------------------------------------------------------------------------


@faulty_adapter("test_what_was_acknowledged_survives_the_death_of_a_durable_store", InMemoryServer)
class LosesAllWhenItDies(InMemoryStore):
    def restart(self, keep: bool) -> None:
        super().restart(keep=False)


@faulty_adapter("test_a_store_that_may_lose_data_tells_by_its_epoch_that_it_was_restarted")
class HidesItsRestarts(InMemoryStore):
    @property
    def epoch(self) -> str:
        return "1"


@faulty_adapter("test_two_clients_of_a_shared_store_see_each_others_acknowledged_writes", InMemoryServer)
class KeepsAReadCache(InMemoryStore):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pages: dict[str, Page] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        self._pages.clear()
        return await super()._apply(writes, together)

    async def _query(self, query: Query) -> Page:
        return self._pages.setdefault(repr(query), await super()._query(query))


@faulty_adapter("test_a_store_with_ttl_forgets_what_is_past_its_time", InMemoryServer)
class NeverForgets(InMemoryStore):
    def _forget(self) -> None:
        return


class _ForgetsMore(InMemoryStore):
    """Forgets some records past their time that the engine has yet to delete."""

    def forgets(self, record: Record) -> bool:
        raise NotImplementedError

    def _forget(self) -> None:
        super()._forget()
        for name in list(self.state.slots):
            for standing in list(self.state.everything(name)):
                if isinstance(standing, Record) and self._is_past(standing) and self.forgets(standing):
                    self.state.place(name, standing.key, None)

    def _is_past(self, record: Record) -> bool:
        return record.expires_at is not None and record.expires_at < self._clock()


@faulty_adapter("test_a_store_with_ttl_forgets_no_record_but_cached_copies", InMemoryServer)
class ForgetsExpiredHomes(_ForgetsMore):
    def forgets(self, record: Record) -> bool:
        return record.role is Role.HOME and not record.owed


@faulty_adapter("test_a_store_with_ttl_forgets_no_record_but_cached_copies", InMemoryServer)
class ForgetsExpiredReplicas(_ForgetsMore):
    def forgets(self, record: Record) -> bool:
        return record.role is Role.REPLICA


@faulty_adapter("test_a_store_with_ttl_forgets_no_record_but_cached_copies", InMemoryServer)
class ForgetsWhatOwes(_ForgetsMore):
    def forgets(self, record: Record) -> bool:
        return bool(record.owed)


@faulty_adapter("test_a_store_without_ttl_keeps_what_is_past_its_time")
class ForgetsUnasked(InMemoryStore):
    def _forget(self) -> None:
        self.state.forget(self._clock())


@faulty_adapter(
    "test_a_record_of_the_largest_size_is_kept_and_one_byte_more_is_rejected_by_name", InMemoryServer
)
class CutsOffLargeRecords(InMemoryStore):
    def _record_refusal(self, record: Record) -> str:
        reason = super()._record_refusal(record)
        return "" if "bytes" in reason else reason


@faulty_adapter("test_nothing_of_a_lower_generation_comes_to_stand_after_a_raise_was_acknowledged")
class LooksAtTheGenerationAndWritesLater(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if together or not all(isinstance(write, Put) for write in writes):
            return await super()._apply(writes, together)
        seen = {
            write.record.partition: self.state.generation(write.record.partition)
            for write in writes
            if isinstance(write, Put)
        }
        for _ in range(60):
            await asyncio.sleep(0)
        outcomes = await super()._apply(writes, together)
        for i, write in enumerate(writes):
            if isinstance(write, Put) and seen[write.record.partition] < self.state.generation(
                write.record.partition
            ):
                born = seen[write.record.partition]
                self.state.place(
                    write.collection.name, write.record.key, replace(write.record, generation=born)
                )
                outcomes[i] = Outcome(Status.APPLIED, version=write.record.version, generation=born)
        return outcomes


@faulty_adapter(
    "test_what_a_writer_that_died_brought_of_an_erased_generation_is_taken_by_one_repeat_of_the_erasure",
    InMemoryPlain,
)
class ErasesEachPlaceOnce(InMemoryStore):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._erased: set[str] = set()

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        place = repr(query.where)
        if place in self._erased:
            return 0
        self._erased.add(place)
        return await super()._delete_matching(query, version, discard_at, carry)


@faulty_adapter("test_every_value_comes_back_to_the_last_bit")
class KeepsRealsInFifteenDigits(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put):
            fields = {
                name: float(f"{value:.15g}") if isinstance(value, float) else value
                for name, value in write.record.fields.items()
            }
            write = replace(write, record=replace(write.record, fields=fields))
        return super().lie(write)


@faulty_adapter("test_a_value_is_found_by_itself_and_by_nothing_else")
class ComparesNumbersAsDoubles(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        part = query.filter
        if isinstance(part, Eq) and isinstance(part.value, int) and not isinstance(part.value, bool):
            wide = And((Ge(part.field, int(float(part.value))), Le(part.field, part.value)))
            return await super()._query(replace(query, filter=Or((part, wide))))
        return await super()._query(query)


@faulty_adapter("test_json_in_a_body_and_in_owed_steps_comes_back_to_the_letter")
class TakesWholeRealsForIntegers(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put) and write.record.owed:
            owed = tuple(PendingStep(step.id, step.step, _whole(step.data)) for step in write.record.owed)
            write = replace(write, record=replace(write.record, owed=owed))
        return super().lie(write)


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value == 1.0 else value


@faulty_adapter("test_filters_are_refused_by_name", InMemoryPlain)
class IgnoresWhatItCannotDo(InMemoryStore):
    def _must_offer(self, flag: str) -> None:
        return


@faulty_adapter("test_an_opened_store_claims_what_its_harness_says")
class ClaimsMoreThanPinned(InMemoryStore):
    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, max_batch=500)


# -- life ------------------------------------------------------------------------------


@faulty_adapter("test_nothing_works_before_open_and_after_close")
class WorksUnopened(InMemoryStore):
    def _must_be_open(self) -> None:
        return


@faulty_adapter("test_opening_and_closing_twice_is_no_more_than_once")
class StartsAfreshWhenOpenedTwice(InMemoryStore):
    async def open(self, collections: Sequence[Collection]) -> None:
        self.state.wipe()
        await super().open(collections)


@faulty_adapter("test_deleting_what_matches_leaves_tombstones_above_both_versions")
class LeavesNoTombstones(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        page = await super()._query(replace(query, limit=10**9, order=(), cursor=None))
        for record in page.records:
            self.state.place(query.collection.name, record.key, None)
        return len(page.records)


@faulty_adapter("test_marks_and_tombstones_are_listed_apart_from_records")
class ListsMarksAmongRecords(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        everything = frozenset(RowType)
        return await super()._query(
            replace(query, types=everything) if isinstance(query.where, Everywhere) else query
        )


# -- harnesses that would pass by not running ------------------------------------------


class SkipsItself(InMemory):
    name = "SkipsItself"

    async def make(self) -> InMemoryStore:
        pytest.skip("no server here")


class HasNoServer(InMemory):
    name = "HasNoServer"

    async def make(self) -> InMemoryStore:
        raise StoreUnavailable("absent", "connection refused")


class HidesASecondClient(InMemory):
    """Can do what it does not claim."""

    name = "HidesASecondClient"

    async def client(self, store: Store) -> Store:
        assert isinstance(store, InMemoryStore)
        return InMemoryStore("memory", state=store.state)


FAULTY_ADAPTERS["HidesASecondClient"] = (
    HidesASecondClient,
    "test_a_store_that_is_not_shared_has_no_second_client",
)
