"""Search with the advice of models.

The advisor can search for paraphrases of the question too, and a reranker can reorder
the hits. If an advisor fails, is late or returns nonsense, the hits stay as they were,
and the answer says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from memory.domain.entry import Entry
from memory.domain.errors import StoreError, error_text
from memory.domain.search_results import Expansion, Found, FoundEntry, Rerank, SearchResult
from memory.domain.session import HistoryItem
from memory.orchestrator.retrieval.choosing import initial_width
from memory.orchestrator.retrieval.search import EntrySearch
from memory.orchestrator.storage.placement import Placement
from memory.policies import expansion, rerank
from memory.policies.advisor_prompts import read_reply
from memory.policies.entry_query import EntryQuery
from memory.policies.ranking.fusion import RRF_K
from memory.policies.rerank import FINE, FIRST, Stage
from memory.ports.advisor import Advisor, Reranker
from memory.ports.concurrency import both_at_once, each_at_once

log = logging.getLogger(__name__)

T = TypeVar("T")

NOBODY_ASKED = frozenset({expansion.NOBODY, FIRST.nobody, FINE.nobody})
"""Notes that do not report a failure."""


class AdvisedSearch:
    """Searches with advisors. Each call must answer within the `advice` setting."""

    def __init__(
        self,
        entry_search: EntrySearch,
        placement: Placement,
        *,
        advisor: Advisor | None,
        reranker: Advisor | Reranker | None,
    ) -> None:
        self._entry_search = entry_search
        self._placement = placement
        self._advisor = advisor
        self._reranker = advisor if reranker is None else reranker

    def by(self, advisor: Advisor) -> AdvisedSearch:
        """Return the same search with another advisor. A separate reranker stays."""
        reranker = None if self._reranker is self._advisor else self._reranker
        return AdvisedSearch(self._entry_search, self._placement, advisor=advisor, reranker=reranker)

    async def search(
        self, asked: EntryQuery, text: str, *, explain: bool = False, expand: bool = False, stages: int = 0
    ) -> SearchResult:
        """Search, optionally for paraphrases too, and rerank in `stages` stages.

        A blank text browses, without advice.
        """
        if not text.strip() or not (expand or stages):
            return await self._entry_search.search(asked, text, explain=explain)
        wanted = replace(asked, limit=rerank.pool(asked.limit)) if stages else asked
        if expand:
            found = await self._search_expanded(wanted, text, explain)
        else:
            found = await self._entry_search.search(wanted, text, explain=explain)
        hits, reranked = await self._rerank(list(found), text, stages) if stages else (list(found), None)
        notes = [
            block.note
            for block in (found.expansion, reranked)
            if block is not None and block.note is not None
        ]
        degraded = [*found.degraded, *(note for note in notes if note not in NOBODY_ASKED)]
        left_out = found.left_out
        if (
            reranked is not None and reranked.applied
        ):  # the model gives no score: the reciprocal rank is the sort key
            hits = [replace(hit, score=1 / (RRF_K + place)) for place, hit in enumerate(hits, start=1)]
        if explain:
            hits = [
                replace(hit, explanation={**hit.explanation, "rank": place})
                for place, hit in enumerate(hits, start=1)
            ]
            beyond = left_out.get("beyond_limit", 0) + max(0, len(hits) - asked.limit)
            left_out = left_out | ({"beyond_limit": beyond} if beyond else {})
        return type(found)(
            hits[: asked.limit], degraded, left_out, expansion=found.expansion, rerank=reranked
        )

    # -- in other words ----------------------------------------------------------------

    async def _search_expanded(self, asked: EntryQuery, text: str, explain: bool) -> SearchResult:
        """Return the hits of the question and of its paraphrases as one ranking.

        The search for the question runs while the advisor makes the paraphrases.
        """
        deep = replace(asked, limit=initial_width(asked.limit))  # more candidates, since rankings are fused
        found, expanded = await both_at_once(
            self._entry_search.search(deep, text, explain=explain), self._paraphrase(text)
        )
        others = await each_at_once(
            [self._search_paraphrase(deep, query, explain) for query in expanded.queries]
        )
        results = dict(zip((text, *expanded.queries), (found, *others), strict=True))
        hits = _fuse(text, results, explain) if others else list(found)
        degraded = dict.fromkeys(note for result in results.values() for note in result.degraded)
        return type(found)(hits, degraded, found.left_out, expansion=expanded)

    async def _search_paraphrase(self, asked: EntryQuery, query: str, explain: bool) -> SearchResult:
        """Return the hits of a paraphrase.

        A store that fails now does not discard the hits of the question.
        """
        try:
            return await self._entry_search.search(asked, query, explain=explain)
        except StoreError as error:
            return SearchResult([], [str(error)])

    async def _paraphrase(self, text: str) -> Expansion:
        advisor = self._advisor
        if advisor is None:
            return Expansion(None, note=expansion.NOBODY)
        reply = read_reply(await self._advice(advisor.model, lambda: advisor.advise(expansion.prompt(text))))
        if reply is None:
            return Expansion(advisor.model, note=expansion.UNAVAILABLE)
        queries = tuple(expansion.paraphrases(reply, text))
        return Expansion(advisor.model, bool(queries), queries, None if queries else expansion.UNUSABLE)

    # -- in another order --------------------------------------------------------------

    async def _rerank(
        self, hits: list[FoundEntry], question: str, stages: int
    ) -> tuple[list[FoundEntry], Rerank]:
        told = Rerank(
            _model(self._reranker), fine_model=_model(self._advisor) if stages > 1 else None, stages=stages
        )
        if len(hits) < 2:  # nothing to reorder
            return hits, told
        hits, note = await self._by_stage(FIRST, self._reranker, hits, question)
        if note is not None or stages == 1:
            return hits, replace(told, applied=note is None, note=note)
        hits, note = await self._by_stage(FINE, self._advisor, hits, question)
        return hits, replace(told, applied=True, fine_applied=note is None, note=note)

    async def _by_stage(
        self, stage: Stage, by: Advisor | Reranker | None, hits: list[FoundEntry], question: str
    ) -> tuple[list[FoundEntry], str | None]:
        """Return the hits with the first of them reordered.

        If that fails, return them unchanged, with the reason.
        """
        if by is None:
            return hits, stage.nobody
        order = await self._order(stage, by, hits[: stage.most], question)
        if not order:
            return hits, stage.unavailable if order is None else stage.unusable
        return [hits[place] for place in rerank.complete_order(order, len(hits))], None

    async def _order(
        self, stage: Stage, by: Advisor | Reranker, hits: Sequence[FoundEntry], question: str
    ) -> list[int] | None:
        """Return the positions of the best hits; None if there is no answer."""
        shown = [_item_of(hit) for hit in hits]
        if isinstance(by, Reranker):
            texts = ["\n".join(filter(None, rerank.said_in(one))) for one in shown]

            async def score_places() -> list[int]:
                return rerank.by_scores(await by.score(question, texts), len(texts))

            return await self._advice(by.model, score_places)
        asking = rerank.prompt(question, shown, self._placement.now(), stage.excerpt_bytes)
        reply = read_reply(await self._advice(by.model, lambda: by.advise(asking)))
        return None if reply is None else rerank.parse_places(reply, len(shown))

    async def _advice(self, model: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Return a model's answer; None if it fails or is late."""
        try:
            async with asyncio.timeout(self._placement.settings.advice.total_seconds()):
                return await ask()
        except Exception as error:  # noqa: BLE001 - the code is foreign, and no search fails for it
            log.warning("advisor %s gave no answer: %s", model, error_text(error))
            return None


def _model(by: Advisor | Reranker | None) -> str | None:
    return None if by is None else by.model


def _name(hit: Found) -> str:
    """Return the identity of a hit."""
    return hit.entry.id if isinstance(hit, FoundEntry) else f"{hit.session_id}#{hit.item.number}"


def _item_of(hit: Found) -> Entry | HistoryItem:
    return hit.entry if isinstance(hit, FoundEntry) else hit.item


def _fuse(text: str, results: dict[str, SearchResult], explain: bool) -> list[FoundEntry]:
    """Return the fused hits of all queries.

    A hit of the question itself is shown as the question found it. The explanation has
    the rank of each query.
    """
    ranks: dict[str, dict[str, int]] = {}
    hits: dict[str, FoundEntry] = {}
    for query, result in results.items():
        for rank, hit in enumerate(result, start=1):
            known = hits.setdefault(_name(hit), hit)
            if known.relevance is not None and hit.relevance is not None and known.relevance < hit.relevance:
                hits[_name(hit)] = replace(known, relevance=hit.relevance)
            ranks.setdefault(_name(hit), {})[query] = rank
    order = expansion.fuse_rankings(
        text, {query: [_name(hit) for hit in result] for query, result in results.items()}
    )
    if not explain:
        return [replace(hits[entry_id], score=score) for entry_id, score in order]
    return [
        replace(
            hits[entry_id],
            score=score,
            explanation=hits[entry_id].explanation | {"queries": ranks[entry_id], "fused": round(score, 6)},
        )
        for entry_id, score in order
    ]
