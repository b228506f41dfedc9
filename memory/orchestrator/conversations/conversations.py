"""Conversations: made, opened, listed, deleted."""

from __future__ import annotations

from memory.domain.errors import Conflict, NotFound
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import SessionDraft, SessionRecords
from memory.orchestrator.erasure import Erasure
from memory.orchestrator.outbox import Outbox
from memory.orchestrator.placement import Placement
from memory.policies.tokens import DefaultCounter
from memory.ports.record import Record
from memory.ports.tokens import TokenCounter


class Conversations:
    """The conversations of an engine."""

    def __init__(self, placement: Placement, *, outbox: Outbox, erasure: Erasure, counter: TokenCounter | None = None) -> None:
        self._placement = placement
        self.counter = counter or DefaultCounter()
        self.sessions = SessionRecords(placement, outbox=outbox, erasure=erasure)

    async def create(self, tenant: str, draft: SessionDraft) -> Conversation:
        """A new session. Raises `Conflict` where there is one of its id (B12)."""
        record, log = await self.sessions.create(tenant, draft)
        return Conversation(self._placement, self.sessions, record, log, self.counter)

    async def open(self, tenant: str, draft: SessionDraft, *, create: bool) -> Conversation:
        """The session of this id; where there is none it is created, or `NotFound` is raised (B19)."""
        session_id = str(draft.id)
        record = await self.find(tenant, session_id)
        if record is None and create:
            try:
                return await self.create(tenant, draft)
            except Conflict:
                record = await self.find(tenant, session_id)  # somebody was first
        if record is None:
            raise NotFound(session_id, "session")
        return Conversation(self._placement, self.sessions, record, self.sessions.log(record), self.counter)

    async def find(self, tenant: str, session_id: str) -> Record | None:
        """The session's own record; None where there is none."""
        try:
            return await self.sessions.record(tenant, session_id)
        except NotFound:
            return None
