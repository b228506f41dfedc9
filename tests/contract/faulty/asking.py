"""More lying stores: about large answers, erasure under filters, zones in questions,
and indexes that lag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.domain.errors import ConfigError, StoreError, StoreFull
from memory.ports.adapter import Adapter
from memory.ports.collections import Collection
from memory.ports.contract.collections import DECLARED
from memory.ports.query import (
    And,
    Condition,
    Count,
    Eq,
    Everywhere,
    Ge,
    Gt,
    Has,
    Hit,
    In,
    IsNull,
    Le,
    Lt,
    Near,
    Not,
    Or,
    Page,
    Query,
    RowType,
    Search,
    Words,
)
from memory.ports.query_evaluation import lets_through
from memory.ports.record import Key, Mark, Record, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Annotate, Outcome, Purge, Status, Write
from tests.contract.faulty.registry import HonestAtLength, PerWrite, faulty_adapter, hit_of
from tests.contract.harnesses import InMemory, InMemoryServer

SOME, MOST = 1_000, 10_000
"""Fewer than a quick run fills a store with, and fewer than a full one does."""

# -- volumes ---------------------------------------------------------------------------

MANY = "test_answers_over_ten_thousand_records_are_whole"


@faulty_adapter(MANY, HonestAtLength)
class StopsQueriesAtTenThousand(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        return replace(page, cursor=None) if len(page.records) == MOST else page


@faulty_adapter(MANY)
class CapsPagesAtAThousand(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        return await super()._query(replace(query, limit=min(query.limit, SOME)))


@faulty_adapter(MANY)
class StopsCountsAtAThousand(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        counted = await super()._count(query)
        return replace(counted, records=min(counted.records, SOME))


@faulty_adapter(MANY)
class GetsAThousandAtMost(InMemoryStore):
    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        found = await super()._get(collection, keys)
        return found[:SOME] + [None] * max(0, len(found) - SOME)


@faulty_adapter(MANY)
class MixesUpLargeGets(InMemoryStore):
    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        found = await super()._get(collection, keys)
        return found if len(found) <= SOME else sorted(found, key=lambda s: "" if s is None else s.key.id)


@faulty_adapter(MANY)
class FindsAThousandByWordsAtMost(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        return (await super()._search(search))[: SOME if isinstance(search.by, Words) else None]


@faulty_adapter(MANY)
class FindsAThousandByMeaningAtMost(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        return (await super()._search(search))[: SOME if isinstance(search.by, Near) else None]


@faulty_adapter(MANY)
class FiltersTheFirstThousand(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        if query.filter is None:
            return await super()._query(query)
        everything = await super()._query(replace(query, filter=None, limit=10**9, order=()))
        return Page(
            tuple(
                r
                for r in everything.records[:SOME]
                if isinstance(r, Record) and lets_through(query.filter, r)
            )
        )


@faulty_adapter(MANY)
class OrdersWithinAThousand(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        if query.order and query.cursor is None:
            first = (await super()._query(replace(query, order=(), limit=10**9))).records[:SOME]
            known = {r.key for r in first}
            return replace(page, records=tuple(r for r in page.records if r.key in known))
        return page


@faulty_adapter(MANY, HonestAtLength)
class ListsTenThousandEverywhere(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        return (
            replace(page, cursor=None)
            if isinstance(query.where, Everywhere) and len(page.records) >= MOST
            else page
        )


@faulty_adapter(MANY)
class ErasesAThousandAtMost(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        page = await super()._query(replace(query, limit=SOME, order=(), cursor=None))
        some = In("id", tuple(r.key.id for r in page.records))
        return await super()._delete_matching(replace(query, filter=some), version, discard_at, carry)


@faulty_adapter(MANY, HonestAtLength)
class ListsTenThousandTombstones(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        page = await super()._query(query)
        return (
            replace(page, cursor=None)
            if RowType.TOMBSTONE in query.types and len(page.records) == MOST
            else page
        )


@faulty_adapter(MANY)
class CountsErasedInPortions(InMemoryStore):
    """Its last portion is the count it returns."""

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        count = await super()._delete_matching(query, version, discard_at, carry)
        return count if count <= 500 else count % 500


# -- erasure under filters -------------------------------------------------------------

ERASED = "test_deleting_under_every_kind_of_filter_deletes_what_a_query_finds"


def _contains(part: Condition | None, kind: type) -> bool:
    if isinstance(part, And | Or):
        return isinstance(part, kind) or any(_contains(p, kind) for p in part.parts)
    return isinstance(part, kind) or (isinstance(part, Not) and _contains(part.part, kind))


def _erasing(name: str, kind: type, instead: Callable[[Query], Query]) -> None:
    """A faulty adapter that takes one kind of filter for another when it erases."""

    async def delete(
        self: InMemoryStore, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        return await InMemoryStore._delete_matching(
            self, instead(query) if _contains(query.filter, kind) else query, version, discard_at, carry
        )

    faulty_adapter(ERASED)(type(name, (InMemoryStore,), {"_delete_matching": delete, "__module__": __name__}))


_erasing("ErasesWhateverTag", Has, lambda query: replace(query, filter=None))
_erasing("ErasesNothingByChoice", In, lambda query: replace(query, filter=Or(())))
_erasing("ErasesNothingWithoutAValue", IsNull, lambda query: replace(query, filter=Or(())))
_erasing("ErasesWhateverNegated", Not, lambda query: replace(query, filter=None))
_erasing("ErasesAllOfEither", Or, lambda query: replace(query, filter=None))


def _bounded(kind: type[Le | Ge | Gt], other: type[Lt | Gt | Ge]) -> Callable[[Query], Query]:
    return lambda query: (
        replace(query, filter=other(query.filter.field, query.filter.value))
        if isinstance(query.filter, kind)
        else query
    )


_erasing("ErasesNothingAtItsUpperEnd", Le, _bounded(Le, Lt))
_erasing("ErasesNothingAtItsLowerEnd", Ge, _bounded(Ge, Gt))
_erasing("ErasesWhatStandsAtTheEndToo", Gt, _bounded(Gt, Ge))


@faulty_adapter("test_deleting_what_matches_touches_no_mark_and_no_tombstone")
class BuriesMarksToo(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        for s in list(self.state.everything(query.collection.name)):
            if isinstance(s, Mark):
                self.state.place(query.collection.name, s.key, Tombstone(s.key, max(s.version + 1, version)))
        return await super()._delete_matching(query, version, discard_at, carry)


@faulty_adapter("test_deleting_what_matches_touches_no_mark_and_no_tombstone")
class BuriesTheDeadAgain(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        for s in list(self.state.everything(query.collection.name)):
            if isinstance(s, Tombstone):
                self.state.place(query.collection.name, s.key, replace(s, discard_at=discard_at))
        return await super()._delete_matching(query, version, discard_at, carry)


@faulty_adapter("test_tombstones_of_an_erasure_keep_their_end_in_utc")
class DropsTheZoneOfErasures(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        return await super()._delete_matching(
            query, version, None if discard_at is None else discard_at.replace(tzinfo=UTC), carry
        )


# -- zones -----------------------------------------------------------------------------

ZONES = "test_a_moment_of_another_zone_asks_for_the_same_moment"


def _local(part: Condition) -> Condition:
    """What a driver makes of moments when it prints them without their zone."""
    if isinstance(part, And | Or):
        return type(part)(tuple(map(_local, part.parts)))
    if isinstance(part, Not):
        return Not(_local(part.part))
    if isinstance(part, In):
        return In(
            part.field, tuple(v.replace(tzinfo=UTC) if isinstance(v, datetime) else v for v in part.values)
        )
    if isinstance(part, Eq | Lt | Le | Gt | Ge) and isinstance(part.value, datetime):
        return replace(part, value=part.value.replace(tzinfo=UTC))
    return part


@faulty_adapter(ZONES)
class AsksByTheWallClock(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        return await super()._query(
            query if query.filter is None else replace(query, filter=_local(query.filter))
        )


@faulty_adapter(ZONES)
class CountsByTheWallClock(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        return await super()._count(
            query if query.filter is None else replace(query, filter=_local(query.filter))
        )


@faulty_adapter(ZONES)
class ChoosesByTheWallClock(InMemoryStore):
    async def _query(self, query: Query) -> Page:
        return await super()._query(
            replace(query, filter=_local(query.filter)) if isinstance(query.filter, In) else query
        )


@faulty_adapter(ZONES)
class SearchesByTheWallClock(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        return await super()._search(
            search if search.filter is None else replace(search, filter=_local(search.filter))
        )


# -- indexes that lag ------------------------------------------------------------------

FOLLOWS = "test_what_is_found_follows_every_kind_of_departure_and_change_of_role"


class _Remembers(InMemoryStore):
    """Its index of vectors learns of puts alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._before: dict[Key, Record] = {}

    def stale(self, write: Write) -> bool:
        raise NotImplementedError

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        for write in writes:
            key = getattr(write, "key", None)
            stands = None if key is None else self.state.fetch_stored("samples", key)
            if isinstance(stands, Record) and self.stale(write):
                self._before[stands.key] = stands
            elif key is not None:
                self._before.pop(key, None)
        return await super()._apply(writes, together)

    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        known = {h.head.key for h in hits}
        more = [
            r
            for r in self._before.values()
            if r.key not in known and r.role in search.roles and r.vector and isinstance(search.by, Near)
        ]
        return [*hits, *(hit_of(search, r, -1.0) for r in more)][: search.limit]


@faulty_adapter(FOLLOWS)
class FindsPurgedByMeaning(_Remembers):
    def stale(self, write: Write) -> bool:
        return isinstance(write, Purge)


@faulty_adapter(FOLLOWS)
class FindsByTheRoleOfThePut(_Remembers):
    def stale(self, write: Write) -> bool:
        return isinstance(write, Annotate)


@faulty_adapter(FOLLOWS)
class FindsErasedByMeaning(InMemoryStore):
    _erased: tuple[Record, ...] = ()

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        self._erased = tuple(self.state.live(query.collection.name, query.where))
        return await super()._delete_matching(query, version, discard_at, carry)

    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        return (
            hits
            if isinstance(search.by, Words)
            else [*hits, *(hit_of(search, r, -1.0) for r in self._erased if r.vector)]
        )


@faulty_adapter("test_collections_are_searched_and_asked_apart")
class SearchesEveryCollection(InMemoryStore):
    async def _search(self, search: Search) -> list[Hit]:
        hits = await super()._search(search)
        for other in DECLARED:
            if other.name != search.collection.name and other.texts and isinstance(search.by, Words):
                hits += await super()._search(replace(search, collection=other))
        return hits[: search.limit]


@faulty_adapter("test_collections_are_searched_and_asked_apart")
class CountsEveryCollection(InMemoryStore):
    async def _count(self, query: Query) -> Count:
        mine = await super()._count(query)
        others = [c for c in DECLARED if c.name != query.collection.name]
        more = [await InMemoryStore._count(self, replace(query, collection=c, filter=None)) for c in others]
        return replace(mine, records=mine.records + sum(c.records for c in more))


@faulty_adapter("test_collections_are_searched_and_asked_apart")
class ErasesEveryCollection(InMemoryStore):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        for other in DECLARED:
            if other.name != query.collection.name:
                await super()._delete_matching(Query(other, query.where), version, discard_at, frozenset())
        return await super()._delete_matching(query, version, discard_at, carry)


@faulty_adapter("test_together_that_failed_leaves_no_trace_in_generations_or_indexes")
class IndexesWhatItTookBack(InMemoryStore):
    _ghosts: tuple[Record, ...] = ()

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes = await super()._apply(writes, together)
        if together and not all(o.applied for o in outcomes):
            self._ghosts = tuple(w.record for w in writes if hasattr(w, "record") and w.record.texts)
        return outcomes

    async def _search(self, search: Search) -> list[Hit]:
        return [*await super()._search(search), *(hit_of(search, r, 0.1) for r in self._ghosts)]


# -- building, and a full disk ---------------------------------------------------------

BUILDS = "test_an_adapter_refuses_wrong_urls_and_options_by_name_and_shows_no_secret"


def building(name: str, build: Callable[[str, str, Any], Store]) -> None:
    """A faulty adapter whose store is honest and whose adapter is not."""
    adapter = Adapter(schemes=("memory",), claims=InMemoryStore.claims, build=build)
    base = type(
        f"{name}Base", (InMemory,), {"adapter": adapter, "urls": ("memory://",), "__module__": __name__}
    )
    faulty_adapter(BUILDS, base)(type(name, (InMemoryStore,), {"__module__": __name__}))


def _loose(name: str, url: str, options: Any) -> Store:
    return InMemoryStore(name)


def _raw(name: str, url: str, options: Any) -> Store:
    def strict() -> Store:
        return InMemoryStore(name)

    return strict(**options)


def _telling(name: str, url: str, options: Any) -> Store:
    if options or not url.startswith("memory:"):
        raise ConfigError(f"store '{name}': cannot use {url} with {dict(options)}")
    return InMemoryStore(name)


def _touching(name: str, url: str, options: Any) -> Store:
    import socket

    if options or not url.startswith("memory:"):
        raise ConfigError(f"store '{name}': takes no such thing as {', '.join(options)}")
    with socket.socket() as looking:
        looking.connect_ex(("127.0.0.1", 1))
    return InMemoryStore(name)


building("TakesEveryOption", _loose)
building("LetsATypeErrorThroughWhenBuilt", _raw)
building("ShowsSecretsWhenItCannotBeBuilt", _telling)
building("ConnectsWhenBuilt", _touching)


@dataclass
class _Room:
    left: int = 10**9
    """Calls that still go through."""


class HasADisk(PerWrite):
    """Honest: raises StoreFull on a full disk, and nothing of the call is kept."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.room = _Room()

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if not self.room.left:
            raise StoreFull(self.name, "the disk is full")
        self.room.left -= 1
        return await super()._apply(writes, together)


class HonestDisk(InMemoryServer):
    """Not faulty: a store whose disk may be full."""

    name = "HonestDisk"
    store_type = HasADisk

    async def make_with_limited_space(self) -> Store:
        store = await self.make()
        assert isinstance(store, HasADisk)
        store.room.left = 20
        return store

    async def make_room(self, store: Store) -> None:
        assert isinstance(store, HasADisk)
        store.room.left = 10**9


FULL = "test_a_full_store_says_so_keeps_what_it_has_and_works_again_with_room"


@faulty_adapter(FULL, HonestDisk)
class KeepsHalfOnAFullDisk(HasADisk):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if not self.room.left:
            await InMemoryStore._apply(self, writes[:1], False)
        return await super()._apply(writes, together)


@faulty_adapter(FULL, HonestDisk)
class FailsWithoutAReasonOnAFullDisk(HasADisk):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if not self.room.left:
            raise StoreError(self.name, "I/O error")
        return await super()._apply(writes, together)


@faulty_adapter(FULL, HonestDisk)
class AcknowledgesOnAFullDisk(HasADisk):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        return (
            await super()._apply(writes, together)
            if self.room.left
            else [Outcome(Status.APPLIED, version=1) for _ in writes]
        )


@faulty_adapter(FULL, HonestDisk)
class StaysFull(HasADisk):
    stuck = False

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        self.stuck = self.stuck or not self.room.left
        if self.stuck:
            raise StoreFull(self.name, "the disk is full")
        return await super()._apply(writes, together)


@faulty_adapter(FULL, HonestDisk)
class CannotReadWhenFull(HasADisk):
    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        if not self.room.left:
            raise StoreFull(self.name, "the disk is full")
        return await super()._get(collection, keys)
