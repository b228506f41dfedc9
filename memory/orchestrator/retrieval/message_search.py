"""Search in messages by words and by meaning, in one session or over many.

Messages are ranked like entries, and the best are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memory.domain.errors import InvalidInput
from memory.domain.session import FoundMessage, FoundMessages
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.log.events import Event, found_by
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.log.passages import said_at
from memory.orchestrator.conversations.sessions import SessionRecords
from memory.orchestrator.conversations.window.history import item_of, window_exits_of
from memory.orchestrator.retrieval.choosing import HitSelection, choose_hits
from memory.orchestrator.retrieval.message_candidates import (
    MessageCandidateCollector,
    MessagePool,
    MessageQuery,
)
from memory.orchestrator.storage.collections import MESSAGES, SESSIONS
from memory.orchestrator.storage.partial_answers import AnswerGaps
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.session_keys import session_key
from memory.policies.entry_query import EntryQuery, SearchMode
from memory.policies.question import Question, read
from memory.policies.ranking.preferences import Preferences
from memory.ports.query import Condition, Partitions, Tenant
from memory.ports.record import Key, Record

if TYPE_CHECKING:
    from memory.policies.ranking.order import Value
    from memory.policies.ranking.relevance import EmbedderScale

INDIFFERENT = Preferences(intent=False, age_decay=False)
"""Messages have no preferences: neither intent nor age changes their score."""


class MessageSearch:
    """Finds messages."""

    def __init__(self, placement: Placement, sessions: SessionRecords) -> None:
        self._placement = placement
        self._sessions = sessions
        self.gathering = MessageCandidateCollector(placement, sessions.passages)

    async def find_in(
        self,
        conversation: Conversation,
        text: str,
        limit: int,
        mode: SearchMode = "hybrid",
        least: float | None = None,
    ) -> FoundMessages:
        """Find messages of one session. See `find`.

        Raises:
            NotFound: The session has ended.
        """
        return await self.find(await conversation.search_scope(), None, text, limit, mode, least)

    async def find(
        self,
        where: Partitions | Tenant,
        asked: Condition | None,
        text: str,
        limit: int,
        mode: SearchMode = "hybrid",
        least: float | None = None,
    ) -> FoundMessages:
        """Return the messages that answer best, archived ones too.

        Excluded messages are left out.
        """
        passages, lacking = self._sessions.passages, AnswerGaps()
        if mode == "semantic" and passages.store is None:
            raise InvalidInput(
                "mode",
                f"'semantic' is not possible here: {passages.lexical_only_reason}. Use 'lexical' or 'hybrid'",
            )
        if not text.strip():
            return FoundMessages()
        await passages.check_relevance(least, mode)
        heard = MessageQuery(where, asked, mode)

        async def rank_candidates(
            question: Question, width: int
        ) -> HitSelection[FoundMessage, FoundMessage] | None:
            near = (
                None
                if mode == "lexical" or passages.store is None
                else await passages.vector_of(question.embedded, mode, lacking)
            )
            if near is not None:
                await self.gathering.ready()
            pool = await self.gathering.gather(heard, question, near, width, lacking)
            wanted = EntryQuery(
                where.tenant, (), limit=limit, mode=mode, preferred=INDIFFERENT, min_relevance=least
            )
            return self._rank_pool(
                wanted, question, near, pool, None if near is None else await passages.scale()
            )

        choice = await choose_hits(read(text), limit, rank_candidates)
        return FoundMessages(
            [] if choice is None else [hit async for hit in choice.hits(explain=False)], lacking.notes
        )

    def message_reader(self, tenant: str, pool: MessagePool) -> MessageReader:
        return MessageReader(self._placement, self._sessions, tenant, pool)

    def _rank_pool(
        self,
        asked: EntryQuery,
        question: Question,
        near: bytes | None,
        pool: MessagePool,
        scale: EmbedderScale | None,
    ) -> HitSelection[FoundMessage, FoundMessage] | None:
        """Return the ranked pool; None if it is empty."""
        from memory.policies.ranking.order import rank  # imports numpy: only searches need it

        if not len(pool.measured):
            return None
        ranked = rank(question, pool.measured, near, asked, self._placement.now(), alone=True, scale=scale)
        return HitSelection(
            asked, question, pool.measured, ranked, self.message_reader(asked.tenant, pool), full=pool.full
        )


class MessageReader:
    """Reads messages.

    Only messages of a living session are returned, as they are now. Messages that were
    excluded, or whose text has changed since, are left out.
    """

    def __init__(
        self, placement: Placement, sessions: SessionRecords, tenant: str, pool: MessagePool
    ) -> None:
        self._placement, self._sessions, self._tenant, self._pool = placement, sessions, tenant, pool

    async def read(self, rows: Sequence[int]) -> tuple[Mapping[int, FoundMessage], Mapping[int, str]]:
        found = self._pool.measured
        archive = self._placement.topology.archive
        keys = {row: Key(self._tenant, found.ids[row]) for row in rows}
        stored = await self._placement.read_by_key("messages.read", archive, MESSAGES, list(keys.values()))
        there = await self._there(
            [
                one
                for row, key in keys.items()
                if isinstance(one := stored[key], Record) and self._says_so(row, one)
            ]
        )
        return {row: there[key] for row, key in keys.items() if key in there}, {
            row: "changed_since" for row, key in keys.items() if key not in there
        }

    def _says_so(self, row: int, message: Record) -> bool:
        """Return whether the message still has the text by which it was found.

        Its words are always current. Its vector may be of an earlier text.
        """
        vector_of = self._pool.said_at.get(message.key.id)
        return vector_of in (None, said_at(message)) or bool(self._pool.measured.counts[row].any())

    async def _there(self, rows: Sequence[Record]) -> dict[Key, FoundMessage]:
        of_sessions: dict[Key, list[Record]] = {}
        for row in rows:
            of_sessions.setdefault(
                session_key(row.key.tenant, str(row.fields["conversation_id"])), []
            ).append(row)
        found = await self._placement.read_by_key(
            "session.read", self._placement.topology.archive, SESSIONS, list(of_sessions)
        )
        sessions = [
            row for row in found.values() if isinstance(row, Record) and not self._sessions.is_over(row)
        ]
        logs: list[tuple[Log, list[Event]]] = [
            (log := self._sessions.log(row), log.events_of(of_sessions[row.key])) for row in sessions
        ]
        gone = await window_exits_of(self._placement, logs)
        shown: dict[Key, FoundMessage] = {}
        for log, events in logs:
            there = await log.whole(
                [event for event in events if event.number is not None and gone[event.key].excluded is None]
            )
            of = log.life.session_id
            shown |= {
                event.key: FoundMessage(item_of(event, gone[event.key]), None, of)
                for event in there
                if not event.is_redacted
            }
        return shown

    def texts_of(self, row: int, one: FoundMessage) -> Sequence[str]:
        return [found_by(one.message)]

    def hit(self, row: int, one: FoundMessage, value: Value, explanation: dict[str, Any]) -> FoundMessage:
        where = {"tier": "mid", "store": self._placement.topology.archive.name} if explanation else {}
        return FoundMessage(one.item, value.score, one.session_id, explanation | where, value.relevance)
