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
from memory.ports.record import Key, Mark, Partition, Record, Role
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

    async def everything(self, tenant: str, scope: Scope | None) -> AsyncIterator[Entry]:
        """Every live entry of a tenant or scope, store by store in the direction records move, oldest first in each; each once."""
        now, seen = self._placement.now(), set[str]()
        where = Tenant(tenant) if scope is None else within(Partition(tenant, scope.text))
        for store in self._placement.topology.homes:
            query = Query(ENTRIES, where, order=(Order("created_at"),), limit=self._placement.settings.page, roles=BROWSED)
            while True:
                with step("browse.everything"):
                    page = await store.query(query)
                self._say_corrupt(store, page.corrupt)
                for row in await self._counting(store, ENTRIES, [r for r in page.records if isinstance(r, Record)]):
                    if row.key.id not in seen and not is_expired(row, now) and is_current(row, now):
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
        found: dict[str, Record] = {}
        scores: dict[str, dict[str, float]] = {"words": {}, "meaning": {}}
        stores: dict[str, str] = {}
        for store, collection in self._sources(asked):
            hits = await self._guarded(store, degraded, self._candidates(store, collection, asked, text, vector, pool, now))
            for way, hit in hits or []:
                record_id = entry_id(hit.record)
                scores[way][record_id] = max(hit.score, scores[way].get(record_id, -1.0))
                stores[record_id] = store.name
                self._merge(found, [hit.record])
        found = await self._hydrated(found, asked, now, degraded)
        return SearchResult(self._ranked(found, scores, stores, asked.limit), degraded)

    async def _candidates(
        self, store: Store, collection: Collection, asked: Asked, text: str, vector: bytes | None, pool: int, now: datetime
    ) -> list[tuple[str, Hit]]:
        where, condition = within(*asked.partitions), self._filter(asked, collection, now)
        hits: list[tuple[str, Hit]] = []
        with step("search"):
            if store.capabilities.lexical:
                by_words = await store.search(Search(collection, where, Words(text), pool, condition, SEARCHED))
            else:
                page = await store.query(Query(collection, where, condition, roles=BROWSED))
                by_words = rank_by_words([r for r in page.records if isinstance(r, Record)], collection, text, pool)
            by_words += rank_by_words(await self._owed_past(store, collection, asked, now), ENTRY_VERSIONS, text, pool)
            hits += [("words", hit) for hit in by_words]
            if vector is not None and store.capabilities.semantic:
                near = await store.search(Search(collection, where, Near(vector), pool, condition, SEARCHED))
                hits += [("meaning", hit) for hit in near if hit.score > 0]
        return hits

    async def _hydrated(self, found: dict[str, Record], asked: Asked, now: datetime, degraded: list[str]) -> dict[str, Record]:
        """Copies replaced by their homes; what is gone, hidden or no longer matching is dropped."""
        copies = [r.key for r in found.values() if r.role is not Role.HOME]
        homes: dict[str, Record] = {}
        if asked.known_at is not None:
            try:
                past = await still_living(self._placement, asked.tenant, [r for r in found.values() if r.role is Role.HOME])
                return {entry_id(r): r for r in past}
            except StoreError as error:
                degraded.append(f"{error.store}: {error.problem}; whether past entries still live could not be told")
                return {}
        if copies:
            try:
                located = await self._placement.locate_many(ENTRIES, copies)
                homes = {at.key.id: at.record for at in located if at.record is not None}
            except StoreError as error:
                degraded.append(f"{error.store}: {error.problem}; hits that could not be confirmed were left out")
        whole = {i: r if r.role is Role.HOME else homes.get(i) for i, r in found.items()}
        # A home passed the filter where it was found; what was read by id has yet to.
        return {i: r for i, r in whole.items() if r is not None and (found[i].role is Role.HOME or self._accepts(r, asked, now))}

    def _ranked(self, found: dict[str, Record], scores: dict[str, dict[str, float]], stores: dict[str, str], limit: int) -> list[FoundEntry]:
        live = {way: {i: s for i, s in by_id.items() if i in found} for way, by_id in scores.items()}
        ranks = {way: sorted(by_id, key=lambda i: (-by_id[i], i)) for way, by_id in live.items()}
        places = {way: {i: n for n, i in enumerate(ids, start=1)} for way, ids in ranks.items()}
        hits = []
        for record_id, score in combine(live["words"], live["meaning"])[:limit]:
            record = found[record_id]
            ways = {f"by_{way}": {"rank": places[way][record_id], "score": scores[way][record_id]} for way in places if record_id in places[way]}
            hits.append(FoundEntry(entry_of(record), score, {**ways, "tier": record.tier, "store": stores[record_id]}))
        return hits

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
            if there is None or (row.version, row.role is Role.HOME) > (there.version, there.role is Role.HOME):
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
