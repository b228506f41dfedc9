"""Messages found by words, in one session or over many: one question to their store, then what became of the best."""

from __future__ import annotations

from collections.abc import Sequence

from memory.domain.session import FoundMessage
from memory.orchestrator.collections import MESSAGES, SESSIONS
from memory.orchestrator.conversations.events import Event
from memory.orchestrator.conversations.history import gone_from, item_of
from memory.orchestrator.conversations.log import Log
from memory.orchestrator.conversations.sessions import SessionRecords, session_key
from memory.orchestrator.placement import Placement
from memory.orchestrator.steps import step
from memory.policies.ranking import rank_by_words
from memory.ports.query import MAX_LIMIT, WORDS, Filter, Hit, IsNull, Not, Query, Search, Where, Words, all_of
from memory.ports.record import Record

SEARCHED = 200
"""Messages that are looked at beyond twice those asked for, to leave out those that were excluded."""


class Finding:
    """Finds messages."""

    def __init__(self, placement: Placement, sessions: SessionRecords) -> None:
        self._placement = placement
        self._sessions = sessions

    async def find(self, where: Where, asked: Filter | None, text: str, limit: int) -> list[FoundMessage]:
        """The messages that answer best, archived ones too; not those that were excluded. Scores compare with each other, whichever the session."""
        hits, found = await self._hits(where, all_of(asked, Not(IsNull("number_in_conversation"))), text, min(SEARCHED + 2 * limit, MAX_LIMIT)), []
        for start in range(0, len(hits), limit):
            found += await self._there(hits[start : start + limit])
            if len(found) >= limit:
                break
        return found[:limit]

    async def _hits(self, where: Where, asked: Filter | None, text: str, most: int) -> list[Hit]:
        store = self._placement.topology.archive
        if store.capabilities.lexical:
            with step("messages.search"):
                return list(await store.search(Search(MESSAGES, where, Words(text), most, asked)))
        query = Query(MESSAGES, where, asked, limit=self._placement.settings.page, select=frozenset({WORDS}))
        pages = self._placement.pages("messages.look", store, query)
        return await rank_by_words([head async for page in pages for head in page.heads], MESSAGES, text, most)

    async def _there(self, hits: Sequence[Hit]) -> list[FoundMessage]:
        """Those of the hits that a living session has and nobody excluded, as they are now."""
        archive = self._placement.topology.archive
        with step("messages.read"):
            rows = [row for row in await archive.get(MESSAGES, [hit.head.key for hit in hits]) if isinstance(row, Record)]
        keys = list(dict.fromkeys(session_key(row.key.tenant, str(row.fields["conversation_id"])) for row in rows))
        with step("session.read"):
            found = await archive.get(SESSIONS, keys) if keys else []
        sessions = [row for row in found if isinstance(row, Record) and not self._sessions.is_over(row)]
        logs: list[tuple[Log, list[Event]]] = [(log, log.events_of(rows)) for log in map(self._sessions.log, sessions)]
        gone, scores = await gone_from(self._placement, logs), {hit.head.key: hit.score for hit in hits}
        shown: list[FoundMessage] = []
        for log, events in logs:
            there = await log.whole([event for event in events if event.number is not None and gone[event.key].excluded is None])
            of = log.life.session_id
            shown += [FoundMessage(item_of(event, gone[event.key]), scores[event.key], of) for event in there if not event.is_redacted]
        return sorted(shown, key=lambda one: (-one.score, one.session_id, one.item.number))
