"""The conversations of an engine: create, open, fork and find them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Literal

from memory.domain.entry import expiry
from memory.domain.errors import Conflict, MemoryTiersError, NotFound, QuotaExceeded, StoreUnavailable
from memory.domain.message import Message
from memory.orchestrator.conversations.blobs.balances import Balances
from memory.orchestrator.conversations.blobs.manifests import Manifests
from memory.orchestrator.conversations.blobs.reservations import Reservations
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.derived_entries import SAID_IN
from memory.orchestrator.conversations.log.passages import Passages, Where
from memory.orchestrator.conversations.redaction import Redaction
from memory.orchestrator.conversations.sessions import SHARED, SessionDraft, SessionRecords, refuse_others
from memory.orchestrator.conversations.tasks.runs import Runs
from memory.orchestrator.conversations.tasks.tasks import Tasks
from memory.orchestrator.conversations.window_exits import WindowExitHandler
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.entries.admission import Admission
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.key_locks import CallOrder, RetryDeadline
from memory.orchestrator.storage.outbox import Outbox
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.requests import DeletedSince, RequestMark
from memory.orchestrator.trust.trust import Trust
from memory.policies.quotas import Quota
from memory.policies.tokens import DefaultCounter
from memory.policies.window_exit import WindowExitFunction as Callback
from memory.ports.record import Key, Record
from memory.ports.tokens import TokenCounter

log = logging.getLogger(__name__)


class Conversations:
    """The conversations of an engine."""

    def __init__(
        self,
        placement: Placement,
        *,
        outbox: Outbox,
        erasure: Erasure,
        embeddings: Embeddings,
        quotas: Admission,
        artifact_quotas: Sequence[Quota],
        trust: Trust,
        on_artifact_gone: Callable[[str, str], Awaitable[None]],
        passages: Where = "off",
        on_window_exit: Callback | Literal["elsewhere"] | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._placement = placement
        self.counter = counter or DefaultCounter()
        self._calls = CallOrder()
        self.passages = Passages(placement, embeddings=embeddings, outbox=outbox, where=passages)
        self.balances = Balances(placement)
        self.reservations = Reservations(
            placement, balances=self.balances, outbox=outbox, quotas=artifact_quotas
        )
        self.sessions = SessionRecords(
            placement, outbox=outbox, erasure=erasure, passages=self.passages, reservations=self.reservations
        )
        self.tasks = Tasks(placement, outbox=outbox, erasure=erasure)
        self.runs = Runs(placement, outbox=outbox, erasure=erasure)
        self.manifests = Manifests(
            placement,
            sessions=self.sessions,
            reservations=self.reservations,
            outbox=outbox,
            erasure=erasure,
            most_bytes=placement.settings.artifact_bytes,
            on_gone=on_artifact_gone,
        )
        self.window_exit = WindowExitHandler(
            placement,
            sessions=self.sessions,
            embeddings=embeddings,
            outbox=outbox,
            erasure=erasure,
            quotas=quotas,
            trust=trust,
            callback=on_window_exit,
        )
        self.redaction = Redaction(
            placement,
            sessions=self.sessions,
            window_exit=self.window_exit,
            tasks=self.tasks,
            runs=self.runs,
            outbox=outbox,
            erasure=erasure,
        )

    def in_call_order(
        self, tenant: str, session_id: str, kind: str, names: Iterable[str]
    ) -> AbstractAsyncContextManager[None]:
        """Run writes of the same message, task or run in the order of their calls.

        The order covers the calls of this process within one session.
        """
        return self._calls.take(self._placement, [(tenant, session_id, kind, name) for name in names])

    def moment_of(self, given: datetime | timedelta | None) -> datetime | None:
        """Return when an `expires_at` that is given now expires."""
        return expiry(given, self._placement.now())

    async def create(
        self, tenant: str, draft: SessionDraft, request: RequestMark | None = None
    ) -> Conversation:
        """Create a session. Raises `Conflict` if its id is taken.

        A repeat of a request returns the session that it created.
        """
        record, log = await self.sessions.create(tenant, draft, request)
        return Conversation(
            self._placement,
            self.sessions,
            self.window_exit,
            record,
            log,
            self.counter,
            draft.writer or draft.user,
        )

    async def fork(
        self,
        tenant: str,
        draft: SessionDraft,
        messages: Sequence[Message],
        request: RequestMark | None = None,
    ) -> Conversation:
        """Create a session that begins with these messages.

        A message that was erased meanwhile is erased in the new session too. A repeat
        of the request completes the session that it created.

        Raises:
            QuotaExceeded: there is no room for the large texts. No session is left.
            NotFound: the session that it copies was deleted meanwhile. No session is
                left.
        """
        forked = await self.create(tenant, draft, request)
        source = draft.forked_from
        said_by, state = (None, {}) if source is None else (source.said_by, source.state)
        patience, copied = RetryDeadline(self._placement, forked.id), 0
        looks = request is not None and request.repeats
        try:
            while True:
                if looks:
                    so_far = await forked.copied_so_far(messages)
                    if so_far is None:
                        return forked
                    copied = so_far
                authors = None if said_by is None else said_by[copied:]
                if await forked.begin(messages[copied:], authors, state):
                    break
                looks = True
                await patience.wait()
        except QuotaExceeded:
            try:
                never_shown = (
                    await forked.is_as_begun()
                )  # nobody has seen it: a legal hold on its user does not apply to it
                await self.sessions.erase_expired(
                    await self.sessions.record(tenant, forked.id), never_shown=never_shown
                )
            except (
                MemoryTiersError
            ) as error:  # a store is down, or others wrote to it and it is under legal hold
                log.warning("the fork %s exceeded a quota, and could not be erased: %s", forked.id, error)
            raise
        if draft.forked_from is not None:
            await self.redaction.confirm_fork(
                tenant, forked.id, forked.log.life.incarnation, draft.forked_from
            )
        return forked

    async def open(
        self, tenant: str, draft: SessionDraft, *, create: bool, request: RequestMark | None = None
    ) -> Conversation:
        """Open the session of this id, or create it if `create` is set.

        Raises:
            Conflict: a repeat of the request finds that the session was deleted.
            NotFound: there is no such session, and `create` is false.
            SessionOwnerMismatch: the session belongs to someone else.
        """
        session_id = str(draft.id)
        try:
            record = await self.find(tenant, session_id)
        except StoreUnavailable:
            record = self.sessions.cached_record(
                tenant, session_id
            )  # the caller may read its window from the cache
            if record is None:
                raise
        if record is None and create:
            try:
                return await self.create(tenant, draft, request)
            except DeletedSince:
                raise
            except Conflict:
                record = await self.find(tenant, session_id)  # another call created it first
        if record is None:
            raise NotFound(session_id, "session")
        refuse_others(record, draft)
        return Conversation(
            self._placement,
            self.sessions,
            self.window_exit,
            record,
            self.sessions.log(record),
            self.counter,
            draft.user,
        )

    async def find(self, tenant: str, session_id: str) -> Record | None:
        """Return the session's own record; None if there is none."""
        try:
            return await self.sessions.record(tenant, session_id)
        except NotFound:
            return None

    async def user_of_entry(self, tenant: str, session_id: str, entry_id: str) -> str | None:
        """Return the user to whom an entry of a session belongs.

        For an entry that was learnt in a shared session, return the user who wrote the
        messages from which it was made.
        """
        session = await self.find(tenant, session_id)
        if session is not None and session.body.get(SHARED):
            entry = (await self._placement.locate(ENTRIES, Key(tenant, entry_id))).record
            said_in: Any = {} if entry is None else entry.body.get(SAID_IN, {})
            if "user" in said_in:
                return str(said_in["user"])
        user = None if session is None else session.fields.get("subject")
        return user if isinstance(user, str) else None
