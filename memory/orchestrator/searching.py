"""Searching by words and by meaning, over every tier, each entry once.

Stores answer with headers and scores; what is shown is read from its home, so that a stale copy never shows what was edited, retired or erased.
A store that fails is left out and named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from memory.domain.entry import Entry
from memory.domain.errors import StoreError, StoreTimeout
from memory.domain.scope import Scope
from memory.domain.shown import Answer, Shown
from memory.orchestrator.browsing import BROWSED, Browsing, Lacking, outranks
from memory.orchestrator.collections import ENTRIES, ENTRY_VERSIONS
from memory.orchestrator.entry_records import entry_of
from memory.orchestrator.meaning import Meaning
from memory.orchestrator.past import entry_id, locate_each
from memory.orchestrator.placement import Placement
from memory.orchestrator.steps import step
from memory.policies.asked import Asked
from memory.policies.asking import read
from memory.policies.ranking import combine
from memory.policies.routing import TIERS
from memory.policies.visibility import accepts, filter_of
from memory.ports.by_words import rank_by_words
from memory.ports.collections import Collection
from memory.ports.heads import head_of
from memory.ports.nearness import best, by_nearness
from memory.ports.pace import paced
from memory.ports.query import MAX_LIMIT, VECTOR, WORDS, Head, Hit, In, Near, Order, Query, Search, Words, all_of, within
from memory.ports.record import Key, Record, Role, Stored
from memory.ports.scanning import scan
from memory.ports.store import Store

LOOKED_THROUGH = 1_000
"""How many of the newest entries are looked through by meaning where nothing has an index for it."""
SEARCHED = frozenset({Role.HOME, Role.ARRIVING, Role.REPLICA})


@dataclass(frozen=True, slots=True, repr=False)
class FoundEntry(Shown):
    """One search hit. `explanation` tells rank and score by each way of searching, and where the entry lives."""

    entry: Entry
    score: float
    explanation: dict[str, Any] = field(default_factory=dict)


class SearchResult(Answer[FoundEntry]):
    """Hits, best first. `degraded` names stores."""

    def unexplained(self) -> SearchResult:
        """The same hits without their explanations."""
        return SearchResult([replace(hit, explanation={}) for hit in self], self.degraded)


_Found: TypeAlias = tuple[Head | Record, float]
"""What was found and its score: of the past records, else heads."""


@dataclass(slots=True)
class _Candidate:
    """What was found of an entry: its newest copy, where that was, and the best score of each way of searching."""

    head: Head | Record
    store: Store
    scores: dict[str, float] = field(default_factory=dict)

    def meet(self, way: str, hit: _Found, store: Store, known_at: datetime | None) -> None:
        found, score = hit
        self.scores[way] = max(score, self.scores.get(way, -1.0))
        if outranks(found, self.head, known_at):
            self.head, self.store = found, store


class Searching:
    """Search."""

    def __init__(self, placement: Placement, browsing: Browsing, meaning: Meaning) -> None:
        self._placement = placement
        self._browsing = browsing
        self._meaning = meaning

    async def search(self, asked: Asked, text: str) -> SearchResult:
        """The best entries by words and by meaning, combined (see `policies.ranking`). A blank text browses (D54)."""
        if not text.strip():
            browsed = await self._browsing.browse(asked)
            return SearchResult([FoundEntry(e, 0.0, {"tier": e.tier}) for e in browsed], browsed.degraded)
        lacking = Lacking()
        pool = min(max(3 * asked.limit, 50), MAX_LIMIT)  # D82
        vector = await self._meaning.of_query(read(text).embedded)
        candidates: dict[str, _Candidate] = {}
        for store, collection in self._browsing.sources(asked):
            for way, hit in await self._hits(store, collection, asked, text, vector, pool, lacking):
                record_id = entry_id(hit[0])
                candidate = candidates.setdefault(record_id, _Candidate(hit[0], store))
                candidate.meet(way, hit, store, asked.known_at)
        found = await self._confirmed(candidates, asked, self._placement.now(), lacking)
        return SearchResult(found, lacking.notes)

    async def _hits(
        self, store: Store, collection: Collection, asked: Asked, text: str, vector: bytes | None, pool: int, lacking: Lacking
    ) -> list[tuple[str, _Found]]:
        """What the store finds, each hit with the way it was found. A way that fails is named, and takes nothing from the others.

        Contents come later, of those shown; of the past, where all that is found has to be judged, at once.
        """
        now = self._placement.now()
        where, condition = within(*asked.partitions), filter_of(asked, collection, now)
        ways: dict[str, Words | Near] = {"words": Words(text)} | ({} if vector is None else {"meaning": Near(vector)})
        indexed = {"words": store.capabilities.lexical, "meaning": store.capabilities.semantic}
        found: dict[str, Sequence[_Found]] = {}

        async def read(hits: Sequence[Hit]) -> Sequence[_Found]:
            if asked.known_at is None:
                return [(hit.head, hit.score) for hit in hits]
            rows = await store.get(collection, [hit.head.key for hit in hits])
            return [(row, hit.score) for row, hit in zip(rows, hits, strict=True) if isinstance(row, Record) and row.version == hit.head.version]

        async def by_index(way: str, by: Words | Near) -> None:
            found[way] = await read(await store.search(Search(collection, where, by, pool, condition, SEARCHED)))

        async def by_reading(unindexed: Sequence[str]) -> None:
            heads = await self._read_over(store, collection, asked, now, unindexed, lacking)
            if "words" in unindexed:
                found["words"] = await read(await rank_by_words(heads, collection, text, pool))
            if vector is not None and "meaning" in unindexed:
                found["meaning"] = await read([Hit(head, score) for head, score in best(by_nearness(vector, heads), pool)])

        async def on_their_way() -> None:
            owed = {(row.key, row.version): row for row in await self._browsing.owed_past(store, collection, asked, lacking)}
            heads = [head_of(ENTRY_VERSIONS, row, {WORDS}) for row in owed.values()]
            found["owed"] = [(owed[hit.head.key, hit.head.version], hit.score) for hit in await rank_by_words(heads, ENTRY_VERSIONS, text, pool)]

        asking: list[Callable[[], Coroutine[Any, Any, None]]] = [partial(by_index, way, by) for way, by in ways.items() if indexed[way]]
        asking += [partial(by_reading, unindexed)] if (unindexed := [way for way in ways if not indexed[way]]) else []
        asking += [on_their_way] if asked.known_at is not None else []
        with step("search"):
            await self._all_of(store, lacking, asking)
        by_words = [("words", hit) for way in ("words", "owed") for hit in found.get(way, ())]
        return by_words + [("meaning", hit) for hit in found.get("meaning", ()) if hit[1] > 0]

    async def _all_of(self, store: Store, lacking: Lacking, calls: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Make the calls side by side and wait for all, also where one fails: none goes on behind the caller's back."""
        answers = await asyncio.gather(*(self._answered(store, call) for call in calls), return_exceptions=True)
        for error in answers:
            if isinstance(error, BaseException) and not isinstance(error, StoreError):
                raise error
            if error is not None:
                lacking.say(str(error))
        if answers and all(isinstance(error, StoreTimeout) for error in answers):
            lacking.silent.add(store)

    async def _answered(self, store: Store, call: Callable[[], Coroutine[Any, Any, None]]) -> StoreError | None:
        """The call is begun in its own task only: one that is cancelled before leaves nothing that was never awaited."""
        return await self._placement.answer(store, call())

    async def _read_over(
        self, store: Store, collection: Collection, asked: Asked, now: datetime, unindexed: Sequence[str], lacking: Lacking
    ) -> list[Head]:
        """The heads that are looked through, with their words and vectors, because no store has an index for a way of searching.

        For words all that are asked for. By meaning the newest of the tiers that are not found so elsewhere; the answer says where there are more.
        """
        where, condition = within(*asked.partitions), filter_of(asked, collection, now)
        if "words" not in unindexed:
            tiers = self._not_found_by_meaning(store) if "meaning" in unindexed and collection is ENTRIES else ()
            partitions = [p for p, s in zip(asked.partitions, asked.scopes, strict=True) if set(self._tiers_of(s)) & set(tiers)]
            if not partitions:
                return []
            where, condition = within(*partitions), all_of(condition, In("tier", tiers))
        select = frozenset({"words": WORDS, "meaning": VECTOR}[way] for way in unindexed)
        query = Query(collection, where, condition, (Order("created_at", descending=True),), LOOKED_THROUGH, roles=BROWSED, select=select)
        if "words" in unindexed:
            return [head async for page in scan(store, query, MAX_LIMIT) for head in page.heads]
        page = await store.query(query)
        if page.cursor is not None:
            lacking.say(f"store '{store.name}' has no index for meaning: by meaning only the newest {LOOKED_THROUGH} entries were looked through")
        return list(page.heads)

    def _not_found_by_meaning(self, store: Store) -> tuple[str, ...]:
        """The tiers whose homes are here and that neither this store nor one with replicas of them finds by meaning."""
        home = self._placement.topology.home
        here, kind = [tier for tier in TIERS if home(tier) is store], self._placement.kinds.of(ENTRIES)
        return tuple(t for t in here if not any(home(copy).capabilities.semantic for copy in (t, *kind.replicas(t))))

    def _tiers_of(self, scope: Scope) -> tuple[str, ...]:
        """The tiers where entries of this scope may have their home: moves go onward."""
        return TIERS[TIERS.index(self._placement.kinds.of(ENTRIES).route(scope.kind).tier) :]

    async def _confirmed(self, candidates: dict[str, _Candidate], asked: Asked, now: datetime, lacking: Lacking) -> list[FoundEntry]:
        """The best candidates as their homes say now. Who is gone, hidden or no longer matching makes room for the next."""
        if asked.known_at is not None:
            past = await self._browsing.known(await self._counting(candidates.values(), lacking), asked, lacking)
            shown = {entry_id(r): r for r in past}
            candidates = {i: candidates[i] for i in shown}
        else:
            shown = {}
        while True:
            ranked = combine(_scores(candidates, "words"), _scores(candidates, "meaning"))[: asked.limit]
            unread = [record_id for record_id, _ in ranked if record_id not in shown]
            if not unread:
                return await _explained(ranked, shown, candidates)
            homes = await self._homes({i: candidates[i] for i in unread}, asked.tenant, lacking)
            shown |= {i: home for i, home in homes.items() if accepts(home, asked, ENTRIES, now)}
            for record_id in unread:
                if record_id not in shown:
                    del candidates[record_id]

    async def _counting(self, candidates: Iterable[_Candidate], lacking: Lacking) -> list[Record]:
        """Of what a search of the past found: homes, kept versions, and arriving copies that their source has let go of."""
        rows = [c.head for c in candidates if isinstance(c.head, Record)]
        located, errors = await locate_each(self._placement, [row.key for row in rows if row.role is Role.ARRIVING])
        for error in errors:
            lacking.say(f"{error}; hits that could not be confirmed were left out")
        return [row for row in rows if row.role is Role.HOME] + [at.record for at in located if at.record is not None]

    async def _homes(self, candidates: dict[str, _Candidate], tenant: str, lacking: Lacking) -> dict[str, Record]:
        """The home of each. A hit on a home is read where it was found; where that has moved meanwhile, and for copies, homes are located."""
        homes: dict[str, Record] = {}
        failed = set[str]()
        for store in dict.fromkeys(c.store for c in candidates.values() if c.head.role is Role.HOME):
            there = [i for i, c in candidates.items() if c.store is store and c.head.role is Role.HOME]
            rows = await self._browsing.guarded(store, lacking, self._read(store, [Key(tenant, i) for i in there]))
            homes |= {r.key.id: r for r in rows or () if isinstance(r, Record) and r.role is Role.HOME}
            failed.update(there if rows is None else ())
        elsewhere = [Key(tenant, i) for i in candidates if i not in homes and i not in failed]
        located, errors = await locate_each(self._placement, elsewhere)
        for error in errors:
            lacking.say(f"{error}; hits that could not be confirmed were left out")
        return homes | {at.key.id: at.record for at in located if at.record is not None}

    @staticmethod
    async def _read(store: Store, keys: Sequence[Key]) -> list[Stored | None]:
        with step("read.home"):
            return await store.get(ENTRIES, keys)


def _scores(candidates: dict[str, _Candidate], way: str) -> dict[str, float]:
    return {i: c.scores[way] for i, c in candidates.items() if way in c.scores}


async def _explained(best: Sequence[tuple[str, float]], shown: dict[str, Record], candidates: dict[str, _Candidate]) -> list[FoundEntry]:
    """The hits, each with its rank and score by each way of searching, and where the entry lives."""
    places: dict[str, dict[str, int]] = {}
    for way in ("words", "meaning"):
        scores = _scores(candidates, way)
        places[way] = {i: n for n, i in enumerate(sorted(scores, key=lambda i: (-scores[i], i)), start=1)}
    hits = []
    async for record_id, score in paced(best):
        record, candidate = shown[record_id], candidates[record_id]
        ways = {f"by_{way}": {"rank": ranks[record_id], "score": candidate.scores[way]} for way, ranks in places.items() if record_id in ranks}
        hits.append(FoundEntry(entry_of(record), score, {**ways, "tier": record.tier, "store": candidate.store.name}))
    return hits
