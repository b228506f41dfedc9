"""Liars written by one who had read the port and none of the tests. No test failed on any of these; each has one that does now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

from memory.adapters.in_memory import InMemoryStore, adapter
from memory.ports.collections import Collection
from memory.ports.query import And, Count, Eq, Filter, Hit, In, Kind, Near, Not, Or, Page, Query, Search, Tenant
from memory.ports.record import Key, Mark, Owed, Partition, Record, Role, Standing, Stored, Tombstone, pack_vector, unpack_vector
from memory.ports.store import Audit, Store
from memory.ports.text import words
from memory.ports.writes import Annotate, Append, AtVersion, Delete, Outcome, Put, RaiseGeneration, Release, Write
from tests.contract.harnesses import InMemoryServer
from tests.contract.liars import PerWrite, liar
from tests.contract.liars_of_asking import FULL, HasADisk, HonestDisk, building

# -- lives, and what is forgotten --------------------------------------------------------------------------------------


@liar("test_a_counter_counts_on_though_nothing_stands_in_its_partition", InMemoryServer)
class TidiesCountersAwayWhenClosed(InMemoryStore):
    async def _close(self) -> None:
        _forget_unused_counters(self)


@liar("test_upkeep_keeps_what_is_past_its_time_and_what_counters_gave")
class TidiesCountersAwayWithAVacuum(InMemoryStore):
    async def _vacuum(self) -> int:
        _forget_unused_counters(self)
        return 0


def _forget_unused_counters(store: InMemoryStore) -> None:
    busy = {partition for live in store.state._live.values() for partition, records in live.items() if records}
    for partition, counter in [unused for unused in store.state._counters if unused[0] not in busy]:
        del store.state._counters[partition, counter]


@liar("test_nothing_works_before_open_and_after_close[AnswersNothingWhileClosed-get of nothing]")
class AnswersNothingWhileClosed(InMemoryStore):
    async def get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return await super().get(collection, keys) if keys else []


@liar("test_nothing_works_before_open_and_after_close[ForgetsWhileClosed-forget_partitions]")
class ForgetsWhileClosed(InMemoryStore):
    async def forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await super().forget_partitions(idle) if self._opened else 0


class _HasEndsOfItsOwn(PerWrite):
    """Has the engine forget: what ends when is told to it, and goes then, whatever became of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ends: dict[tuple[str, Key], datetime] = {}

    def _stands(self, write: Write) -> Any:
        return None if isinstance(write, RaiseGeneration) else self.state.standing(write.collection.name, write.key)

    def _forget(self) -> None:
        super()._forget()
        for (name, key), end in list(self._ends.items()):
            if end < datetime.now(UTC):
                del self._ends[name, key]
                self.state.place(name, key, None)


@liar("test_what_an_annotation_made_of_it_is_what_is_forgotten_or_not", InMemoryServer)
class ForgetsWhatWasCached(_HasEndsOfItsOwn):
    def lie(self, write: Write) -> Outcome:
        before, outcome = self._stands(write), super().lie(write)
        if isinstance(write, Annotate) and write.role is not None and isinstance(before, Record) and before.role is Role.CACHED and before.expires_at:
            self._ends[write.collection.name, write.key] = before.expires_at
        return outcome


@liar("test_what_an_annotation_made_of_it_is_what_is_forgotten_or_not", InMemoryServer)
class KeepsToTheEndBeforeTheAnnotation(_HasEndsOfItsOwn):
    def lie(self, write: Write) -> Outcome:
        before, outcome = self._stands(write), super().lie(write)
        if isinstance(write, Annotate) and write.discard_at and isinstance(before, Mark | Tombstone) and before.discard_at:
            self._ends[write.collection.name, write.key] = before.discard_at
        return outcome


@liar("test_what_an_annotation_made_of_it_is_what_is_forgotten_or_not", InMemoryServer)
class TakesOneStepForAll(_HasEndsOfItsOwn):
    def lie(self, write: Write) -> Outcome:
        outcome, after = super().lie(write), self._stands(write)
        if isinstance(write, Annotate) and write.settle and isinstance(after, Mark | Tombstone) and after.discard_at:
            self._ends[write.collection.name, write.key] = after.discard_at
        return outcome


@liar("test_a_record_does_not_inherit_the_end_of_what_stood_there", InMemoryServer)
class KeepsTheEndOfTheTombstone(_HasEndsOfItsOwn):
    """As a SET with KEEPTTL does."""

    def lie(self, write: Write) -> Outcome:
        before = self._stands(write)
        if isinstance(write, Put) and isinstance(before, Tombstone) and before.discard_at:
            self._ends[write.collection.name, write.key] = before.discard_at
        return super().lie(write)


@liar("test_what_owes_a_step_is_not_forgotten_after_a_restart_either", InMemoryServer)
class ForgetsWhatOwesAfterARestart(InMemoryStore):
    def _forget(self) -> None:
        super()._forget()
        for s in list(self.state.everything("entries")) if self.state.runs > 1 else ():
            if isinstance(s, Mark) and s.discard_at and s.discard_at < datetime.now(UTC):
                self.state.place("entries", s.key, None)


@liar("test_erasing_a_whole_tenant_reaches_its_corrupt_records_and_no_others", InMemoryServer)
class ErasesOnlySoundRecordsOfATenant(InMemoryStore):
    async def _delete_matching(self, query: Query, version: int, discard_at: datetime | None, keep: Sequence[str]) -> int:
        spoiled = dict(self.state._spoiled) if isinstance(query.where, Tenant) else {}
        held = {key: self.state.standing(name, key) for name, key in spoiled}
        count = await super()._delete_matching(query, version, discard_at, keep)
        for (name, key), problem in spoiled.items():
            self.state.place(name, key, held[key])
            self.state._spoiled[name, key] = problem
        return count


# -- writes and what they leave ----------------------------------------------------------------------------------------


@liar("test_the_longest_batches_are_carried_out_in_order_and_together_as_a_whole")
class DeletesLastInLongBatches(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if together or len(writes) <= 1_000:
            return await super()._apply(writes, together)
        order = sorted(range(len(writes)), key=lambda n: isinstance(writes[n], Delete))
        outcomes = dict(zip(order, await super()._apply([writes[n] for n in order], together), strict=True))
        return [outcomes[n] for n in range(len(writes))]


@liar("test_the_longest_batches_are_carried_out_in_order_and_together_as_a_whole")
class KeepsLongBatchesInPortions(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        portions = [writes[n : n + 5_000] for n in range(0, len(writes), 5_000)] if together else [writes]
        return [outcome for portion in portions for outcome in await super(KeepsLongBatchesInPortions, self)._apply(portion, together)]


@liar("test_a_generation_another_client_raised_binds_one_that_does_nothing_but_append", InMemoryServer)
class AppendsUnderTheGenerationItKnew(InMemoryStore):
    """A put looks the generation up."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._remembered: dict[Partition, int] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        places = {w.record.partition for w in writes if isinstance(w, Append)}
        if not places or not all(isinstance(w, Append) for w in writes):
            self._remembered.clear()
            return await super()._apply(writes, together)
        current = dict(self.state._generations)
        self._remembered = {place: self.state.generation(place) for place in places} | self._remembered
        self.state._generations |= self._remembered
        try:
            return await super()._apply(writes, together)
        finally:
            self.state._generations.clear()
            self.state._generations |= current


@liar("test_json_is_the_same_text_after_an_annotation")
class WritesStepsBackWithoutEmptyLists(PerWrite):
    """As a script in Lua does."""

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        stands = self.state.standing(write.collection.name, write.key) if isinstance(write, Annotate) and write.settle else None
        if isinstance(write, Annotate) and stands is not None:
            owed = tuple(Owed(step.kind, _without_empty_lists(step.data)) for step in stands.owed)
            self.state.place(write.collection.name, write.key, replace(stands, owed=owed))
        return outcome


def _without_empty_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_empty_lists(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_empty_lists(v) for v in value] or {}
    return value


@liar("test_json_is_the_same_text_after_an_annotation")
class SettlesTheSameTextAlone(PerWrite):
    """A step whose keys come in another order is another one to it."""

    def lie(self, write: Write) -> Outcome:
        stands = self.state.standing(write.collection.name, write.key) if isinstance(write, Annotate) else None
        if isinstance(write, Annotate) and stands is not None:
            texts = {json.dumps([step.kind, step.data]) for step in stands.owed}
            write = replace(write, settle=tuple(step for step in write.settle if json.dumps([step.kind, step.data]) in texts))
        return super().lie(write)


@liar("test_json_is_the_same_text_after_an_annotation")
class WritesNotesBackThroughDoubles(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        stands = self.state.standing(write.collection.name, write.key) if isinstance(write, Annotate) else None
        if isinstance(write, Annotate) and isinstance(stands, Tombstone):
            note = {k: int(float(v)) if type(v) is int else v for k, v in stands.note.items()}
            self.state.place(write.collection.name, write.key, replace(stands, note=note))
        return outcome


@liar("test_every_text_comes_back_unchanged_in_bookkeeping_too")
class CutsKindsOfStepsOfReleases(PerWrite):
    """At 64 characters."""

    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Release):
            write = replace(write, owed=tuple(Owed(step.kind[:64], step.data) for step in write.owed))
        return super().lie(write)


@liar("test_every_text_comes_back_unchanged_in_bookkeeping_too")
class TrimsWhereMarksPoint(PerWrite):
    """As a CHAR column does."""

    def lie(self, write: Write) -> Outcome:
        return super().lie(replace(write, to=write.to.rstrip(" ")) if isinstance(write, Release) else write)


@liar("test_every_text_comes_back_unchanged_in_bookkeeping_too")
class TakesTheEmptyTierForNone(PerWrite):
    def lie(self, write: Write) -> Outcome:
        return super().lie(replace(write, tier=write.tier or None) if isinstance(write, Annotate) else write)


@liar("test_a_tier_in_a_condition_asks_for_exactly_that_tier")
class AsksForNoTierByTheEmptyOne(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put) and isinstance(write.when, AtVersion):
            write = replace(write, when=replace(write.when, tier=write.when.tier or None))
        return super().lie(write)


@liar("test_each_recorded_access_counts_one")
class TakesOnlyLaterAccesses(PerWrite):
    """As GREATEST does."""

    def lie(self, write: Write) -> Outcome:
        stands = self.state.standing(write.collection.name, write.key) if isinstance(write, Annotate) else None
        if isinstance(write, Annotate) and write.accessed_at and isinstance(stands, Record) and stands.accessed_at:
            write = replace(write, accessed_at=max(write.accessed_at, stands.accessed_at))
        return super().lie(write)


@liar("test_a_put_replaces_the_whole_record")
class KeepsTheAccessOfWhatItReplaces(PerWrite):
    """As COALESCE does."""

    def lie(self, write: Write) -> Outcome:
        stands = self.state.standing(write.collection.name, write.key) if isinstance(write, Put) else None
        if isinstance(write, Put) and isinstance(stands, Record) and write.record.accessed_at is None:
            write = replace(write, record=replace(write.record, accessed_at=stands.accessed_at))
        return super().lie(write)


@liar("test_an_append_keeps_every_part_of_its_record")
class AppendsWithoutBookkeeping(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Append):
            write = replace(write, record=replace(write.record, previous=None, cached_at=None, epoch=None, accesses=0))
        return super().lie(write)


@liar("test_strange_but_lawful_contents_come_back_exactly")
class LosesTheSignOfNoughtInVectors(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Put) and write.record.vector:
            write = replace(write, record=replace(write.record, vector=pack_vector([v + 0.0 for v in unpack_vector(write.record.vector)])))
        return super().lie(write)


@liar("test_an_append_to_a_taken_key_conflicts_and_uses_up_no_number")
class NumbersWhatMeetsATombstone(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Append) and isinstance(outcome.stored, Tombstone):
            self.state.next_number(write.record.partition, write.counter)
        return outcome


# -- questions ---------------------------------------------------------------------------------------------------------


class _Filters(InMemoryStore):
    """Lies about what filters mean."""

    def instead(self, part: Filter) -> Filter:
        if isinstance(part, And | Or):
            return type(part)(tuple(self.instead(inner) for inner in part.parts))
        return Not(self.instead(part.part)) if isinstance(part, Not) else part

    def _matching(self, query: Query) -> tuple[list[Standing], list[Key]]:
        return super()._matching(replace(query, filter=None if query.filter is None else self.instead(query.filter)))


@liar("test_every_operator_holds_for_exactly_what_it_says")
class KnowsNothingBesideNothing(_Filters):
    """As NOT IN does where NULL is among the values."""

    def instead(self, part: Filter) -> Filter:
        if isinstance(part, Not) and isinstance(part.part, In) and None in part.part.values:
            return Or(())
        return super().instead(part)


@liar("test_every_operator_holds_for_exactly_what_it_says")
class TakesTagsForASet(_Filters):
    def instead(self, part: Filter) -> Filter:
        if isinstance(part, Eq) and isinstance(part.value, tuple) and 1 < len(part.value) < 5:
            return In(part.field, tuple(permutations(part.value)))
        return super().instead(part)


@liar("test_marks_and_tombstones_are_counted_as_they_are_listed")
class CountsRecordsWhateverIsAsked(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        return await super()._count(replace(query, kinds=frozenset({Kind.RECORD})))


@liar("test_ids_come_by_code_point")
class SortsIdsByTheirHalves(InMemoryStore):
    """As UTF-16 does: what is beyond the basic plane comes before its end."""

    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if query.order or query.limit or query.cursor:
            return page
        return replace(page, records=tuple(sorted(page.records, key=lambda s: s.key.id.encode("utf-16-be"))))


@liar("test_vectors_whose_squares_are_no_float_have_a_direction_too")
class TakesLengthsInSinglePrecision(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        if not isinstance(search.by, Near):
            return hits
        squares = {hit.record.key: [v * v for v in unpack_vector(hit.record.vector or b"")] for hit in hits}
        return [hit for hit in hits if max(squares[hit.record.key]) < 3.4e38 and any(v > 1e-45 for v in squares[hit.record.key])]


# -- upkeep, limits, room and building ---------------------------------------------------------------------------------


@liar("test_an_audit_misses_nothing_of_records_that_have_nothing_to_be_found_by", InMemoryServer)
class MissesWordsThatAreNotThere(InMemoryStore):
    async def _audit(self, repair: bool) -> Audit:
        records = [r for r in self.state.everything("entries") if isinstance(r, Record)]
        without = [r for r in records if r.texts and not any(words(text) for text in r.texts.values())]
        return Audit(len(records), ("a record is missing in the index of words",) * len(without))


@liar("test_a_mark_of_any_collection_is_something[SeesMarksOfEntriesAlone-relations]", InMemoryServer)
class SeesMarksOfEntriesAlone(InMemoryStore):
    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        held = dict(self.state._slots)
        for name in held.keys() - {"entries"}:
            self.state._slots[name] = {key: s for key, s in held[name].items() if not isinstance(s, Mark)}
        try:
            return await super()._idle_partitions(limit)
        finally:
            self.state._slots.update(held)


@liar("test_what_no_store_keeps_is_rejected_by_name_and_its_neighbours_are_applied")
class ReplacesVersionsBelowNought(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        problem = super()._refusal(write)
        return "" if problem.startswith("previous: must be") else problem


BYTES = "test_a_record_of_the_largest_size_is_kept_and_one_byte_more_is_rejected_by_name"


@liar(BYTES, InMemoryServer)
class AppendsWithoutALimit(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        problem = super()._refusal(write)
        return "" if isinstance(write, Append) and problem.startswith("record: store") else problem


@liar(BYTES, InMemoryServer)
class CountsCharactersForBytes(InMemoryStore):
    def _record_refusal(self, record: Record) -> str:
        limit = self.capabilities.max_record_bytes or 0
        return super()._record_refusal(record) if len(str(record.body)) > limit else ""


@liar("test_a_vector_of_most_dimensions_is_kept_and_one_more_is_rejected_by_name", InMemoryServer)
class AppendsVectorsOfAnyLength(InMemoryStore):
    def _refusal(self, write: Write) -> str:
        problem = super()._refusal(write)
        return "" if isinstance(write, Append) and problem.startswith("vector: store") else problem


@liar("test_a_batch_of_the_largest_size_is_applied_and_one_write_more_is_refused", InMemoryServer)
class TakesAnyNumberTogether(InMemoryStore):
    async def apply(self, writes: Sequence[Write], *, together: bool = False) -> list[Outcome]:
        claimed = self._capabilities
        try:
            self._capabilities = replace(claimed, max_batch=None) if together else claimed
            return await super().apply(writes, together=together)
        finally:
            self._capabilities = claimed


@liar(FULL, HonestDisk)
class RaisesGenerationsOnAFullDisk(HasADisk):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if not self.room.left:
            await InMemoryStore._apply(self, [w for w in writes if isinstance(w, RaiseGeneration)], False)
        return await super()._apply(writes, together)


@liar(FULL, HonestDisk)
class TakesAwayBeforeItWritesOnAFullDisk(HasADisk):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        for write in writes if not self.room.left else ():
            if isinstance(write, Put):
                self.state.place(write.collection.name, write.key, None)
        return await super()._apply(writes, together)


def _ignoring(name: str, url: str, options: Any) -> Store:
    """Ignores what follows a question mark, and options without a value."""
    return adapter.build(name, url.partition("?")[0], {option: value for option, value in options.items() if value is not None})


building("IgnoresTheQueryOfAUrl", _ignoring)
