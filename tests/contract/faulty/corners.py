"""Lying stores of a third reading: about rare arguments, two things at once, upkeep,
and what a death in between leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.in_memory.state import State
from memory.domain.errors import StoreError
from memory.ports.collections import Collection
from memory.ports.contract.collections import DECLARED
from memory.ports.query import (
    And,
    Condition,
    Count,
    Eq,
    Hit,
    Lt,
    Not,
    Or,
    Page,
    Partitions,
    Query,
    Search,
    Words,
    within,
)
from memory.ports.query_evaluation import lets_through
from memory.ports.record import Key, Mark, Partition, Record, Role, Stored
from memory.ports.store import Audit, Store
from memory.ports.writes import Annotate, Delete, Outcome, Purge, Put, RaiseGeneration, Release, Status, Write
from tests.contract.faulty.registry import FAULTY_ADAPTERS, PerWrite, faulty_adapter
from tests.contract.harnesses import InMemoryServer, Sqlite

# -- rare arguments --------------------------------------------------------------------


@faulty_adapter("test_erasing_takes_no_notice_of_a_cursor")
class ErasesFromTheCursorOn(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        if query.cursor is None:
            return await super()._delete_matching(query, version, discard_at, carry)
        left = {r.key.id for r in (await super()._query(replace(query, limit=10**9))).records}
        erased = 0
        for id_ in left:
            erased += await super()._delete_matching(
                replace(query, filter=Eq("id", id_), cursor=None), version, discard_at, carry
            )
        return erased


@faulty_adapter("test_a_partition_named_twice_is_asked_once")
class FindsTwiceWhereAPartitionIsNamedTwice(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        times = (
            len(search.where.partitions) - len(set(search.where.partitions))
            if isinstance(search.where, Partitions)
            else 0
        )
        return [hit for hit in hits for _ in range(1 + times)][: search.limit]


@faulty_adapter("test_a_partition_named_twice_is_asked_once")
class CountsTwiceWhereAPartitionIsNamedTwice(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        counted = await super()._count(query)
        times = (
            len(query.where.partitions) - len(set(query.where.partitions))
            if isinstance(query.where, Partitions)
            else 0
        )
        return replace(counted, records=counted.records * (1 + times))


@faulty_adapter("test_of_no_role_there_is_nothing")
class TakesNoRolesForAllRoles(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        return await super()._query(query if query.roles else replace(query, roles=frozenset(Role)))


@faulty_adapter("test_a_cursor_continues_with_pages_of_another_size")
class ForgetsTheCursorUnderTheUsualLimit(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        return await super()._query(replace(query, cursor=None) if query.limit == 100 else query)


@faulty_adapter("test_the_last_of_many_words_finds")
class SearchesForThirtyTwoWordsAtMost(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        if isinstance(search.by, Words):
            search = replace(search, by=Words(" ".join(search.by.text.split()[:32])))
        return await super()._search(search)


@faulty_adapter("test_a_filter_of_many_parts_is_no_problem")
class FailsOnLongDisjunctions(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        if isinstance(query.filter, Or | And) and len(query.filter.parts) > 400:
            raise StoreError(self.name, "the expression is too deep")
        return await super()._query(query)


@faulty_adapter("test_many_partitions_are_asked_and_erased_together")
class AsksTheFirstFiveHundredPartitions(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        if isinstance(query.where, Partitions):
            query = replace(query, where=Partitions(query.where.partitions[:500]))
        return await super()._query(query)


@faulty_adapter("test_many_partitions_are_asked_and_erased_together")
class ErasesTheFirstFiveHundredPartitions(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        if isinstance(query.where, Partitions):
            query = replace(query, where=Partitions(query.where.partitions[:500]))
        return await super()._delete_matching(query, version, discard_at, carry)


# -- what is past its time, though nobody but readers hides it -------------------------


def _past(standing: Stored) -> bool:
    return (
        isinstance(standing, Record)
        and standing.expires_at is not None
        and standing.expires_at < datetime.now(UTC)
    )


@faulty_adapter("test_what_is_past_its_time_is_counted_found_and_erased_as_all_else")
class SearchesHideTheExpired(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        return [
            hit
            for hit in hits
            if (stands := self.state.fetch_stored("samples", hit.head.key)) is None or not _past(stands)
        ]


@faulty_adapter("test_what_is_past_its_time_is_counted_found_and_erased_as_all_else")
class CountsHideTheExpired(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        matching, _ = self._find_matches(query)
        return replace(await super()._count(query), records=sum(not _past(r) for r in matching))


@faulty_adapter("test_what_is_past_its_time_is_counted_found_and_erased_as_all_else")
class ErasureSkipsTheExpired(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        alive = Not(Lt("expires_at", datetime.now(UTC)))
        return await super()._delete_matching(
            replace(query, filter=alive if query.filter is None else And((query.filter, alive))),
            version,
            discard_at,
            carry,
        )


# -- bookkeeping -----------------------------------------------------------------------


@faulty_adapter("test_a_release_repeated_on_its_own_mark_is_applied_and_changes_nothing")
class MarksAgainWhatWasSettled(PerWrite):
    """A release repeated on its own mark writes the mark again, with what it owes."""

    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        if isinstance(write, Release) and outcome.applied:
            mark = self.state.fetch_stored(write.collection.name, write.key)
            assert isinstance(mark, Mark)
            self.state.place(
                write.collection.name, write.key, replace(mark, owed=write.owed, discard_at=write.discard_at)
            )
        return outcome


@faulty_adapter("test_a_cached_copy_is_purged_also_when_asked_for_by_its_role")
class PurgesCachedCopiesWithoutARoleOnly(PerWrite):
    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Purge) and write.role_is is Role.CACHED:
            stands = self.state.fetch_stored(write.collection.name, write.key)
            return Outcome(Status.CONFLICT, stands.version, stands) if stands else Outcome(Status.APPLIED)
        return super().lie(write)


@faulty_adapter("test_equal_accesses_in_one_batch_are_each_counted")
class CountsEqualAccessesOfABatchOnce(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        first: dict[int, int] = {}
        for n, write in enumerate(writes):
            if isinstance(write, Annotate):
                first.setdefault(next((m for m in first if writes[m] == write), n), n)
            else:
                first[n] = n
        kept = sorted(first)
        outcomes = dict(zip(kept, await super()._apply([writes[n] for n in kept], together), strict=True))
        return [
            outcomes[n] if n in outcomes else outcomes[next(m for m in kept if writes[m] == write)]
            for n, write in enumerate(writes)
        ]


@faulty_adapter("test_filters_see_what_annotations_left")
class FiltersAccessesAsTheyWerePut(InMemoryStore):
    """The column of accesses is written with the record, not with its annotations."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._put: dict[Key, Record] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        self._put |= {
            w.key: w.record for w in writes if isinstance(w, Put) and w.collection.name == "samples"
        }
        return await super()._apply(writes, together)

    async def _query(self, query: Query) -> Page:
        page = await super()._query(replace(query, filter=None, limit=10**9, cursor=None))
        wrong = {r.key for r in page.records if not self._lets(query.filter, r)}
        if (
            query.cursor is not None
            or not wrong
            or query.filter is None
            or "access" not in repr(query.filter)
        ):
            return await super()._query(query)
        return replace(page, records=tuple(r for r in page.records if r.key not in wrong))

    def _lets(self, part: Condition | None, stored: Stored) -> bool:
        put = self._put.get(stored.key)
        if isinstance(stored, Record) and put is not None:
            stored = replace(stored, accesses=put.accesses, accessed_at=put.accessed_at)
        return not isinstance(stored, Record) or lets_through(part, stored)


@faulty_adapter("test_an_annotation_keeps_all_other_bookkeeping")
class AnnotatingForgetsWhereACopyIsFrom(PerWrite):
    def lie(self, write: Write) -> Outcome:
        outcome = super().lie(write)
        stored = (
            self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Annotate) else None
        )
        if isinstance(write, Annotate) and isinstance(stored, Record) and outcome.applied:
            self.state.place(write.collection.name, write.key, replace(stored, cached_at=None, epoch=None))
        return outcome


@faulty_adapter("test_moments_of_other_zones_in_bookkeeping_are_the_same_moments")
class AnnotatesMomentsAsOnTheirClock(PerWrite):
    """Drops the zone of a moment in an annotation."""

    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Annotate):
            moments = {
                n: getattr(write, n).replace(tzinfo=UTC)
                for n in ("accessed_at", "discard_at")
                if getattr(write, n) is not None
            }
            write = replace(write, **moments)
        return super().lie(write)


@faulty_adapter("test_moments_of_other_zones_in_bookkeeping_are_the_same_moments")
class LeavesWithMomentsAsOnTheirClock(PerWrite):
    """Drops the zone of a moment in a deletion or release."""

    def lie(self, write: Write) -> Outcome:
        if isinstance(write, Delete | Release) and write.discard_at is not None:
            write = replace(write, discard_at=write.discard_at.replace(tzinfo=UTC))
        return super().lie(write)


# -- what is found ---------------------------------------------------------------------


@faulty_adapter("test_hits_without_content_show_the_tier_that_an_annotation_left")
class BareHitsShowTheTierOfTheIndex(InMemoryStore):
    """The index keeps a header of its own, written with the words."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tiers: dict[Key, tuple[int, str]] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = await super()._apply(writes, together)
        self._tiers |= {
            w.key: (w.record.version, w.record.tier)
            for w, o in zip(writes, outcomes, strict=True)
            if isinstance(w, Put) and o.applied
        }
        return outcomes

    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        if search.select:
            return hits
        return [
            replace(hit, head=replace(hit.head, tier=self._tiers.get(hit.head.key, (0, ""))[1]))
            for hit in hits
        ]


@faulty_adapter("test_questions_at_once_are_answered_each_for_itself")
class AnswersTheQuestionThatCameLast(InMemoryStore):
    """Keeps the question in the store while it waits for a connection."""

    async def _search(self, search: Search) -> list[Hit]:
        self._asked = search
        await asyncio.sleep(0)
        return await super()._search(self._asked)


@faulty_adapter("test_questions_at_once_are_answered_each_for_itself")
class CountsTheQuestionThatCameLast(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        self._counted = query
        await asyncio.sleep(0)
        return await super()._count(self._counted)


# -- lives -----------------------------------------------------------------------------


@faulty_adapter("test_collections_that_a_store_is_not_opened_with_are_kept")
class DropsCollectionsItIsNotOpenedWith(InMemoryStore):
    async def _open(self, collections: Sequence[Collection]) -> None:
        named = {c.name for c in collections}
        for name in [n for n in self.state.slots if n not in named]:
            for key in list(self.state.slots[name]):
                self.state.place(name, key, None)


class Mortal(InMemoryServer):
    """A server of which something is only in memory."""

    async def restart(self, store: Any) -> Any:
        again = await super().restart(store)
        assert isinstance(again, Dies)
        again.died()
        return again


class Dies(InMemoryStore):
    def died(self) -> None:
        raise NotImplementedError


@faulty_adapter("test_erasures_words_and_what_was_forgotten_survive_a_death", Mortal)
class LosesWordsWhenItDies(Dies):
    """The words are written at a good close; after a death nobody builds them anew."""

    def died(self) -> None:
        self.state.lost = {key for slots in self.state.slots.values() for key in slots}  # type: ignore[attr-defined]

    async def _search(self, search: Search) -> list[Hit]:
        lost: set[Key] = getattr(self.state, "lost", set())
        return [hit for hit in await super()._search(search) if hit.head.key not in lost]


@faulty_adapter("test_erasures_words_and_what_was_forgotten_survive_a_death", Mortal)
class LosesErasuresWhenItDies(Dies):
    def died(self) -> None:
        for name, key, old in getattr(self.state, "unsynced", []):
            self.state.place(name, key, old)

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        matching, _ = self._find_matches(query)
        self.state.unsynced = [(query.collection.name, s.key, s) for s in matching if isinstance(s, Record)]  # type: ignore[attr-defined]
        return await super()._delete_matching(query, version, discard_at, carry)


@faulty_adapter("test_erasures_words_and_what_was_forgotten_survive_a_death", Mortal)
class LosesTheLastGenerationWhenItDies(Dies):
    """Writes generations down with the next write of a record."""

    def died(self) -> None:
        for partition, generation in getattr(self.state, "unsynced", {}).items():
            self.state.generations[partition] = generation

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        raised = {
            w.partition: self.state.generation(w.partition)
            for w in writes
            if isinstance(w, RaiseGeneration) and w.to != 0
        }
        self.state.unsynced = raised  # type: ignore[attr-defined]
        return await super()._apply(writes, together)


# -- upkeep ----------------------------------------------------------------------------


def _discard_what_is_past(state: State) -> None:
    now = datetime.now(UTC)
    for name, slots in state.slots.items():
        for key, standing in list(slots.items()):
            until = standing.expires_at if isinstance(standing, Record) else standing.discard_at
            if until is not None and until < now:
                state.place(name, key, None)


@faulty_adapter("test_upkeep_keeps_what_is_past_its_time")
class VacuumsWhatIsPastItsTime(InMemoryStore):
    async def _vacuum(self) -> int:
        _discard_what_is_past(self.state)
        return 1


@faulty_adapter("test_upkeep_keeps_what_is_past_its_time")
class RepairsAwayWhatIsPastItsTime(InMemoryStore):
    async def _audit(self, repair: bool) -> Audit:
        if repair:
            _discard_what_is_past(self.state)
        return Audit()


@faulty_adapter("test_an_audit_beside_writers_takes_their_writes_for_no_damage")
class TakesWritesBesideAnAuditForDamage(InMemoryStore):
    async def _audit(self, repair: bool) -> Audit:
        def versions() -> dict[Any, int]:
            return {
                (name, key): s.version for name, slots in self.state.slots.items() for key, s in slots.items()
            }

        before = versions()
        for _ in range(3):
            await asyncio.sleep(0)
        return Audit(len(before), () if versions() == before else ("the words are not those of the records",))


class Idle(InMemoryStore):
    def busy(self, partition: Partition) -> bool:
        raise NotImplementedError

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        kept = dict.fromkeys(
            [*self.state.generations, *(p for live in self.state.by_partition.values() for p in live)]
        )
        return [(p, self.state.generation(p)) for p in kept if not self.busy(p)][:limit]

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        standing = dict(await self._idle_partitions(1_000_000))
        forgotten = [p for p, generation in dict(idle).items() if standing.get(p) == generation]
        for partition in forgotten:
            self.state.generations.pop(partition, None)
        return len(forgotten)

    def _stands(
        self, partition: Partition, collections: Sequence[str], roles: frozenset[Role] = frozenset(Role)
    ) -> bool:
        records = any(
            r.role in roles for name in collections for r in self.state.live(name, within(partition))
        )
        return records or any(
            isinstance(s, Mark) and Partition(s.key.tenant, s.scope) == partition
            for name in collections
            for s in self.state.everything(name)
        )


EVERY = tuple(collection.name for collection in DECLARED)


@faulty_adapter("test_a_record_of_any_collection_and_role_is_something")
class TakesReplicasForNothing(Idle):
    def busy(self, partition: Partition) -> bool:
        return self._stands(partition, EVERY, frozenset({Role.HOME}))


@faulty_adapter("test_a_record_of_any_collection_and_role_is_something")
class TakesSmallCollectionsForNothing(Idle):
    def busy(self, partition: Partition) -> bool:
        return self._stands(partition, EVERY[:-1])


@faulty_adapter("test_a_partition_named_twice_is_forgotten_once")
class ForgetsOneTwice(InMemoryStore):
    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await super()._forget_partitions(idle) and len(
            [p for p, _ in idle if self.state.generation(p) == 0]
        )


@faulty_adapter("test_erasures_words_and_what_was_forgotten_survive_a_death", Mortal)
class RemembersForgottenPartitionsWhenItDies(Dies):
    def died(self) -> None:
        self.state.generations |= getattr(self.state, "forgotten", {})

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        before = dict(self.state.generations)
        count = await super()._forget_partitions(idle)
        self.state.forgotten = {p: g for p, g in before.items() if p not in self.state.generations}  # type: ignore[attr-defined]
        return count


@faulty_adapter("test_what_one_client_forgot_another_does_not_remember", InMemoryServer)
class KeepsGenerationsThatAnotherForgot(InMemoryStore):
    """Each client remembers the highest generation it saw."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._highest: dict[Partition, int] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        for write in writes:
            at = (
                write.partition
                if isinstance(write, RaiseGeneration)
                else write.record.partition
                if isinstance(write, Put)
                else None
            )
            if at is not None and self._highest.get(at, 0) > self.state.generation(at):
                self.state.generations[at] = self._highest[at]
        outcomes = await super()._apply(writes, together)
        for write in writes:
            if isinstance(write, RaiseGeneration):
                self._highest[write.partition] = self.state.generation(write.partition)
        return outcomes

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        self._highest.clear()
        return await super()._forget_partitions(idle)


class FindsNoDamageHarness(Sqlite):
    """Every audit finds all well."""

    name = "FindsNoDamage"

    def _store(self) -> Store:
        from memory.adapters.sql.sqlite.store import SqliteStore

        class FindsNoDamage(SqliteStore):
            async def _audit(self, repair: bool) -> Audit:
                return Audit()

        return FindsNoDamage(f"sqlite:///{self.folder / 'memory.db'}", name="sqlite")


class RepairsNothingHarness(Sqlite):
    """Tells of damage and leaves it."""

    name = "RepairsNothing"

    def _store(self) -> Store:
        from memory.adapters.sql.sqlite.store import SqliteStore

        class RepairsNothing(SqliteStore):
            async def _audit(self, repair: bool) -> Audit:
                return await super()._audit(False)

        return RepairsNothing(f"sqlite:///{self.folder / 'memory.db'}", name="sqlite")


FAULTY_ADAPTERS |= {
    kind.name: (kind, "test_an_audit_tells_of_damage_and_a_repair_undoes_it")
    for kind in (FindsNoDamageHarness, RepairsNothingHarness)
}
