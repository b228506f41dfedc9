"""Reading many: browsing in order, and searching by words and by meaning, over every tier, each record once.

Stores are asked in the direction records move. An arriving copy counts only when its source shows a mark to it; hits on replicas are
hydrated from home, so that a stale copy never shows what was edited, retired or erased. A store that fails is left out and named.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeVar

from memory.domain.entry import Entry
from memory.domain.errors import StoreError, StoreTimeout
from memory.domain.scope import Scope
from memory.domain.time import micros
from memory.orchestrator.entries import is_active, is_current, is_expired
from memory.orchestrator.entry_records import entry_of
from memory.orchestrator.meaning import Meaning
from memory.orchestrator.past import entry_id, on_their_way, still_living
from memory.orchestrator.placement import Placement
from memory.orchestrator.steps import step
from memory.policies.ranking import combine, rank_by_words
from memory.ports.collections import ENTRIES, ENTRY_VERSIONS, Collection
from memory.ports.query import Filter, Ge, Gt, Has, Hit, In, IsNull, Le, Near, Or, Order, Query, Search, Tenant, Words, all_of, within
from memory.ports.record import Key, Mark, Partition, Record, Role, Stored
from memory.ports.store import Store

log = logging.getLogger(__name__)
T = TypeVar("T")

BROWSED = frozenset({Role.HOME, Role.ARRIVING})
SEARCHED = frozenset({Role.HOME, Role.ARRIVING, Role.REPLICA})


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted: scopes of one tenant and filters, all of which apply before the limit (A33)."""

    tenant: str
    scopes: tuple[Scope, ...]
    tags: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    since: datetime | None = None
    as_of: datetime | None = None
    known_at: datetime | None = None
    order: Literal["newest", "oldest"] = "newest"
    limit: int = 20

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(Partition(self.tenant, s.text) for s in self.scopes)


class Retrieved(list[Entry]):
    """Entries found, in order. `degraded` names stores that were left out and why; empty when the answer is whole."""

    def __init__(self, entries: Sequence[Entry] = (), degraded: Sequence[str] = ()) -> None:
        super().__init__(entries)
        self.degraded = tuple(degraded)


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """One search hit. `explanation` tells rank and score by each way of searching, and where the entry lives."""

    entry: Entry
    score: float
    explanation: dict[str, Any] = field(default_factory=dict)


class SearchResult(list[FoundEntry]):
    """Hits, best first. `degraded` names stores that were left out and why; empty when the answer is whole."""

    def __init__(self, hits: Sequence[FoundEntry] = (), degraded: Sequence[str] = ()) -> None:
        super().__init__(hits)
        self.degraded = tuple(degraded)

    def unexplained(self) -> SearchResult:
        """The same hits without their explanations."""
        return SearchResult([replace(hit, explanation={}) for hit in self], self.degraded)


@dataclass(slots=True)
class _Candidate:
    """What was found of an entry: its newest copy, where that was, and the best score of each way of searching."""

    record: Record
    store: Store
    scores: dict[str, float] = field(default_factory=dict)

    def meet(self, way: str, hit: Hit, store: Store) -> None:
        self.scores[way] = max(hit.score, self.scores.get(way, -1.0))
        if _outranks(hit.record, self.record):
            self.record, self.store = hit.record, store


class Retrieval:
    """Browse and search."""

    def __init__(self, placement: Placement, meaning: Meaning) -> None:
        self._placement = placement
        self._meaning = meaning

    # -- browse -------------------------------------------------------------------------------------------------------

    async def browse(self, asked: Asked) -> Retrieved:
        """The newest (or oldest) entries by creation, ties by id in the same direction (A32)."""
        now, degraded = self._placement.now(), list[str]()
        found: dict[str, Record] = {}
        for store, collection in self._sources(asked):
            rows = await self._guarded(store, degraded, self._gather(store, collection, asked, now))
            self._merge(found, rows or [])
        newest = asked.order == "newest"
        ordered = sorted(found.values(), key=lambda r: (r.created_at, entry_id(r)), reverse=newest)
        return Retrieved([entry_of(r) for r in ordered[: asked.limit]], degraded)

    async def _gather(self, store: Store, collection: Collection, asked: Asked, now: datetime) -> list[Record]:
        """Enough of one store's records, passing over arriving copies that do not count."""
        order = (Order("created_at", descending=asked.order == "newest"),)
        query = Query(collection, within(*asked.partitions), self._filter(asked, collection, now), order, asked.limit, roles=BROWSED)
        owed, kept = await self._owed_past(store, collection, asked, now), list[Record]()
        while True:
            with step("browse"):
                page = await store.query(query)
            self._say_corrupt(store, page.corrupt)
            rows = await self._counting(store, collection, [r for r in page.records if isinstance(r, Record)])
            kept += rows if asked.known_at is None else await still_living(self._placement, asked.tenant, rows)
            if page.cursor is None or len(kept) >= asked.limit:
                return owed + kept
            query = replace(query, cursor=page.cursor)

    async def _owed_past(self, store: Store, collection: Collection, asked: Asked, now: datetime) -> list[Record]:
        """Of what was known then, the versions that are not kept in the archive yet."""
        if asked.known_at is None or collection is not ENTRIES:
            return []
        versions = await on_their_way(store, within(*asked.partitions), asked.known_at)
        return await still_living(self._placement, asked.tenant, [v for v in versions if self._accepts(v, asked, now)])

    async def _counting(self, store: Store, collection: Collection, rows: Sequence[Record]) -> list[Record]:
        """The rows that count: homes, and arriving copies to which an earlier store shows a mark."""
        arriving = [r.key for r in rows if r.role is Role.ARRIVING]
        if not arriving:
            return list(rows)
        marked: set[Key] = set()
        for source in self._placement.topology.homes:
            if source is store:
                break
            with step("browse.marks"):
                stands = await source.get(collection, arriving)
            marked |= {s.key for s in stands if isinstance(s, Mark) and self._placement.topology.home(s.to) is store}
        return [r for r in rows if r.role is not Role.ARRIVING or r.key in marked]

    async def everything(self, tenant: str, scope: Scope | None, *, retired: bool = False) -> AsyncIterator[Entry]:
        """Every live entry of a tenant or scope, store by store in the direction records move, oldest first in each; each once.

        With `retired` also those whose window of validity has ended, or has not begun.
        """
        now, seen = self._placement.now(), set[str]()
        where = Tenant(tenant) if scope is None else within(Partition(tenant, scope.text))
        for store in self._placement.topology.homes:
            query = Query(ENTRIES, where, order=(Order("created_at"),), limit=self._placement.settings.page, roles=BROWSED)
            while True:
                with step("browse.everything"):
                    page = await store.query(query)
                self._say_corrupt(store, page.corrupt)
                for row in await self._counting(store, ENTRIES, [r for r in page.records if isinstance(r, Record)]):
                    if row.key.id not in seen and not is_expired(row, now) and (retired or is_current(row, now)):
                        seen.add(row.key.id)
                        yield entry_of(row)
                if page.cursor is None:
                    break
                query = replace(query, cursor=page.cursor)

    # -- search -------------------------------------------------------------------------------------------------------

    async def search(self, asked: Asked, text: str) -> SearchResult:
        """The best entries by words and by meaning, combined (see `policies.ranking`). A blank text browses (D54)."""
        if not text.strip():
            browsed = await self.browse(asked)
            return SearchResult([FoundEntry(e, 0.0, {"tier": e.tier}) for e in browsed], browsed.degraded)
        now, degraded = self._placement.now(), list[str]()
        pool = max(3 * asked.limit, 50)  # D82
        vector = await self._meaning.of_query(text)
        candidates: dict[str, _Candidate] = {}
        for store, collection in self._sources(asked):
            hits = await self._guarded(store, degraded, self._hits(store, collection, asked, text, vector, pool, now))
            for way, hit in hits or []:
                record_id = entry_id(hit.record)
                candidate = candidates.setdefault(record_id, _Candidate(hit.record, store))
                candidate.meet(way, hit, store)
        found = await self._confirmed(candidates, asked, now, degraded)
        return SearchResult(found, degraded)

    async def _hits(
        self, store: Store, collection: Collection, asked: Asked, text: str, vector: bytes | None, pool: int, now: datetime
    ) -> list[tuple[str, Hit]]:
        """What the store finds, each hit with the way it was found. Contents come later, of those shown; the past is not read again."""
        where, condition, whole = within(*asked.partitions), self._filter(asked, collection, now), asked.known_at is not None
        found = [self._by_words(store, Search(collection, where, Words(text), pool, condition, SEARCHED, whole), text)]
        if vector is not None and store.capabilities.semantic:
            found.append(store.search(Search(collection, where, Near(vector), pool, condition, SEARCHED, whole)))
        with step("search"):
            by_words, *near = await asyncio.gather(*found)
        by_words = by_words + rank_by_words(await self._owed_past(store, collection, asked, now), ENTRY_VERSIONS, text, pool)
        return [("words", hit) for hit in by_words] + [("meaning", hit) for hits in near for hit in hits if hit.score > 0]

    @staticmethod
    async def _by_words(store: Store, search: Search, text: str) -> list[Hit]:
        if store.capabilities.lexical:
            return await store.search(search)
        page = await store.query(Query(search.collection, search.where, search.filter, roles=BROWSED))
        return rank_by_words([r for r in page.records if isinstance(r, Record)], search.collection, text, search.limit)

    async def _confirmed(self, candidates: dict[str, _Candidate], asked: Asked, now: datetime, degraded: list[str]) -> list[FoundEntry]:
        """The best candidates as their homes say now. Who is gone, hidden or no longer matching makes room for the next."""
        if asked.known_at is not None:
            shown = await self._past(candidates, asked.tenant, degraded)
            candidates = {i: candidates[i] for i in shown}
        else:
            shown = {}
        while True:
            best = combine(_scores(candidates, "words"), _scores(candidates, "meaning"))[: asked.limit]
            unread = [record_id for record_id, _ in best if record_id not in shown]
            if not unread:
                return _explained(best, shown, candidates)
            homes = await self._homes({i: candidates[i] for i in unread}, asked.tenant, degraded)
            shown |= {i: home for i, home in homes.items() if self._accepts(home, asked, now)}
            for record_id in unread:
                if record_id not in shown:
                    del candidates[record_id]

    async def _past(self, candidates: dict[str, _Candidate], tenant: str, degraded: list[str]) -> dict[str, Record]:
        """Of versions that are past, those whose entry still lives."""
        try:
            past = await still_living(self._placement, tenant, [c.record for c in candidates.values() if c.record.role is Role.HOME])
        except StoreError as error:
            degraded.append(f"{error.store}: {error.problem}; whether past entries still live could not be told")
            return {}
        return {entry_id(r): r for r in past}

    async def _homes(self, candidates: dict[str, _Candidate], tenant: str, degraded: list[str]) -> dict[str, Record]:
        """The home of each. A hit on a home is read where it was found; where that has moved meanwhile, and for copies, homes are located."""
        homes: dict[str, Record] = {}
        failed = set[str]()
        for store in dict.fromkeys(c.store for c in candidates.values() if c.record.role is Role.HOME):
            there = [i for i, c in candidates.items() if c.store is store and c.record.role is Role.HOME]
            rows = await self._guarded(store, degraded, self._read(store, [Key(tenant, i) for i in there]))
            homes |= {r.key.id: r for r in rows or () if isinstance(r, Record) and r.role is Role.HOME}
            failed.update(there if rows is None else ())
        elsewhere = [Key(tenant, i) for i in candidates if i not in homes and i not in failed]
        try:
            located = await self._placement.locate_many(ENTRIES, elsewhere)
        except StoreError as error:
            degraded.append(f"{error.store}: {error.problem}; hits that could not be confirmed were left out")
            return homes
        return homes | {at.key.id: at.record for at in located if at.record is not None}

    @staticmethod
    async def _read(store: Store, keys: Sequence[Key]) -> list[Stored | None]:
        with step("read.home"):
            return await store.get(ENTRIES, keys)

    # -- shared -------------------------------------------------------------------------------------------------------

    def _sources(self, asked: Asked) -> list[tuple[Store, Collection]]:
        """Which stores to ask for what, in the direction records move."""
        sources = [(store, ENTRIES) for store in self._placement.topology.homes]
        return sources if asked.known_at is None else [*sources, (self._placement.topology.archive, ENTRY_VERSIONS)]

    async def _guarded(self, store: Store, degraded: list[str], call: Awaitable[T]) -> T | None:
        """The call's answer within the deadline; None where the store failed, which is then named."""
        try:
            async with asyncio.timeout(self._placement.settings.deadline.total_seconds()):
                return await call
        except TimeoutError:
            degraded.append(str(StoreTimeout(store.name, f"no answer within {self._placement.settings.deadline}")))
        except StoreError as error:
            degraded.append(str(error))
        return None

    @staticmethod
    def _merge(found: dict[str, Record], rows: Sequence[Record]) -> None:
        """By id, the newest version; between equals a home before a copy."""
        for row in rows:
            there = found.get(entry_id(row))
            if there is None or _outranks(row, there):
                found[entry_id(row)] = row

    def _filter(self, asked: Asked, collection: Collection, now: datetime) -> Filter | None:
        at = asked.as_of or asked.known_at
        known: list[Filter | None] = []
        if asked.known_at is not None:
            moment = micros(asked.known_at)
            known = [Le("version", moment)] if collection is ENTRIES else [Le("stored_version", moment), Gt("replaced_version", moment)]
        return all_of(
            Or((IsNull("expires_at"), Ge("expires_at", asked.known_at or now))),
            Le("valid_from", at) if at is not None else None,
            Or((IsNull("valid_to"), Gt("valid_to", at or now))),
            Ge("created_at", asked.since) if asked.since else None,
            In("type", asked.types) if asked.types else None,
            *(Has("tags", tag) for tag in asked.tags),
            *known,
        )

    @staticmethod
    def _accepts(record: Record, asked: Asked, now: datetime) -> bool:
        """The filter again, on a record read by id."""
        tags, at = record.fields.get("tags") or (), asked.as_of or asked.known_at
        return (
            record.partition in asked.partitions
            and not is_expired(record, asked.known_at or now)
            and (is_current(record, now) if at is None else is_active(record, at))
            and (asked.since is None or record.created_at >= asked.since)
            and (not asked.types or record.fields.get("type") in asked.types)
            and all(tag in tags for tag in asked.tags)  # type: ignore[operator]
        )

    @staticmethod
    def _say_corrupt(store: Store, corrupt: Sequence[Key]) -> None:
        for key in corrupt:
            log.warning("store '%s': record %s is corrupt and was passed over", store.name, key.id)


def _outranks(row: Record, other: Record) -> bool:
    """Of two copies of one entry the newer counts; between equals a home before a copy."""
    return (row.version, row.role is Role.HOME) > (other.version, other.role is Role.HOME)


def _scores(candidates: dict[str, _Candidate], way: str) -> dict[str, float]:
    return {i: c.scores[way] for i, c in candidates.items() if way in c.scores}


def _explained(best: Sequence[tuple[str, float]], shown: dict[str, Record], candidates: dict[str, _Candidate]) -> list[FoundEntry]:
    """The hits, each with its rank and score by each way of searching, and where the entry lives."""
    places: dict[str, dict[str, int]] = {}
    for way in ("words", "meaning"):
        scores = _scores(candidates, way)
        places[way] = {i: n for n, i in enumerate(sorted(scores, key=lambda i: (-scores[i], i)), start=1)}
    hits = []
    for record_id, score in best:
        record, candidate = shown[record_id], candidates[record_id]
        ways = {f"by_{way}": {"rank": ranks[record_id], "score": candidate.scores[way]} for way, ranks in places.items() if record_id in ranks}
        hits.append(FoundEntry(entry_of(record), score, {**ways, "tier": record.tier, "store": candidate.store.name}))
    return hits
