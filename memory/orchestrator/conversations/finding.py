"""Messages found by words and by meaning, in one session or over many: a question to each store, both at once, then what became of the best."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from memory.domain.errors import InvalidInput, MemoryTiersError, StoreError
from memory.domain.session import FoundMessage, FoundMessages
from memory.orchestrator.at_once import both_at_once
from memory.orchestrator.collections import MESSAGES, PASSAGES, SESSIONS
from memory.orchestrator.conversations.events import Event
from memory.orchestrator.conversations.history import gone_from, item_of
from memory.orchestrator.conversations.log import Log
from memory.orchestrator.conversations.passages import said_at
from memory.orchestrator.conversations.sessions import SessionRecords, session_key
from memory.orchestrator.placement import Placement
from memory.orchestrator.steps import step
from memory.policies.asking import read
from memory.policies.ranking import combine
from memory.ports.by_words import rank_by_words
from memory.ports.query import MAX_LIMIT, WORDS, Filter, Hit, IsNull, Near, Not, Partitions, Query, Search, Tenant, Where, Words, all_of
from memory.ports.record import Key, Record
from memory.ports.store import Store

log = logging.getLogger(__name__)

SEARCHED = 200
"""Messages that are looked at beyond twice those asked for, to leave out those that were excluded."""
MADE_FIRST = 500
"""Messages written here, the newest ones, that are made ready to be found by meaning before a search."""

By: TypeAlias = Literal["both", "words", "meaning"]
WAYS = ("both", "words", "meaning")


@dataclass(slots=True)
class _ByMeaning:
    """The messages found so, by the ids of their records: the cosine of the best passage of each, and when the message said that."""

    scores: dict[str, float] = field(default_factory=dict)
    said_at: dict[str, int] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()


class Finding:
    """Finds messages."""

    def __init__(self, placement: Placement, sessions: SessionRecords) -> None:
        self._placement = placement
        self._sessions = sessions

    async def find(self, where: Partitions | Tenant, asked: Filter | None, text: str, limit: int, by: By = "both") -> FoundMessages:
        """The messages that answer best, archived ones too; not those that were excluded. Scores compare with each other, whichever the session."""
        store = self._sessions.passages.store
        if by == "meaning" and store is None:
            raise InvalidInput("by", f"messages are found by words alone: {self._sessions.passages.lacking}")
        most = min(SEARCHED + 2 * limit, MAX_LIMIT)
        words, near = await both_at_once(
            self._by_words(where, asked, text if by != "meaning" else "", most),
            self._by_meaning(store if by != "words" else None, where, asked, text, most),
        )
        ranked, found = combine(words, near.scores), list[FoundMessage]()
        for start in range(0, len(ranked), limit):
            found += await self._there(where.tenant, dict(ranked[start : start + limit]), words, near)
            if len(found) >= limit:
                break
        return FoundMessages(found[:limit], near.degraded)

    async def _by_words(self, where: Where, asked: Filter | None, text: str, most: int) -> dict[str, float]:
        if not text.strip():
            return {}
        return {hit.head.key.id: hit.score for hit in await self._hits(where, all_of(asked, Not(IsNull("number_in_conversation"))), text, most)}

    async def _hits(self, where: Where, asked: Filter | None, text: str, most: int) -> list[Hit]:
        store = self._placement.topology.archive
        if store.capabilities.lexical:
            with step("messages.search"):
                return list(await store.search(Search(MESSAGES, where, Words(text), most, asked)))
        query = Query(MESSAGES, where, asked, limit=self._placement.settings.page, select=frozenset({WORDS}))
        pages = self._placement.pages("messages.look", store, query)
        return await rank_by_words([head async for page in pages for head in page.heads], MESSAGES, text, most)

    async def _by_meaning(self, store: Store | None, where: Where, asked: Filter | None, text: str, most: int) -> _ByMeaning:
        """What was said here is made ready first. A store that fails takes nothing from what is found by words."""
        vector = None if store is None else await self._sessions.passages.vector_of(read(text).embedded)
        if store is None or vector is None:
            return _ByMeaning()
        try:
            await self._sessions.passages.catch_up(MADE_FIRST)
        except MemoryTiersError as error:
            log.info("what was said last is not found by meaning yet: %s", error)
        own, lacks = self._sessions.passages.own, self._sessions.passages.lacks
        search = Search(PASSAGES, where, Near(vector), most, all_of(asked, own), select=frozenset({"message"}))
        with step("passages.search"):
            hits = await self._placement.answer(store, store.search(search))
        if isinstance(hits, StoreError):
            return _ByMeaning(degraded=(str(hits),))
        near = _ByMeaning(degraded=(lacks,) if lacks else ())
        for hit in hits:  # the best first
            message = str(hit.head.fields["message"])
            if hit.score > 0 and message not in near.scores:
                near.scores[message], near.said_at[message] = hit.score, hit.head.version
        return near

    async def _there(self, tenant: str, scores: Mapping[str, float], words: Mapping[str, float], near: _ByMeaning) -> Sequence[FoundMessage]:
        """Those of the messages that a living session has and nobody excluded, as they are now; none that says something else since."""
        archive = self._placement.topology.archive
        with step("messages.read"):
            stored = await archive.get(MESSAGES, [Key(tenant, message) for message in scores])
        rows = [row for row in stored if isinstance(row, Record)]
        rows = [row for row in rows if row.key.id in words or near.said_at[row.key.id] == said_at(row)]
        keys = list(dict.fromkeys(session_key(row.key.tenant, str(row.fields["conversation_id"])) for row in rows))
        with step("session.read"):
            found = await archive.get(SESSIONS, keys) if keys else []
        sessions = [row for row in found if isinstance(row, Record) and not self._sessions.is_over(row)]
        logs: list[tuple[Log, list[Event]]] = [(log, log.events_of(rows)) for log in map(self._sessions.log, sessions)]
        gone = await gone_from(self._placement, logs)
        shown: list[FoundMessage] = []
        for log, events in logs:
            there = await log.whole([event for event in events if event.number is not None and gone[event.key].excluded is None])
            of = log.life.session_id
            shown += [FoundMessage(item_of(event, gone[event.key]), scores[event.key.id], of) for event in there if not event.is_redacted]
        return sorted(shown, key=lambda one: (-one.score, one.session_id, one.item.number))
