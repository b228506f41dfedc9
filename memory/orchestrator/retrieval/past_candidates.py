"""Candidates as of a past moment: entries and kept versions, each entry once."""

from __future__ import annotations

from dataclasses import replace

from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.entries.browsing import EntryBrowser, outranks
from memory.orchestrator.retrieval.embedder_change import candidates_of
from memory.orchestrator.retrieval.pool import CandidateCollector, Pool
from memory.orchestrator.storage.collections import ENTRY_VERSIONS, MODEL
from memory.orchestrator.storage.partial_answers import AnswerGaps
from memory.orchestrator.storage.past_versions import entry_id
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.policies.entry_query import EntryQuery
from memory.policies.question import Question
from memory.policies.visibility import filter_of
from memory.ports.candidate_scan import head_fields, measure_heads
from memory.ports.candidates import Candidates, Statistics
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.heads import head_of
from memory.ports.record import Key, Record
from memory.ports.store import Store


class PastCandidateCollector:
    """Gathers candidates from the past.

    Each is checked here already: whether a version was stored at the moment of the
    query depends on its entry too.
    """

    def __init__(
        self,
        placement: Placement,
        browser: EntryBrowser,
        gathering: CandidateCollector,
        embeddings: Embeddings,
    ) -> None:
        self._placement = placement
        self._browser = browser
        self._gathering = gathering
        self._embeddings = embeddings

    async def gather(
        self, asked: EntryQuery, question: Question, near: bytes | None, limit: int, lacking: AnswerGaps
    ) -> tuple[Pool, dict[int, Record]] | None:
        """Return the candidates with their records at that moment.

        Every store is searched by words and by meaning.
        """
        whole = replace(self._gathering.whole(asked, question, near, limit), where=asked.place)
        found, statistics, full = dict[str, tuple[Record, Store]](), Statistics(), False
        for store, collection in self._browser.sources(asked):
            there = replace(
                whole, collection=collection, filter=filter_of(asked, collection, self._placement.now())
            )
            for one in self._gathering.with_period(there, question):
                answer = await self._browser.try_call(store, lacking, self._of(store, one, asked, lacking))
                if answer is None:
                    break
                rows, counted = answer
                statistics, full = statistics + counted, full or len(rows) >= limit
                for row in rows:
                    other = found.get(entry_id(row))
                    if other is None or outranks(row, other[0], asked.known_at):
                        found[entry_id(row)] = (row, store)
        known = await self._browser.let_out(
            await self._browser.filter_known_at([row for row, _ in found.values()], asked, lacking), lacking
        )
        if not known:
            return None
        asks_all = replace(whole, collection=ENTRY_VERSIONS)
        heads = [
            head_of(ENTRY_VERSIONS, self._comparable(row), head_fields(asks_all))
            async for row in iterate_cooperatively(known)
        ]
        columns = replace(
            await measure_heads(asks_all, heads, statistics), ids=[entry_id(row) for row in known]
        )
        return Pool(columns, [found[entry_id(row)][1] for row in known], full), dict(enumerate(known))

    async def _of(
        self, store: Store, there: Candidates, asked: EntryQuery, lacking: AnswerGaps
    ) -> tuple[list[Record], Statistics]:
        """Return the authoritative candidates of one store, as they were scored.

        They include versions whose delivery to the archive is pending.
        """
        with step("search"):
            answer = await candidates_of(store.candidates, there, self._embeddings)
            rows = await store.get(there.collection, [Key(asked.tenant, i) for i in answer.ids])
        stood = [
            row
            for row, version in zip(rows, answer.versions, strict=True)
            if isinstance(row, Record) and row.version == version
        ]
        counting = await self._browser.authoritative_rows(store, there.collection, stood, lacking)
        return counting + await self._browser.owed_past(
            store, there.collection, asked, lacking
        ), answer.statistics

    def _comparable(self, row: Record) -> Record:
        """Return the record without a vector of another embedder."""
        return row if self._embeddings.is_own(row.fields.get(MODEL)) else replace(row, vector=None)
