"""Erasure of one message with everything derived from it, and of all data of a user.

A message is erased at its place. Its place, number and role stay, so that no place
counts as lost and the counts stay. The erasure has a pending step for the rest: an
event that takes the message out of the window, and the erasure of every compaction
whose range holds it. A concurrent compaction that has read the text is either stored
before that event, and then found, or conflicts with it and summarises again.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace

from memory.domain.errors import LegalHoldActive, NotFound, SessionOwnerMismatch, StoreUnavailable
from memory.domain.scope import Scope
from memory.domain.session import ErasedUser, SessionInfo
from memory.orchestrator.conversations.blobs.uploads import DROP
from memory.orchestrator.conversations.log.events import FIRST_PLACE, Draft, Event, EventType, event_of
from memory.orchestrator.conversations.log.folding import left_by
from memory.orchestrator.conversations.log.forks import copied_by
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.log.passages import FORGET
from memory.orchestrator.conversations.log.seen import LogSnapshot
from memory.orchestrator.conversations.sessions import CONFIRM_FORK, ForkSource, SessionDraft, SessionRecords
from memory.orchestrator.conversations.tasks.runs import Runs
from memory.orchestrator.conversations.tasks.tasks import Tasks
from memory.orchestrator.conversations.window_exits import WindowExitHandler, reset_answers
from memory.orchestrator.erasure.erasure import Erased, Erasure, count_of
from memory.orchestrator.storage.collections import (
    DOCUMENTS,
    ENTRIES,
    FORKED_FROM,
    MESSAGES,
    OPERATIONS,
    SAID_BY,
    SESSIONS,
)
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.operations import end_operation, new_operation
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.requests import RequestMark, is_later
from memory.orchestrator.storage.session_keys import scope_of, session_of
from memory.ports.query import Condition, Eq, Gt, Has, Or, Query, Tenant
from memory.ports.record import Key, Partition, PendingStep, Record
from memory.ports.store import Store
from memory.ports.writes import Newer, Put

logger = logging.getLogger(__name__)

REDACT, ERASE_USER = "redact", "erase_user"
"""The steps that finish the erasure of a message, and of a user."""
USER_ERASURE = "user"
"""The kind of a user's erasure among the operations."""


def said_by(user: str) -> Condition:
    """Return the condition for a user's messages, and for summaries of them.

    They name the user as speaker, or were written through the user's own handle.
    """
    return Or((Eq("speaker", user), Has(SAID_BY, user)))


def is_counted(record: Record) -> bool:
    """Return whether a record is a message, and not a summary."""
    return record.fields["event"] == EventType.MESSAGE.value


@dataclass(frozen=True, slots=True)
class _MessageLocation:
    """The location of a user's message or summary."""

    key: Key
    scope: str
    place: int
    is_counted: bool

    @classmethod
    def of(cls, record: Record) -> _MessageLocation:
        return cls(record.key, record.scope, event_of(record).place, is_counted(record))


class Redaction:
    """Erases messages and users."""

    def __init__(
        self,
        placement: Placement,
        *,
        sessions: SessionRecords,
        window_exit: WindowExitHandler,
        tasks: Tasks,
        runs: Runs,
        outbox: Outbox,
        erasure: Erasure,
    ) -> None:
        self._placement = placement
        self._sessions = sessions
        self._window_exit = window_exit
        self._tasks = tasks
        self._runs = runs
        self._outbox = outbox
        self._erasure = erasure
        outbox.register_for_records(REDACT, self._redact_noted)
        outbox.register_for_records(ERASE_USER, self._erase_user_noted)
        outbox.register(CONFIRM_FORK, self._confirm_fork_noted)

    # -- one message -------------------------------------------------------------------

    async def erase(self, log: Log, message_id: str, request: RequestMark | None = None) -> bool:
        """Erase the message of this id; false if there is none.

        A repeat of the request spares a message that got the id after the request
        began.

        Raises:
            LegalHoldActive: the session is under legal hold.
            StoreUnavailable: copies and derived data are not erased yet. A sweep erases
                them.
        """
        await self._erasure.holds.refuse_partition(log.life.partition)
        patience = RetryDeadline(self._placement, message_id)
        while (event := await log.find(message_id)) is not None:
            if is_later(event.created_at, request):
                break
            if await self._erase_at(log, event, request):
                return True
            await patience.wait()
        if request is None or not request.repeats:
            return False
        found = await log.find(message_id, redacted=True)
        erased = [event async for _, event in log.erasures_of([message_id])]
        erased += [] if found is None or not found.is_redacted else [found]
        mine = [event for event in erased if event.was_made_by(request)]
        for event in mine:  # the earlier attempt may have been cut off before it did this
            await self._finish(log, event)
        return bool(mine)

    async def _erase_at(self, log: Log, event: Event, request: RequestMark | None = None) -> bool:
        """Erase a message; false if it has changed since it was read."""
        owed = (
            *reset_answers(event.owed),
            PendingStep(REDACT, REDACT),
            *self._sessions.passages.owed_by_erasing(event),
        )
        redacted = await log.redact(event, owed, request)
        if redacted is None:
            return False
        await self._finish(log, redacted)
        return True

    async def _finish(self, log: Log, redacted: Event) -> None:
        """Erase the copies and the derived data of an erased message."""
        mine = tuple(
            [step for step in redacted.owed if step.step in (REDACT, DROP, FORGET)]
        )  # an erasure does not run its other steps
        pending = OutboxRecord(MESSAGES, log.store, replace(log.record_of(redacted), owed=mine))
        if await self._outbox.finish(pending):
            raise StoreUnavailable(
                log.store.name,
                "has erased the message, but not yet all of its copies and derived data. A sweep will erase"
                " the rest",
            )

    async def _redact_noted(self, message: Record, store: Store, owed: PendingStep) -> bool:
        with suppress(NotFound):  # deleted meanwhile
            record = await self._sessions.record(message.key.tenant, str(message.fields["conversation_id"]))
            log = self._sessions.log(record)
            for event in log.events_of([message]):  # none of a session that was created again
                await self._leave_window(log, event.place)
                for summary in await self._made_of(log, event.place):
                    await self._erase_place(log, summary.place)
                await self._window_exit.forget(log, event)
                await self._erase_copies(log, event.place)
                await self._sessions.copies.fence(log.life, (log.snapshot or await log.load()).state)
                await self._sessions.tell(
                    record, (await log.load()).state, record.created_at, fence=True
                )  # the preview may have shown the message
        return True

    async def _leave_window(self, log: Log, place: int) -> None:
        def decide(seen: LogSnapshot) -> list[Draft]:
            erased = Draft(
                EventType.ERASED, data={"place": place, "reason": "erased"}, belongs_to_erasure=True
            )
            return [erased] if place in seen.state.window else []

        await log.append(decide)

    async def _made_of(self, log: Log, place: int) -> list[Event]:
        """Return the compactions that took the message at this place out of the window.

        There is more than one only if the message returned to the window in between.
        """
        after = Eq("event", EventType.COMPACTION.value), Gt("place", place)
        events = log.events_where("redact.find", *after)
        return [event async for event in events if place in left_by(event.draft)]

    # -- a fork ------------------------------------------------------------------------

    async def confirm_fork(self, tenant: str, fork_id: str, incarnation: str, source: ForkSource) -> None:
        """Erase in a stored fork the messages that were erased since it read them.

        Raises `NotFound` if the session that it forked off from is gone. The fork is
        erased then.
        """
        fork = await self._sessions.record(tenant, fork_id)
        if fork.body["incarnation"] != incarnation:
            raise NotFound(fork_id, "session")
        if not await self._follow_source(fork, source):
            raise NotFound(source.session_id, "session")
        await self._sessions.settle_fork(fork)

    async def _follow_source(self, fork: Record, source: ForkSource) -> bool:
        """Return false if the source is gone. The fork is erased then."""
        record = await self._sessions.find_record(
            fork.key.tenant, source.session_id
        )  # an expired session is not erased yet
        if record is None or record.body["incarnation"] != source.incarnation:
            await self._sessions.erase_expired(fork, never_shown=True)
            return False
        log, copies = self._sessions.log(record), self._sessions.log(fork)
        read = await log.at(source.places)
        erased = [at for at, place in enumerate(source.places) if place in read and read[place].is_redacted]
        for at in erased:
            await self._erase_place(copies, FIRST_PLACE + at)
        return True

    async def _erase_place(self, log: Log, place: int) -> None:
        patience = RetryDeadline(self._placement, log.key(place))
        while (event := (await log.at([place])).get(place)) is not None and not event.is_redacted:
            if await self._erase_at(log, event):
                return
            await patience.wait()

    async def _confirm_fork_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Confirm a fork whose writer died or is still copying."""
        fork, data = pending.owner, owed.data
        if not isinstance(fork, Record):
            return True
        source = ForkSource(data["session"], data["incarnation"], tuple(data["places"]))
        is_whole = (await self._sessions.log(fork).load()).state.place >= FIRST_PLACE - 1 + len(source.places)
        is_young = self._placement.now() - fork.created_at < self._placement.settings.mark_life
        if not is_whole and is_young:
            return False  # its writer is still copying
        if await self._follow_source(fork, source):
            await self._sessions.settle_fork(fork)
        return True

    async def _erase_copies(self, log: Log, place: int) -> None:
        """Erase the copies of the message at this place in forks.

        A copy in a fork under legal hold stays.
        """
        life, store = log.life, self._placement.topology.archive
        query = Query(
            SESSIONS,
            Tenant(life.tenant),
            Has(FORKED_FROM, life.session_id),
            limit=self._placement.settings.page,
        )
        async for page in self._placement.pages("redact.forks", store, query):
            for fork in page.records:
                if not isinstance(fork, Record):
                    continue
                of = [
                    one
                    for one in copied_by(fork)
                    if (one.session_id, one.incarnation) == (life.session_id, life.incarnation)
                ]
                for at in dict.fromkeys(at for one in of for at in one.copies_of(place)):
                    copies = self._sessions.log(fork)
                    with suppress(NotFound):  # deleted meanwhile
                        try:
                            await self._erasure.holds.refuse_partition(copies.life.partition)
                        except LegalHoldActive as error:
                            logger.info(
                                "a copy in session %s of an erased message stays: %s",
                                copies.life.session_id,
                                error,
                            )
                            break
                        await self._erase_place(copies, at)

    # -- a user ------------------------------------------------------------------------

    async def erase_user(self, tenant: str, user: str) -> ErasedUser:
        """Erase a user's sessions, messages in others' sessions, and entries.

        The entries are those of the user's scope. If a store fails, this raises, and a
        sweep does the rest. `held` lists data that stays because of another legal hold.

        Raises:
            LegalHoldActive: the user is under legal hold.
        """
        await self._erasure.holds.refuse_user(tenant, user)
        store, data = self._placement.topology.archive, {"tenant": tenant, "user": user}
        operation = new_operation(self._placement, ERASE_USER, (tenant, user), data, USER_ERASURE)
        begun = await self._placement.write_one("user.begin", store, Put(OPERATIONS, operation, Newer()))
        raise_if_rejected(store, begun)
        erased = await self._carry_out(tenant, user)
        await end_operation("user.end", self._placement, operation, ERASE_USER)
        return erased

    async def _erase_user_noted(self, operation: Record, store: Store, owed: PendingStep) -> bool:
        await self._carry_out(owed.data["tenant"], owed.data["user"])
        await end_operation("user.end", self._placement, operation, ERASE_USER)
        return True

    async def _carry_out(self, tenant: str, user: str) -> ErasedUser:
        sessions, messages, held = 0, 0, dict[str, None]()
        erased: Erased = Counter()
        found = await self.sessions_of(tenant, user)
        of_user = [session.id for session in found]
        for session in found:
            is_over = session.expires_at is not None and session.expires_at < self._placement.now()
            owner = SessionDraft(id=session.id, user=user) if is_over else None
            try:
                with suppress(SessionOwnerMismatch):  # another user has created it again
                    await self._sessions.delete(tenant, session.id, owner)
                    sessions += 1
            except LegalHoldActive as error:
                held[f"session {session.id}: {error}"] = None
        said: list[
            _MessageLocation
        ] = []  # find all messages before the first erasure: it also erases copies in forks, which count too
        query = Query(MESSAGES, Tenant(tenant), said_by(user), limit=self._placement.settings.page)
        async for page in self._placement.pages("user.messages", self._placement.topology.archive, query):
            said += [_MessageLocation.of(record) for record in page.records if isinstance(record, Record)]
        for one in said:
            try:
                messages += await self._erase_said(one, user) and one.is_counted
            except LegalHoldActive as error:
                held[f"messages of {user} in sessions of others: {error}"] = None
        for kept, named in ((self._tasks, "task_id"), (self._runs, "run_id")):
            query = Query(
                kept.collection, Tenant(tenant), Has(SAID_BY, user), limit=self._placement.settings.page
            )
            async for page in self._placement.pages("user.kept", self._placement.topology.archive, query):
                for record in page.records:
                    try:
                        if (
                            isinstance(record, Record)
                            and (log := await self._log_of(record.key, record.scope)) is not None
                        ):
                            await kept.delete(log, str(record.fields[named]))
                    except LegalHoldActive as error:
                        held[f"{kept.collection.name} of {user} in sessions of others: {error}"] = None
        try:
            erased = await self._erasure.erase(Partition(tenant, Scope.user(user).text))
        except LegalHoldActive as error:
            held[f"scope user:{user}: {error}"] = None
        scopes = {Scope.user(user).text, *(one.scope for one in said)}
        scopes |= {text for one in of_user for text in (scope_of(one), Scope.session(one).text)}
        held |= await self._held_derived(tenant, scopes)
        return ErasedUser(
            sessions, messages, count_of(erased, ENTRIES), list(held), count_of(erased, DOCUMENTS)
        )

    async def _held_derived(self, tenant: str, scopes: set[str]) -> dict[str, None]:
        """Return a sentence for each held entry that was made of erased data."""
        if self._erasure.held_derived is None:
            return {}
        left = await self._erasure.held_derived(tenant, scopes.__contains__)
        return {f"entry {name}, made of erased data: {error}": None for name, error in left.items()}

    async def sessions_of(self, tenant: str, user: str) -> list[SessionInfo]:
        """Return the sessions of a user, expired ones too."""
        found, cursor = list[SessionInfo](), None
        while True:
            page = await self._sessions.list(
                tenant,
                asked={"subject": user},
                limit=self._placement.settings.page,
                cursor=cursor,
                expired=True,
            )
            found += page.sessions
            if (cursor := page.cursor) is None:
                return found

    async def _log_of(self, key: Key, scope: str) -> Log | None:
        """Return the log of the session of a record; None if it was deleted."""
        try:
            return self._sessions.log(await self._sessions.record(key.tenant, session_of(scope)))
        except NotFound:
            return None

    async def _erase_said(self, said: _MessageLocation, user: str) -> bool:
        """Erase a message of the user; return whether it is erased now.

        It may have been erased as a copy of another. False if it is not the user's any
        more.
        """
        log, patience = await self._log_of(said.key, said.scope), RetryDeadline(self._placement, said.key.id)
        if log is None or log.key(said.place) != said.key.id:
            return False  # deleted meanwhile
        await self._erasure.holds.refuse_partition(log.life.partition)
        while (event := (await log.at([said.place])).get(said.place)) is not None:
            message = event.draft.message
            if (
                event.is_redacted
                or message is None
                or (message.name != user and user not in event.draft.said_by)
            ):
                return event.is_redacted
            if await self._erase_at(log, event):
                return True
            await patience.wait()
        return False
