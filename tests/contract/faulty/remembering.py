"""Lying stores of a fourth reading: about what is remembered of what is gone, of what
others did and of earlier runs, and about last pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.in_memory.state import State
from memory.domain.errors import NotOpen, StoreFull
from memory.ports.base import record_bytes
from memory.ports.collections import Collection
from memory.ports.contract.collections import SAMPLES
from memory.ports.heads import head_of
from memory.ports.query import (
    Count,
    Everywhere,
    Ge,
    Gt,
    Hit,
    Near,
    Page,
    Partitions,
    Query,
    RowType,
    Search,
    Tenant,
    Words,
    encode_cursor,
    within,
)
from memory.ports.query_evaluation import condition, position_of
from memory.ports.record import Corrupt, Key, Mark, Partition, Record, Role, Standing, Tombstone
from memory.ports.store import Health, Store
from memory.ports.text import bm25, count_words, query_words, rarity
from memory.ports.vector_scan import best, by_nearness
from memory.ports.writes import Outcome, Put, RaiseGeneration, Write
from tests.contract.faulty.registry import faulty_adapter, hit_of
from tests.contract.harnesses import InMemoryServer

LEFT = "test_every_operator_holds_for_what_was_left_as_for_records"
SEES = "test_a_client_sees_all_that_another_did_a_moment_ago"
SCORES = "test_scores_are_those_of_a_partition_that_never_held_what_is_gone"
TOGETHER = "test_several_partitions_have_the_statistics_of_one_that_holds_all_of_theirs"
GONE = "test_what_was_forgotten_is_forgotten_in_every_question_and_leaves_nothing"


# -- statistics that lag ---------------------------------------------------------------


class _Weighs(InMemoryStore):
    """Honest, but for what a faulty adapter says of the statistics."""

    def statistics(self, search: Search, lengths: Sequence[int]) -> tuple[int, float]:
        """How many records there are, and how long they are on average."""
        return len(lengths), sum(lengths) / len(lengths) if lengths else 0.0

    def weights(self, search: Search, record: Record) -> list[tuple[str, float]]:
        weights = search.collection.weights
        return [(text, weights[name]) for name, text in record.texts.items()]

    async def _search(self, search: Search) -> list[Hit]:
        if not isinstance(search.by, Words):
            return await super()._search(search)
        self._forget()
        name, wanted, lets_through = (
            search.collection.name,
            frozenset(query_words(search.by.text)),
            condition(search.filter),
        )
        if not wanted:
            return []
        records = [
            r
            for r in self.state.live(name, search.where)
            if r.role in search.roles and not self.state.is_damaged(name, r.key)
        ]
        counted = [(r, *count_words(self.weights(search, r), wanted)) for r in records]
        number, average = self.statistics(search, [length for _, _, length in counted])
        rarities = {w: rarity(number, sum(1 for _, found, _ in counted if w in found)) for w in wanted}
        scored = [
            (r, bm25(found, length, average, rarities))
            for r, found, length in counted
            if found and lets_through(r)
        ]
        return [hit_of(search, r, score) for r, score in best(scored, search.limit)]


@faulty_adapter(SCORES)
class RemembersTheAverageLengthOverAnErasure(_Weighs):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._averages: dict[object, float] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        self._averages.clear()
        return await super()._apply(writes, together)

    def statistics(self, search: Search, lengths: Sequence[int]) -> tuple[int, float]:
        number, average = super().statistics(search, lengths)
        return number, self._averages.setdefault((search.collection.name, search.where), average)


@faulty_adapter(SCORES)
class CountsRecordsThatMovedAway(_Weighs):
    def statistics(self, search: Search, lengths: Sequence[int]) -> tuple[int, float]:
        number, average = super().statistics(search, lengths)
        asked = search.where.partitions if isinstance(search.where, Partitions) else ()
        return number + sum(
            isinstance(s, Mark) and Partition(s.key.tenant, s.scope) in asked
            for s in self.state.everything("samples")
        ), average


@faulty_adapter(SCORES)
class CountsRecordsOfEveryRole(_Weighs):
    def statistics(self, search: Search, lengths: Sequence[int]) -> tuple[int, float]:
        _, average = super().statistics(search, lengths)
        return len(list(self.state.live(search.collection.name, search.where))), average


@faulty_adapter(TOGETHER)
class AveragesTheAveragesOfPartitions(_Weighs):
    def statistics(self, search: Search, lengths: Sequence[int]) -> tuple[int, float]:
        number, average = super().statistics(search, lengths)
        if not isinstance(search.where, Partitions):
            return number, average
        averages = []
        for place in dict.fromkeys(search.where.partitions):
            found = [
                count_words([(t, 1.0) for t in r.texts.values()], frozenset())[1]
                for r in self.state.live("samples", within(place))
            ]
            averages += [sum(found) / len(found)] if found else []
        return number, sum(averages) / len(averages) if averages else 0.0


@faulty_adapter(TOGETHER)
class SearchesEachPartitionByItself(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        if not isinstance(search.where, Partitions):
            return await super()._search(search)
        found = [
            await InMemoryStore._search(self, replace(search, where=within(p)))
            for p in dict.fromkeys(search.where.partitions)
        ]
        return sorted([hit for hits in found for hit in hits], key=lambda hit: (-hit.score, hit.head.key.id))[
            : search.limit
        ]


@faulty_adapter("test_every_text_part_is_found_and_heavier_parts_rank_higher")
class WeighsTextsByTheirPosition(_Weighs):
    def weights(self, search: Search, record: Record) -> list[tuple[str, float]]:
        parts = search.collection.texts
        return list(
            zip(
                [record.texts[p.name] for p in parts if p.name in record.texts],
                [p.weight for p in parts],
                strict=False,
            )
        )


@faulty_adapter("test_ties_come_by_id_and_the_limit_cuts_the_worst")
class TiesOfHeadersComeAsTheyWereStored(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        if search.select:
            return await super()._search(search)
        hits = await super()._search(replace(search, limit=10**9))
        stored = {key: n for n, key in enumerate(self.state.slots.get(search.collection.name, {}))}
        return sorted(hits, key=lambda hit: (-hit.score, stored[hit.head.key]))[: search.limit]


class _Sizes(State):
    """Adds up what is put, and takes away what is deleted, by partition."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[tuple[str, Partition], int] = {}

    def place(self, collection: str, key: Key, new: Standing | None) -> None:
        old = self.fetch_stored(collection, key)
        super().place(collection, key, new)
        if isinstance(new, Record):
            at = (collection, new.partition)
            self.sizes[at] = self.sizes.get(at, 0) + record_bytes(new)
        elif isinstance(old, Record):
            self.sizes[(collection, old.partition)] -= record_bytes(old)


@faulty_adapter("test_sizes_follow_every_kind_of_write")
class CountsTheBytesOfWhatWasReplaced(InMemoryStore):
    def __init__(self, *args: Any, state: State | None = None, **more: Any) -> None:
        super().__init__(*args, state=state or _Sizes(), **more)

    async def _count(self, query: Query) -> Count:
        counted = await super()._count(query)
        if not isinstance(query.where, Partitions) or not isinstance(self.state, _Sizes):
            return counted
        sizes = [
            self.state.sizes.get((query.collection.name, p), 0) for p in dict.fromkeys(query.where.partitions)
        ]
        return replace(counted, bytes=max(counted.bytes, sum(sizes)))


@faulty_adapter("test_sizes_follow_every_kind_of_write")
class CountsTheBytesOfWhatIsGone(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        counted = await super()._count(query)
        gone = sum(isinstance(s, Tombstone | Mark) for s in self.state.everything(query.collection.name))
        return replace(counted, bytes=counted.bytes + 500 * gone)


@faulty_adapter("test_sizes_follow_every_kind_of_write")
class ForeseesNoBody(InMemoryStore):
    """Tells beforehand what a record takes but for its body."""

    def counted_bytes(self, collection: Collection, record: Record) -> int:
        return super().counted_bytes(collection, replace(record, body={}))


# -- what was left ---------------------------------------------------------------------


@faulty_adapter(LEFT)
class KeepsTheUndatedForAFarFuture(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if not isinstance(query.filter, Gt | Ge) or query.filter.field != "discard_at":
            return page
        left = await super()._query(replace(query, filter=None))
        undated = [s for s in left.records if isinstance(s, Mark | Tombstone) and s.discard_at is None]
        return replace(page, records=tuple(sorted([*page.records, *undated], key=lambda s: s.key.id)))


@faulty_adapter(LEFT)
class ListsRecordsAloneBesideTombstones(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        return await super()._query(
            replace(query, types=frozenset({RowType.RECORD})) if RowType.RECORD in query.types else query
        )


@faulty_adapter(LEFT)
class FiltersMarksByTheirDatesAlone(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if query.types != {RowType.MARK} or query.filter is None:
            return page
        everything = await super()._query(replace(query, filter=None))
        holds = condition(query.filter)
        return replace(
            page,
            records=tuple(
                s for s in everything.records if isinstance(s, Mark) and holds(replace(s, owed=()))
            ),
        )


@faulty_adapter("test_the_last_page_has_no_cursor_also_where_it_is_just_full")
class GivesACursorBehindAFullLastPage(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if query.cursor is None or page.cursor is not None or len(page.records) != query.limit:
            return page
        last = page.records[-1]
        assert not isinstance(last, Corrupt)
        position = position_of(last, query.order)
        return replace(page, cursor=encode_cursor(position.values, position.id))


# -- what is forgotten -----------------------------------------------------------------


class _ForgetsAnotherMoment(State):
    """Forgets by ends that it rounds."""

    def rounded(self, at: datetime) -> datetime:
        return at.replace(microsecond=0)

    def forget(self, now: datetime) -> None:
        for collection, slots in self.slots.items():
            for key, standing in list(slots.items()):
                cached = not isinstance(standing, Record) or standing.role is Role.CACHED
                until = standing.expires_at if isinstance(standing, Record) else standing.discard_at
                if cached and until is not None and self.rounded(until) < now and not standing.owed:
                    self.place(collection, key, None)


class _ForgetsAQuarterEarly(_ForgetsAnotherMoment):
    def rounded(self, at: datetime) -> datetime:
        return at - timedelta(milliseconds=250) if at > datetime.now(UTC) - timedelta(days=1) else at


def _forgetting(name: str, state: type[State]) -> None:
    def begin(self: InMemoryStore, *args: Any, **more: Any) -> None:
        InMemoryStore.__init__(self, *args, **{**more, "state": more.get("state") or state()})

    made = type(name, (InMemoryStore,), {"__init__": begin, "__module__": __name__})
    faulty_adapter("test_nothing_is_forgotten_in_the_part_of_a_second_before_its_time", InMemoryServer)(made)


_forgetting("ForgetsInWholeSeconds", _ForgetsAnotherMoment)
_forgetting("ForgetsAQuarterOfASecondEarly", _ForgetsAQuarterEarly)


class _Hides(InMemoryStore):
    """What is past its time is no longer answered by its key, and goes when the store
    gets to it.
    """

    shown: ClassVar[frozenset[str]] = frozenset()

    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        if isinstance(search.by, Words) and "words" in self.shown:
            hits += [
                h
                for h in self._lost
                if h.head.key not in {x.head.key for x in hits} and "lantern" in search.by.text
            ]
        return hits[: search.limit]

    async def _count(self, query: Query) -> Count:
        counted = await super()._count(query)
        return replace(counted, records=counted.records + len(self._lost) * ("count" in self.shown))

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._lost: list[Hit] = []

    def _forget(self) -> None:
        before = [s for s in self.state.everything("samples") if isinstance(s, Record)]
        super()._forget()
        self._lost += [
            Hit(head_of(SAMPLES, r, frozenset()), 0.1)
            for r in before
            if self.state.fetch_stored("samples", r.key) is None
        ]


@faulty_adapter(GONE, InMemoryServer)
class FindsWhatItForgotByWords(_Hides):
    shown = frozenset({"words"})


@faulty_adapter(GONE, InMemoryServer)
class CountsWhatItForgot(_Hides):
    shown = frozenset({"count"})


# -- runs, clients, opening and closing ------------------------------------------------


@faulty_adapter("test_a_store_that_may_lose_data_tells_by_its_epoch_that_it_was_restarted")
class TogglesItsEpoch(InMemoryStore):
    @property
    def epoch(self) -> str:
        return str(1 + self.state.runs % 2)


@faulty_adapter("test_two_clients_are_of_one_run", InMemoryServer)
class HasAnEpochOfItsOwn(InMemoryStore):
    @property
    def epoch(self) -> str:
        return f"run of {id(self)}"

    async def _check(self) -> Health:
        return Health(ok=True, epoch=self.epoch)


@faulty_adapter("test_collections_that_a_store_is_not_opened_with_are_kept")
class KnowsTheCollectionsOfEarlierOpenings(InMemoryStore):
    async def open(self, collections: Sequence[Collection]) -> None:
        known = dict(self._collections)
        await super().open(collections)
        self._collections = {**known, **self._collections}


@faulty_adapter("test_a_store_closed_under_callers_lets_them_end_and_can_be_opened_again")
class KeepsWhatItSaidItWasClosedFor(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = await super()._apply(writes, together)
        await asyncio.sleep(0)
        if not self._opened:
            raise NotOpen(f"store '{self.name}'")
        return outcomes


class _Remembers(InMemoryStore):
    """A client that remembers something of what it saw when it was opened, and learns
    from its own writes.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._scopes: set[Partition] = set()
        self._tenants: set[str] = set()

    async def _open(self, collections: Sequence[Collection]) -> None:
        self._scopes = {p for live in self.state.by_partition.values() for p in live}
        self._tenants = {p.tenant for p in self._scopes}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        self._scopes |= {w.record.partition for w in writes if isinstance(w, Put)}
        self._tenants |= {p.tenant for p in self._scopes}
        return await super()._apply(writes, together)


@faulty_adapter(SEES, InMemoryServer)
class KnowsTheScopesItWasOpenedWith(_Remembers):
    def _find_matches(self, query: Query) -> tuple[list[Standing], list[Key]]:
        if not isinstance(query.where, Tenant):
            return super()._find_matches(query)
        scopes = tuple(p for p in self._scopes if p.tenant == query.where.tenant)
        return super()._find_matches(replace(query, where=Partitions(scopes))) if scopes else ([], [])


@faulty_adapter(SEES, InMemoryServer)
class KnowsTheTenantsItWasOpenedWith(_Remembers):
    def _find_matches(self, query: Query) -> tuple[list[Standing], list[Key]]:
        matching, corrupt = super()._find_matches(query)
        return (
            ([s for s in matching if s.key.tenant in self._tenants], corrupt)
            if isinstance(query.where, Everywhere)
            else (matching, corrupt)
        )


@faulty_adapter(SEES, InMemoryServer)
class ListsIdlePartitionsThatItSawItself(_Remembers):
    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        return [(p, g) for p, g in await super()._idle_partitions(limit) if p in self._scopes]


@faulty_adapter(SEES, InMemoryServer)
class RemembersGenerationsItRead(InMemoryStore):
    """Reading one twice asks the server once; what is written is decided there."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._read: dict[Partition, Outcome] = {}

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        (write, *more) = writes
        if more or not isinstance(write, RaiseGeneration) or write.to != 0:
            self._read.clear()
            return await super()._apply(writes, together)
        if write.partition not in self._read:
            (self._read[write.partition],) = await super()._apply(writes, together)
        return [self._read[write.partition]]


# -- vectors, and a full disk ----------------------------------------------------------


@faulty_adapter("test_vectors_of_other_dimensions_are_not_near_and_in_nobodys_way")
class ComparesVectorsByTheirBeginning(InMemoryStore):
    def cut(self, vector: bytes, dims: int) -> bytes:
        return vector[:dims]

    async def _search(self, search: Search) -> list[Hit]:
        if not isinstance(search.by, Near):
            return await super()._search(search)
        asked, lets_through = search.by.vector, condition(search.filter)
        records = [
            r
            for r in self.state.live(search.collection.name, search.where)
            if r.role in search.roles and lets_through(r)
        ]
        alike = {r.key: r for r in records if r.vector is not None and any(self.cut(r.vector, len(asked)))}
        hits = by_nearness(
            asked, [replace(r, vector=self.cut(r.vector or b"", len(asked))) for r in alike.values()]
        )
        return [hit_of(search, alike[r.key], score) for r, score in best(hits, search.limit)]


@faulty_adapter("test_vectors_of_other_dimensions_are_not_near_and_in_nobodys_way")
class FillsShortVectorsWithNought(ComparesVectorsByTheirBeginning):
    def cut(self, vector: bytes, dims: int) -> bytes:
        return vector.ljust(dims, b"\0") if len(vector) < dims else vector


class HasThreeMegabytes(InMemoryStore):
    """Honest: with room for so much content, and nothing of a call for which there is
    too little is kept.
    """

    room: int | None = None

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        before = self.state.snapshot()
        outcomes = await super()._apply(writes, together)
        if (
            self.room is not None
            and sum(
                record_bytes(s)
                for c in self.state.slots.values()
                for s in c.values()
                if isinstance(s, Record)
            )
            > self.room
        ):
            self.undo(before, writes)
            raise StoreFull(self.name, "there is no room left")
        return outcomes

    def undo(self, before: Any, writes: Sequence[Write]) -> None:
        self.state.restore(before)


class HonestRoom(InMemoryServer):
    """Not faulty: a store whose room is counted in bytes."""

    name = "HonestRoom"
    store_type = HasThreeMegabytes

    async def make_with_limited_space(self) -> Store:
        store = await self.make()
        assert isinstance(store, HasThreeMegabytes)
        store.room = 3 * 2**20
        return store

    async def make_room(self, store: Store) -> None:
        assert isinstance(store, HasThreeMegabytes)
        store.room = None


LAST = "test_of_a_call_whose_last_write_alone_finds_no_room_nothing_is_kept"


@faulty_adapter(LAST, HonestRoom)
class KeepsAllButTheLastOnAFullDisk(HasThreeMegabytes):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if self.room is None or together or len(writes) < 2:
            return await super()._apply(writes, together)
        return [
            *await HasThreeMegabytes._apply(self, writes[:-1], False),
            *await HasThreeMegabytes._apply(self, writes[-1:], False),
        ]


@faulty_adapter(LAST, HonestRoom)
class KeepsTombstonesOnAFullDisk(HasThreeMegabytes):
    def undo(self, before: Any, writes: Sequence[Write]) -> None:
        tombstoned: Mapping[str, list[Tombstone]] = {
            c: [s for s in x.values() if isinstance(s, Tombstone)] for c, x in self.state.slots.items()
        }
        super().undo(before, writes)
        for collection, tombstones in tombstoned.items():
            for tombstone in tombstones:
                self.state.place(collection, tombstone.key, tombstone)
