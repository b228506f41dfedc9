"""Erasing what was said: one message of a session, with the summaries and entries made
of it, and all that a user said and is.

A message is erased where it stands. Its place, its number and its role are left, so
that no place is taken for lost and counts stay. It owes the rest: an event that takes
it out of the window, and then the same for every compaction whose range holds it. A
compaction that is under way, and has read the text, comes before that event and is
found, or meets it and summarises again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from memory.domain import ids
from memory.domain.errors import LegalHoldActive, NotFound, StoreUnavailable
from memory.domain.scope import Scope
from memory.domain.session import ErasedUser
from memory.orchestrator.conversations.blobs.uploads import DROP
from memory.orchestrator.conversations.log.events import FIRST_PLACE, Draft, Event, EventType, event_of
from memory.orchestrator.conversations.log.folding import left_by
from memory.orchestrator.conversations.log.forks import copied_by
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.log.passages import FORGET
from memory.orchestrator.conversations.log.seen import LogSnapshot
from memory.orchestrator.conversations.sessions import CONFIRM_FORK, ForkSource, SessionRecords
from memory.orchestrator.conversations.tasks.runs import Runs
from memory.orchestrator.conversations.tasks.tasks import Tasks
from memory.orchestrator.conversations.window_exits import WindowExitHandler, reset_answers
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import (
    FORKED_FROM,
    MESSAGES,
    OPERATIONS,
    SAID_BY,
    SESSIONS,
    SYSTEM_TENANT,
)
from memory.orchestrator.storage.generations import OPERATIONS_SCOPE
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, rejection_error
from memory.ports.query import And, Condition, Eq, Gt, Has, Or, Order, Query, Tenant, within
from memory.ports.record import Key, PendingStep, Record
from memory.ports.writes import AtVersion, Delete, Newer, Put

logger = logging.getLogger(__name__)

REDACT, ERASE_USER = "redact", "erase_user"
"""The steps that finish the erasure of a message, and that carry out a user's."""
USER_ERASURE = "user"
"""The kind of a user's erasure among the operations."""


def said_by(user: str) -> Condition:
    """Messages that a user said: that name the user, or were written through the user's
    own handle. Summaries of such too.
    """
    return Or((Eq("speaker", user), Has(SAID_BY, user)))


def is_counted(record: Record) -> bool:
    """Whether a record is a message, and no summary of some."""
    return record.fields["event"] == EventType.MESSAGE.value


@dataclass(frozen=True, slots=True)
class _MessageLocation:
    """Where something stands that a user said."""

    key: Key
    scope: str
    place: int
    is_counted: bool

    @classmethod
    def of(cls, record: Record) -> _MessageLocation:
        return cls(record.key, record.scope, event_of(record).place, is_counted(record))


class Redaction:
    """Carries out the erasure of messages, and of users."""

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
        outbox.register(REDACT, self._redact_noted)
        outbox.register(ERASE_USER, self._erase_user_noted)
        outbox.register(CONFIRM_FORK, self._confirm_fork_noted)

    # -- one message -------------------------------------------------------------------

    async def erase(self, log: Log, message_id: str) -> bool:
        """Erase the message of this id; false where there is none. Raises where what
        was made of it is still to be erased: a sweep does it; and `LegalHoldActive` where its
        session is under legal hold.
        """
        await self._erasure.holds.refuse_partition(log.life.partition)
        patience = RetryDeadline(self._placement, message_id)
        while (event := await log.find(message_id)) is not None:
            if await self._erase_at(log, event):
                return True
            await patience.wait()
        return False

    async def _erase_at(self, log: Log, event: Event) -> bool:
        """False where the message has changed since it was read."""
        owed = (
            *reset_answers(event.owed),
            PendingStep(REDACT, REDACT),
            *self._sessions.passages.owed_by_erasing(event),
        )
        redacted = await log.redact(event, owed)
        if redacted is None:
            return False
        mine = tuple(
            [step for step in redacted.owed if step.step in (REDACT, DROP, FORGET)]
        )  # what else it owes is no affair of an erasure
        pending = OutboxRecord(MESSAGES, log.store, replace(log.record_of(redacted), owed=mine))
        if await self._outbox.finish(pending):
            raise StoreUnavailable(
                log.store.name,
                "has erased the message, but not yet all of its copies and derived data. A sweep will erase the rest",
            )
        return True

    async def _redact_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        owner = pending.owner
        if not isinstance(owner, Record):
            return True
        try:
            record = await self._sessions.record(owner.key.tenant, str(owner.fields["conversation_id"]))
            log = self._sessions.log(record)
            for event in log.events_of([owner]):  # none of a session that was created again
                await self._leave_window(log, event.place)
                for summary in await self._made_of(log, event.place):
                    await self._erase_place(log, summary.place)
                await self._window_exit.forget(log, event)
                await self._erase_copies(log, event.place)
                await self._sessions.tell(
                    record, (await log.load()).state, record.created_at, fence=True
                )  # how it begins may have been this
        except NotFound:
            return True  # deleted meanwhile
        return True

    async def _leave_window(self, log: Log, place: int) -> None:
        def decide(seen: LogSnapshot) -> list[Draft]:
            erased = Draft(
                EventType.ERASED, data={"place": place, "reason": "erased"}, belongs_to_erasure=True
            )
            return [erased] if place in seen.state.window else []

        await log.append(decide)

    async def _made_of(self, log: Log, place: int) -> list[Event]:
        """The compactions that took the message at this place out of the window: at
        most one, or several where it came back in between.
        """
        life = log.life
        asked = And(
            (
                Eq("conversation_id", life.session_id),
                Eq("event", EventType.COMPACTION.value),
                Gt("place", place),
            )
        )
        query = Query(
            MESSAGES, within(life.partition), asked, (Order("created_at"),), self._placement.settings.page
        )
        pages = self._placement.pages("redact.find", log.store, query)
        events = [event async for page in pages for event in log.events_of(page.records)]
        return [event for event in events if place in left_by(event.draft)]

    # -- a fork ------------------------------------------------------------------------

    async def confirm_fork(self, tenant: str, fork_id: str, incarnation: str, source: ForkSource) -> None:
        """Look again at what a fork copied, now that it is stored, and erase in the
        fork what was erased since it was read.

        Raises `NotFound` where the session that it forked off from is gone: then the
        fork is erased.
        """
        fork = await self._sessions.record(tenant, fork_id)
        if fork.body["incarnation"] != incarnation:
            raise NotFound(fork_id, "session")
        if not await self._follow_source(fork, source):
            raise NotFound(source.session_id, "session")
        await self._sessions.settle_fork(fork)

    async def _follow_source(self, fork: Record, source: ForkSource) -> bool:
        """False where the source is gone, and the fork with it."""
        record = await self._sessions.find_record(
            fork.key.tenant, source.session_id
        )  # one that has expired is not erased
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
        """A fork whose writer died, or is still at it."""
        fork, data = pending.owner, owed.data
        if not isinstance(fork, Record):
            return True
        source = ForkSource(data["session"], data["incarnation"], tuple(data["places"]))
        is_whole = (await self._sessions.log(fork).load()).state.place >= FIRST_PLACE - 1 + len(source.places)
        is_young = self._placement.now() - fork.created_at < self._placement.settings.mark_life
        if not is_whole and is_young:
            return False  # its writer copies still
        if await self._follow_source(fork, source):
            await self._sessions.settle_fork(fork)
        return True

    async def _erase_copies(self, log: Log, place: int) -> None:
        """Erase the copies that forks have of the message at this place; one in a fork
        that is under legal hold stays.
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
        """Delete the sessions with a user, erase what the user said in others', and the
        entries of the user's scope. A store that fails raises; the rest is owed then,
        and a sweep does it. Raises `LegalHoldActive` where the user is under legal hold; of what
        is for another reason `held` tells.
        """
        await self._erasure.holds.refuse_user(tenant, user)
        store, now = self._placement.topology.archive, self._placement.now()
        key = Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, OPERATIONS_SCOPE, USER_ERASURE, tenant, user))
        owed = PendingStep(ERASE_USER, ERASE_USER, {"tenant": tenant, "user": user})
        fields = {"kind": USER_ERASURE}
        operation = Record(
            key,
            OPERATIONS_SCOPE,
            self._placement.next_version(),
            now,
            now,
            fields=fields,
            tier="mid",
            owed=(owed,),
        )
        begun = await self._placement.write_one("user.begin", store, Put(OPERATIONS, operation, Newer()))
        if (error := rejection_error(store, begun)) is not None:
            raise error
        erased = await self._carry_out(tenant, user)
        await self._end(operation)
        return erased

    async def _erase_user_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        if isinstance(pending.owner, Record):
            await self._carry_out(owed.data["tenant"], owed.data["user"])
            await self._end(pending.owner)
        return True

    async def _end(self, operation: Record) -> None:
        """Nothing is left of an operation that is over, which names the user."""
        version, until = self._placement.next_version(operation.version), self._placement.tombstone_until()
        at = AtVersion(operation.version)
        gone = Delete(
            OPERATIONS, operation.key, version, at, discard_at=until, settles=frozenset({ERASE_USER})
        )
        await self._placement.write_one("user.end", self._placement.topology.archive, gone)

    async def _carry_out(self, tenant: str, user: str) -> ErasedUser:
        sessions, messages, entries, held = 0, 0, 0, dict[str, None]()
        for session_id in await self._sessions_of(tenant, user):
            try:
                await self._sessions.delete(tenant, session_id)
                sessions += 1
            except LegalHoldActive as error:
                held[f"session {session_id}: {error}"] = None
        said: list[
            _MessageLocation
        ] = []  # all are found before any is erased: an erasure takes the copies in forks, and these count too
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
            entries = await self._erasure.erase_scope(tenant, Scope.user(user))
        except LegalHoldActive as error:
            held[f"scope user:{user}: {error}"] = None
        return ErasedUser(sessions, messages, entries, list(held))

    async def _sessions_of(self, tenant: str, user: str) -> Sequence[str]:
        found, cursor = list[str](), None
        while True:
            page = await self._sessions.list(
                tenant, asked={"subject": user}, limit=self._placement.settings.page, cursor=cursor
            )
            found += [session.id for session in page.sessions]
            if (cursor := page.cursor) is None:
                return found

    async def _log_of(self, key: Key, scope: str) -> Log | None:
        """The log of the session to which a record belongs; None where that was
        deleted.
        """
        try:
            return self._sessions.log(await self._sessions.record(key.tenant, scope.partition(":")[2]))
        except NotFound:
            return None

    async def _erase_said(self, said: _MessageLocation, user: str) -> bool:
        """Whether it is erased, by this or as a copy of what was; false where it is not
        the user's any more.
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
