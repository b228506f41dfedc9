"""Search by words and by meaning, over every tier, each entry once.

Stores return columns that are ranked (see `policies.ranking`). Every shown entry is
read from its home, so that a stale copy never shows an entry that was edited, retired
or erased. A store that fails is left out and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from memory.domain.error_table import store_note
from memory.domain.search_results import Found, FoundEntry, MixedResult, SearchResult
from memory.domain.session import FoundMessage
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.embeddings.partition_indexes import PartitionIndexes
from memory.orchestrator.entries.browsing import EntryBrowser
from memory.orchestrator.retrieval.choosing import (
    FILTERED_OUT,
    NOT_CONFIRMED,
    NOT_SEARCHABLE,
    WITHHELD,
    HitReader,
    HitSelection,
    JoinedReader,
    choose_hits,
)
from memory.orchestrator.retrieval.long_texts import LongTexts
from memory.orchestrator.retrieval.message_candidates import heard_in
from memory.orchestrator.retrieval.message_search import MessageSearch
from memory.orchestrator.retrieval.past_candidates import PastCandidateCollector
from memory.orchestrator.retrieval.pool import CandidateCollector, Pool
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.deliveries import Deliveries
from memory.orchestrator.storage.entry_records import entry_of, is_searchable, said_by
from memory.orchestrator.storage.partial_answers import AnswerGaps
from memory.orchestrator.storage.past_versions import locate_each
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.policies.entry_filters import satisfies
from memory.policies.entry_query import EntryQuery
from memory.policies.passage_splitting import fine_spans_of
from memory.policies.question import Question, read
from memory.policies.visibility import predicate_of
from memory.ports.candidates import CandidateColumns, concatenate
from memory.ports.concurrency import both_at_once
from memory.ports.query import MAX_LIMIT
from memory.ports.record import Key, Record, Role, Stored
from memory.ports.store import Store

if TYPE_CHECKING:
    from memory.policies.ranking.order import Value


class EntrySearch:
    """Searches entries, and messages on request."""

    def __init__(
        self,
        placement: Placement,
        browser: EntryBrowser,
        embeddings: Embeddings,
        messages: MessageSearch,
        *,
        long_texts: LongTexts,
        partition_indexes: PartitionIndexes,
        deliveries: Deliveries,
    ) -> None:
        self._placement = placement
        self._browser = browser
        self._embeddings = embeddings
        self._messages = messages
        self._gathering = CandidateCollector(
            placement,
            browser,
            embeddings,
            long_texts=long_texts,
            partition_indexes=partition_indexes,
            deliveries=deliveries,
        )
        self._past = PastCandidateCollector(placement, browser, self._gathering, embeddings)

    async def search(self, asked: EntryQuery, text: str, *, explain: bool = False) -> SearchResult:
        """Return the best entries by words and by meaning (see `policies.ranking`).

        The result is a `MixedResult` if messages are requested too. A blank text
        without a vector browses entries.
        """
        result = cast("type[SearchResult]", MixedResult if asked.messages else SearchResult)
        if not text.strip() and asked.vector is None:
            browsed = await self._browser.browse(asked)
            return result(
                [FoundEntry(e, None, {"tier": e.tier} if explain else {}) for e in browsed],
                browsed.degraded,
                withheld=browsed.withheld,
            )
        await self._embeddings.check_relevance(asked.min_relevance, asked.mode)
        lacking = AnswerGaps()
        asked = await self._browser.exclude_blocked_sources(asked, lacking)
        if asked.mode != "lexical" and (lacks := self._embeddings.lacks) is not None:
            lacking.say(lacks)

        homes = dict[str, Record]()  # a record is read once, even if the query is repeated

        async def rank_candidates(question: Question, limit: int) -> HitSelection[Any, Found] | None:
            return await self._rank_pool(asked, question, limit, lacking, homes)

        choice = await choose_hits(read(text), asked.limit, rank_candidates)
        if choice is None:
            lacking.require_answer()
            return result([], lacking.notes, withheld=len(lacking.withheld))
        if choice.wants_more and asked.filter is not None:
            lacking.say(
                f"the filter was checked on the best {MAX_LIMIT:,} candidates, and fewer than the limit pass;"
                " browse with the same filter to find all"
            )
        shown = cast("list[FoundEntry]", [hit async for hit in choice.hits(explain)])
        if not shown:
            lacking.require_answer()
        return result(
            shown, lacking.notes, choice.left_out() if explain else None, withheld=len(lacking.withheld)
        )

    async def _rank_pool(
        self, asked: EntryQuery, question: Question, limit: int, lacking: AnswerGaps, homes: dict[str, Record]
    ) -> HitSelection[Any, Found] | None:
        """Return the ranked pool; None if it is empty."""
        from memory.policies.ranking.order import rank  # imports numpy: only searches need it

        near = asked.vector
        if near is None and asked.mode != "lexical":
            near = await self._embeddings.of_query(question.embedded, asked.mode, lacking)
        entries, said = await both_at_once(
            self._entries(asked, question, near, limit, lacking, homes),
            self._message_part(asked, question, near, limit, lacking),
        )
        pools = [pool for pool in (entries, said) if pool is not None and len(pool.measured)]
        if not pools:
            return None
        alone = [pool is said for pool in pools for _ in range(len(pool.measured))]
        measured, full = concatenate([pool.measured for pool in pools]), any(pool.full for pool in pools)
        scale = None if near is None else await self._embeddings.scale()
        ranked = rank(question, measured, near, asked, self._placement.now(), alone=alone, scale=scale)
        reading: HitReader[Any, Found] = (
            pools[0].reading
            if len(pools) == 1
            else JoinedReader(pools[0].reading, len(pools[0].measured), pools[1].reading)
        )
        there = {} if entries is None else entries.read
        passes = satisfies(asked.filter)
        gone = {row: FILTERED_OUT for row, record in there.items() if not passes(record)}
        gone |= {row: NOT_SEARCHABLE for row, record in there.items() if not is_searchable(record)}
        return HitSelection(asked, question, measured, ranked, reading, full=full, there=there, gone=gone)

    async def _entries(
        self,
        asked: EntryQuery,
        question: Question,
        near: bytes | None,
        limit: int,
        lacking: AnswerGaps,
        homes: dict[str, Record],
    ) -> _CandidateSet | None:
        """Return the candidates among entries."""
        records: dict[int, Record] = {}
        if asked.known_at is None:
            pool = await self._gathering.gather(asked, question, near, limit, lacking)
        elif (past := await self._past.gather(asked, question, near, limit, lacking)) is not None:
            pool, records = past
        else:
            pool = None
        if pool is None:
            return None
        return _CandidateSet(
            pool.measured,
            pool.full,
            _EntryReader(self._placement, self._browser, asked, pool, lacking, homes),
            records,
        )

    async def _message_part(
        self, asked: EntryQuery, question: Question, near: bytes | None, limit: int, lacking: AnswerGaps
    ) -> _CandidateSet | None:
        """Return the candidates among messages, if messages are requested."""
        heard = heard_in(asked) if asked.messages else None
        if heard is None:
            return None
        archive = self._placement.topology.archive
        if near is not None:
            await self._messages.gathering.ready()
        pool = await self._browser.try_call(
            archive, lacking, self._messages.gathering.gather(heard, question, near, limit, lacking)
        )
        if pool is None:
            return None
        return _CandidateSet(
            pool.measured,
            pool.full,
            _MessageReader(
                self._browser, archive, self._messages.message_reader(asked.tenant, pool), lacking
            ),
            {},
        )


@dataclass(frozen=True, slots=True, eq=False)
class _CandidateSet:
    """Candidates of one kind, their reader, and the records that are read already."""

    measured: CandidateColumns
    full: bool
    reading: HitReader[Any, Found]
    read: Mapping[int, Any]


class _MessageReader:
    """Reads messages. If their store fails, they are left out, and it is named."""

    def __init__(
        self,
        browser: EntryBrowser,
        archive: Store,
        messages: HitReader[FoundMessage, FoundMessage],
        lacking: AnswerGaps,
    ) -> None:
        self._browser, self._archive, self._messages, self._lacking = browser, archive, messages, lacking

    async def read(self, rows: Sequence[int]) -> tuple[Mapping[int, FoundMessage], Mapping[int, str]]:
        answer = await self._browser.try_call(self._archive, self._lacking, self._messages.read(rows))
        return ({}, dict.fromkeys(rows, NOT_CONFIRMED)) if answer is None else answer

    def texts_of(self, row: int, one: FoundMessage) -> Sequence[str]:
        return self._messages.texts_of(row, one)

    def hit(self, row: int, one: FoundMessage, value: Value, explanation: dict[str, Any]) -> FoundMessage:
        return self._messages.hit(row, one, value, explanation)


class _EntryReader:
    """Reads the current state of entries from their homes.

    `homes` has the entries that the search has read. They are not read again at the
    version that was found.
    """

    def __init__(
        self,
        placement: Placement,
        browser: EntryBrowser,
        asked: EntryQuery,
        pool: Pool,
        lacking: AnswerGaps,
        homes: dict[str, Record],
    ) -> None:
        self._placement, self._browser, self._asked, self._pool, self._lacking = (
            placement,
            browser,
            asked,
            pool,
            lacking,
        )
        self._read = homes
        self._lost = False
        """Whether a store failed when homes were located. It would fail again, each
        time after up to the deadline.
        """

    async def read(self, rows: Sequence[int]) -> tuple[Mapping[int, Record], Mapping[int, str]]:
        ids, versions = self._pool.measured.ids, self._pool.measured.versions
        known = {
            row: one
            for row in rows
            if (one := self._read.get(ids[row])) is not None and one.version == versions[row]
        }
        homes, unknown = await self._homes([row for row in rows if row not in known])
        self._read |= homes
        asked_for, there, gone = (
            predicate_of(self._asked, ENTRIES, self._placement.now()),
            dict[int, Record](),
            dict[int, str](),
        )
        passes = satisfies(self._asked.filter)
        for row in rows:
            record = known.get(row) or homes.get(ids[row])
            if record is not None and not is_searchable(record):
                gone[row] = NOT_SEARCHABLE
            elif record is not None and asked_for(record):
                there[row] = record
            elif record is not None and not passes(record):
                gone[row] = FILTERED_OUT
            else:
                gone[row] = NOT_CONFIRMED if ids[row] in unknown else "changed_since"
        let_out = await self._browser.let_out(list(there.values()), self._lacking)
        if len(let_out) < len(there):
            kept = {record.key for record in let_out}
            gone |= {row: WITHHELD for row, record in there.items() if record.key not in kept}
            there = {row: record for row, record in there.items() if record.key in kept}
        return there, gone

    async def _homes(self, rows: Sequence[int]) -> tuple[dict[str, Record], set[str]]:
        """Return the home of each row.

        A hit on a home is read where it was found. Homes are located if that one has
        moved meanwhile, and for arriving copies.
        """
        measured, tenant = self._pool.measured, self._asked.tenant
        homes: dict[str, Record] = {}
        failed = set[str]()
        there: dict[Store, list[str]] = {}
        for row in rows:
            if measured.roles[row] is Role.HOME:
                there.setdefault(self._pool.stores[row], []).append(measured.ids[row])
        for store, ids in there.items():
            stored = await self._browser.try_call(
                store, self._lacking, _get(store, [Key(tenant, i) for i in ids])
            )
            homes |= {r.key.id: r for r in stored or () if isinstance(r, Record) and r.role is Role.HOME}
            failed.update(ids if stored is None else ())
        elsewhere = [
            Key(tenant, measured.ids[row])
            for row in rows
            if measured.ids[row] not in homes and measured.ids[row] not in failed
        ]
        located, errors = ([], []) if self._lost else await locate_each(self._placement, elsewhere)
        self._lost = self._lost or bool(errors)
        for error in errors:
            self._lacking.say(store_note(error, "hits that could not be confirmed were left out"))
        homes |= {at.key.id: at.record for at in located if at.record is not None}
        return homes, failed | ({key.id for key in elsewhere} - {at.key.id for at in located})

    def texts_of(self, row: int, one: Record) -> Sequence[str]:
        return said_by(one)

    def hit(self, row: int, one: Record, value: Value, explanation: dict[str, Any]) -> FoundEntry:
        store = self._pool.stores[row]
        where: dict[str, Any] = {"tier": one.tier, "store": store.name} if explanation else {}
        if explanation and (read := self._lacking.chosen_from.get(store)) is not None:
            where["vectors_age"] = round((self._placement.now() - read).total_seconds(), 1)
        if (
            explanation
            and (part := self._pool.parts.get(one.key.id)) is not None
            and part < len(spans := fine_spans_of(one.texts.get("content", "")))
        ):
            where["part"] = {"number": part + 1, "of": len(spans), "characters": list(spans[part])}
        return FoundEntry(entry_of(one), value.score, explanation | where, value.relevance)


async def _get(store: Store, keys: Sequence[Key]) -> list[Stored | None]:
    with step("read.home"):
        return await store.get(ENTRIES, keys)
