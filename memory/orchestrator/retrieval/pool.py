"""Candidates for an answer, from all stores that can hold one.

Only homes, and copies that arrive at a home, are scored. Stores are asked in the
direction in which records move. If two homes were asked at once, a record that moves
between them could be missed.

A store without search by meaning is served by the store that has copies of its records.
The copies are searched first, and their hits are scored in the home store with all
other candidates, in one query. The same is true of records that this process has yet to
deliver to the copies, so that a search finds all earlier writes.

Passages of long texts are searched at the same time. Entries that only they found are
scored in the home store in a second query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from memory.domain.scope import Scope, Subtree
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.embeddings.partition_indexes import PartitionIndexes
from memory.orchestrator.embeddings.passages import FoundPassage as Passage
from memory.orchestrator.entries.browsing import EntryBrowser
from memory.orchestrator.retrieval.embedder_change import candidates_of
from memory.orchestrator.retrieval.long_texts import LongTexts, nearer
from memory.orchestrator.storage.collections import ENTRIES, SAID
from memory.orchestrator.storage.deliveries import Deliveries
from memory.orchestrator.storage.partial_answers import BROWSED, AnswerGaps
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.policies.entry_query import EntryQuery, where_of
from memory.policies.question import Question
from memory.policies.ranking.fields import BESIDE, SELECT
from memory.policies.routing import TIERS
from memory.policies.visibility import filter_of, period_bounds
from memory.ports.candidates import CandidateColumns, Candidates, concatenate, take_rows
from memory.ports.concurrency import both_at_once, each_at_once
from memory.ports.query import Ge, Hit, Lt, Near, Search, Where, all_of
from memory.ports.query_evaluation import condition
from memory.ports.record import Role
from memory.ports.store import Store
from memory.ports.vector_scan import best, by_nearness

COPIES = frozenset({Role.REPLICA})


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Candidates as columns, each entry once, and the store that returned each."""

    measured: CandidateColumns
    stores: Sequence[Store]
    full: bool
    """Whether a wider query may find more."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """The number of the nearest part, of entries that are nearest by a part of their
    text.
    """


@dataclass(frozen=True, slots=True)
class StoreQuery:
    """The query for one home store.

    `here` is the place that it searches by meaning itself, and `elsewhere` the place
    that is searched in copies; None if there is none.
    """

    store: Store
    here: Where | None
    elsewhere: Where | None
    copies: tuple[Store, ...]
    """The stores with copies of its records."""


class CandidateCollector:
    """Queries the stores for candidates."""

    def __init__(
        self,
        placement: Placement,
        browser: EntryBrowser,
        embeddings: Embeddings,
        *,
        long_texts: LongTexts,
        partition_indexes: PartitionIndexes,
        deliveries: Deliveries,
    ) -> None:
        self._placement = placement
        self._browser = browser
        self._embeddings = embeddings
        self._long_texts = long_texts
        self._partition_indexes = partition_indexes
        self._deliveries = deliveries

    def parts(self, asked: EntryQuery) -> list[StoreQuery]:
        """Return the stores that may have results, in the order of moves."""
        kind, home = self._placement.kinds.of(ENTRIES), self._placement.topology.home
        tiers = {scope: TIERS[TIERS.index(kind.route(scope.kind).tier) :] for scope in asked.scopes}
        found = []
        for store in self._placement.topology.homes:
            here, elsewhere = list[Scope | Subtree](), list[Scope | Subtree]()
            copies = dict[Store, None]()
            for scope, possible in tiers.items():
                homed = [
                    [home(copy) for copy in kind.replicas(tier)] for tier in possible if home(tier) is store
                ]
                if homed:
                    by_copies = all(any(copy.capabilities.semantic for copy in having) for having in homed)
                    (elsewhere if by_copies and not store.capabilities.semantic else here).append(scope)
                copies |= dict.fromkeys(copy for having in homed for copy in having if copy is not store)
            if here or elsewhere:
                own, copied = (where_of(asked.tenant, some) if some else None for some in (here, elsewhere))
                found.append(StoreQuery(store, own, copied, tuple(copies)))
        return found

    async def gather(
        self, asked: EntryQuery, question: Question, near: bytes | None, limit: int, lacking: AnswerGaps
    ) -> Pool | None:
        """Return the candidates of all stores, up to `limit` for each way of search.

        They come with their neighbours. As many more are of the period that the
        question names. A store that fails is named, and left out.
        """
        whole, parts = (
            replace(self.whole(asked, question, near, limit), select=SELECT | {SAID}),
            self.parts(asked),
        )
        (answers, full), passages = await both_at_once(
            self._all_answers(parts, self.with_period(whole, question), near, lacking),
            self._passages(whole, near, lacking),
        )
        others = passages.keys() - {i for _, answer in answers for i in answer.ids}
        if others:
            named = replace(
                whole, text="", near=None, dimensions=whole.width, among=tuple(others), statistics=False
            )
            for part in parts:
                answers += await self._query_part(part, replace(named, where=asked.place), None, lacking)
        pool = build_pool(answers, full or len(passages) >= limit)
        if pool is None:
            return None
        measured, nearest = nearer(pool.measured, near or b"", passages)
        return replace(pool, measured=measured, parts=nearest)

    async def _all_answers(
        self,
        parts: Sequence[StoreQuery],
        queries: Sequence[Candidates],
        near: bytes | None,
        lacking: AnswerGaps,
    ) -> tuple[list[tuple[Store, CandidateColumns]], bool]:
        """Return the answers to several queries, and whether there may be more."""
        answers, full = await self._answers(parts, queries[0], near, lacking)
        for one in queries[1:]:
            more, one_full = await self._answers(parts, one, near, lacking)
            answers, full = answers + more, full or one_full
        return answers, full

    async def _answers(
        self, parts: Sequence[StoreQuery], whole: Candidates, near: bytes | None, lacking: AnswerGaps
    ) -> tuple[list[tuple[Store, CandidateColumns]], bool]:
        """Return the answers of the homes, and whether there may be more."""
        if near:
            queued = self._queued_ids(
                parts, whole, near
            )  # first: records that leave the queue meanwhile are in the copies
            copied = await each_at_once(
                [self._by_copies(part, whole, near, lacking) for part in parts if part.elsewhere]
            )
            whole = replace(whole, among=tuple(dict.fromkeys(i for ids in (queued, *copied) for i in ids)))
        apart = replace(whole, near=None, dimensions=whole.width)
        answers: list[tuple[Store, CandidateColumns]] = []
        for part in parts:
            asking = [replace(whole, where=part.here)] if part.here else []
            asking += [replace(apart, where=part.elsewhere)] if part.elsewhere else []
            for one in asking:
                answers += await self._query_part(part, one, near, lacking)
        return answers, len(whole.among) >= whole.limit or any(
            len(answer) >= whole.limit for _, answer in answers
        )

    async def _passages(
        self, whole: Candidates, near: bytes | None, lacking: AnswerGaps
    ) -> dict[str, list[Passage]]:
        """Return the passages that are found by meaning, by entry id."""
        return (
            await self._long_texts.nearest(ENTRIES, whole.where, near, whole.limit, lacking) if near else {}
        )

    def whole(self, asked: EntryQuery, question: Question, near: bytes | None, limit: int) -> Candidates:
        """Return the query for a store with both ways of search, without a place."""
        by_words = asked.mode != "semantic"
        return Candidates(
            ENTRIES,
            asked.place,
            question.search_text if by_words else "",
            near,
            limit,
            around=BESIDE,
            counted=question.stems if by_words else (),
            filter=filter_of(asked, ENTRIES, self._placement.now()),
            roles=BROWSED,
            select=SELECT,
            statistics=by_words,
        )

    def with_period(self, whole: Candidates, question: Question) -> list[Candidates]:
        """Return the query, and the same for the period that the question names.

        Otherwise a day could be missed whose entries are like those of all other days.
        """
        today = self._placement.now().date()
        if (period := question.period(today)) is None:
            return [whole]
        begin, end = period_bounds(period, today)
        of_it = all_of(whole.filter, Ge("valid_from", begin), Lt("valid_from", end))
        return [whole, replace(whole, filter=of_it, statistics=False)]

    def _queued_ids(self, parts: Sequence[StoreQuery], whole: Candidates, near: bytes) -> list[str]:
        """Return the ids of the nearest records that are queued for the copies."""
        matches = condition(all_of(whole.filter, self._embeddings.own))
        asked = [part.elsewhere for part in parts if part.elsewhere]
        waiting = [record for record in self._deliveries.records(ENTRIES, asked) if matches(record)]
        return (
            [record.key.id for record, _ in best(by_nearness(near, waiting), whole.limit)] if waiting else []
        )

    async def _by_copies(
        self, part: StoreQuery, whole: Candidates, near: bytes, lacking: AnswerGaps
    ) -> list[str]:
        """Return the ids of a store's records that its copies find by meaning."""
        found = list[Hit]()
        for store in part.copies:
            if part.elsewhere and store.capabilities.semantic:
                own = all_of(whole.filter, self._embeddings.own)
                search = Search(ENTRIES, part.elsewhere, Near(near), whole.limit, own, COPIES)
                found += (
                    await self._browser.try_call(
                        store, lacking, self._search_store(store, search), shows=False
                    )
                    or []
                )
        return [hit.head.key.id for hit in found]

    @staticmethod
    async def _search_store(store: Store, search: Search) -> list[Hit]:
        with step("search.copies"):
            return await store.search(search)

    async def _query_part(
        self, part: StoreQuery, asked: Candidates, near: bytes | None, lacking: AnswerGaps
    ) -> list[tuple[Store, CandidateColumns]]:
        """Return the answer of a home store.

        If it fails, its copies are asked for candidates. Whether those may be shown is
        checked in the home store.
        """
        answer = await self._browser.try_call(
            part.store, lacking, self._candidates(part.store, asked, lacking)
        )
        if answer is not None:
            return [(part.store, answer)]
        answers: list[tuple[Store, CandidateColumns]] = []
        for store in (
            part.copies if part.store not in lacking.silent else ()
        ):  # it would not confirm them in time either
            copies = replace(
                asked,
                near=near if store.capabilities.semantic else None,
                dimensions=asked.width,
                among=(),
                roles=COPIES,
            )
            answer = await self._browser.try_call(
                store, lacking, self._candidates(store, copies, lacking), shows=False
            )
            answers += [] if answer is None else [(store, answer)]
        return answers

    async def _candidates(self, store: Store, asked: Candidates, lacking: AnswerGaps) -> CandidateColumns:
        with step("search"):
            return await candidates_of(
                lambda one: self._partition_indexes.candidates(store, one, lacking), asked, self._embeddings
            )


def build_pool(answers: Sequence[tuple[Store, CandidateColumns]], full: bool) -> Pool | None:
    """Return the answers of several stores as one pool.

    Of copies of one entry, the newer one counts, then the home. None if no store
    answered.
    """
    if not answers:
        return None
    whole = concatenate([answer for _, answer in answers])
    stores = [store for store, answer in answers for _ in answer.ids]
    ranks = list(zip(whole.versions, [role is Role.HOME for role in whole.roles], strict=True))
    rows: dict[str, int] = {}
    for row, record_id in enumerate(whole.ids):
        if record_id not in rows or ranks[row] > ranks[rows[record_id]]:
            rows[record_id] = row
    if len(rows) == len(whole):
        return Pool(whole, stores, full)
    return Pool(take_rows(whole, list(rows.values())), [stores[row] for row in rows.values()], full)
