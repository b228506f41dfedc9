"""Window exit: what becomes of messages when they leave the window of a session.

An event that lets messages leave by a compaction, by a cut or a replacement, or by the
session's end, owes `leave`; what somebody takes out by hand (excludes, clears, rolls
back, erases) owes nothing. Whoever has the callback and finds that carries it out: the
callback is asked, what it returned is written into the debt on condition that nobody
was first, and of that the entries are made (`derived_entries.py`). So of one event the entries
of one answer exist, each once, whoever dies; of one message they are made once, also
where it was cut off, came back and left again.

A callback may take minutes. Who asks for one session waits for it; a sweep goes on, and
it is asked beside it, one event after the other.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from memory.domain.entry import EntryDraft, expiry
from memory.domain.errors import MemoryTiersError, NotFound, RejectedByGate
from memory.domain.message import Message
from memory.orchestrator.conversations.derived_entries import ANSWER, EACH, MADE, OF, DerivedEntries
from memory.orchestrator.conversations.log.events import LEAVES, Event, EventType, LogTotals, event_of
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.log.passages import said_at
from memory.orchestrator.conversations.sessions import SessionRecords
from memory.orchestrator.conversations.window.history import History
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.entries.admission import Admission
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import MESSAGES
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, rejection_error
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.orchestrator.storage.steps import step
from memory.orchestrator.storage.versions import version_at
from memory.orchestrator.trust.trust import Trust
from memory.policies.window_exit import ExitedMessages, drafts_of
from memory.policies.window_exit import WindowExitFunction as Callback
from memory.ports.query import Eq, Query, Tenant, within
from memory.ports.record import FieldValue, JsonValue, Key, Partition, PendingStep, Record
from memory.ports.store import Store
from memory.ports.writes import AtVersion, Put

log = logging.getLogger(__name__)

LEAVE = "leave"
AGAIN_AFTER, AT_MOST = timedelta(minutes=1), timedelta(hours=1)
"""How long a callback that failed is left alone, twice as long after each failure."""
ANSWERS_WITHIN = timedelta(minutes=2)


@dataclass(slots=True)
class _Backoff:
    """How often a callback has failed for an event, and until when it is left alone."""

    times: int = 0
    until: datetime | None = None


@dataclass(slots=True)
class WindowExitResult:
    """What was done for the messages that left the window of one session.

    `entries` are the ids of the entries that were made now; `waiting` says why others
    were not. `owing` are the session's events with the steps that are still pending.
    """

    entries: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    owing: list[Record] = field(default_factory=list)


@dataclass(slots=True)
class _AwaitedEvent:
    """An event for which somebody here waits, as it stands now, and the ids of the
    entries made for it.
    """

    event: Record
    entries: list[str]


class WindowExitHandler:
    """Has entries made of messages that left a window."""

    def __init__(
        self,
        placement: Placement,
        *,
        sessions: SessionRecords,
        embeddings: Embeddings,
        outbox: Outbox,
        erasure: Erasure,
        quotas: Admission,
        trust: Trust,
        callback: Callback | Literal["elsewhere"] | None,
    ) -> None:
        self._placement = placement
        self._sessions = sessions
        self._outbox = outbox
        self._trust = trust
        self.derived = DerivedEntries(
            placement, sessions=sessions, embeddings=embeddings, outbox=outbox, erasure=erasure, quotas=quotas
        )
        self._callback = callback if callable(callback) else None
        self._owes = callback is not None
        self._failed: dict[Key, _Backoff] = {}
        self._asked: set[Key] = set()
        self._heard: dict[Key, _AwaitedEvent] = {}
        self._waiting: dict[Key, OutboxRecord] = {}
        """For what events the callback is to be asked beside sweeps."""
        self._asking: asyncio.Task[None] | None = None
        outbox.register(LEAVE, self._leave)

    def exit_data_and_steps(
        self, places: Places, after: LogTotals
    ) -> tuple[dict[str, JsonValue], tuple[PendingStep, ...]]:
        """What an event says and owes by which messages at these places leave, `after`
        the one before it: none that an end has let go already.
        """
        leaves = places.between(after.exited_until + 1, places.last)
        return (
            ({LEAVES: leaves.to_json()}, (PendingStep(LEAVE, LEAVE),))
            if self._owes and leaves.ranges
            else ({}, ())
        )

    # -- carrying out ------------------------------------------------------------------

    async def of_session(self, record: Record) -> WindowExitResult:
        """Handle now all messages that left the window of this session.

        A callback that failed lately is called again.
        """
        store, told = self._placement.topology.archive, WindowExitResult()
        query = Query(
            MESSAGES,
            within(Partition(record.key.tenant, record.scope)),
            Eq("owing", True),
            limit=self._placement.settings.page,
        )
        owners = [
            row
            async for page in self._placement.pages("onward.owed", store, query)
            for row in page.records
            if isinstance(row, Record)
        ]
        for owner in sorted(owners, key=lambda owner: owner.created_at):
            self._failed.pop(owner.key, None)
            self._heard[owner.key] = heard = _AwaitedEvent(owner, told.entries)
            try:
                left = await self._outbox.finish(OutboxRecord(MESSAGES, store, owner), only=LEAVE)
            finally:
                self._heard.pop(owner.key, None)  # another may have waited for it too
            if left:
                told.owing.append(replace(heard.event, owed=left))
            if any(owed.step == LEAVE for owed in left):
                told.waiting.append(
                    f"session {record.fields['session_id']!s}: messages that left its window are not handled yet: {self._why(owner.key)}"
                )
        return told

    def _why(self, key: Key) -> str:
        said = [
            problem.said
            for problem in self._outbox.problems
            if (problem.tenant, problem.record_id, problem.step) == (key.tenant, key.id, LEAVE)
        ]
        return (
            said[-1]
            if said
            else "it waits for a process that has the callback, or such a process is handling it now"
        )

    async def _leave(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        owner = pending.owner
        session = await self._session(owner) if isinstance(owner, Record) else None
        if not isinstance(owner, Record) or session is None:
            self._failed.pop(owner.key, None)
            return True  # deleted
        if MADE not in owed.data:
            if self._callback is None or owner.key in self._asked or self._is_left_alone(owner.key):
                return False
            if owner.key not in self._heard:
                self._ask_beside(pending)
                return False
            self._asked.add(owner.key)
            try:
                return await self._ask(pending, owner, session, self._callback)
            finally:
                self._asked.discard(owner.key)
        made = await self.derived.store(owner, session, owed.data)
        if (heard := self._heard.get(owner.key)) is not None:
            heard.entries.extend(made)
        return True

    async def plan_entries(self, owner: Record, owed: PendingStep) -> list[Record] | None:
        """The entries that a sweep would make now of what was answered; None where
        nobody has been asked yet.
        """
        if (session := await self._session(owner)) is None:
            return []
        return await self.derived.plan_entries(owner, session, owed.data) if MADE in owed.data else None

    def is_to_ask(self, owner: Record) -> bool:
        """Whether a sweep here would have the callback asked about this event."""
        return self._callback is not None and not self._is_left_alone(owner.key)

    def _ask_beside(self, pending: OutboxRecord) -> None:
        self._waiting.setdefault(pending.owner.key, pending)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_waiting(), name="memory-window-exit")

    async def _ask_waiting(self) -> None:
        while self._waiting:
            answered: list[OutboxRecord] = []
            while self._waiting:
                answered += await self._ask_next()
            await self._outbox.finish_all(
                answered
            )  # what else these owe may have waited for all that their sessions owed

    async def _ask_next(self) -> list[OutboxRecord]:
        """Ask about the event that waits longest; what it owes still, where nobody is
        to be asked about it any more.
        """
        key, found = next(iter(self._waiting.items()))
        del self._waiting[key]
        try:
            with step("onward.owed"):
                (owner,) = await found.store.get(found.collection, [key])
            if isinstance(owner, Record) and key not in self._heard:
                self._heard[key] = heard = _AwaitedEvent(owner, [])
                try:
                    left = await self._outbox.finish(replace(found, owner=owner), only=LEAVE)
                finally:
                    self._heard.pop(key, None)
                if left and not any(owed.step == LEAVE for owed in left):
                    return [replace(found, owner=replace(heard.event, owed=left))]
        except MemoryTiersError as error:  # a sweep finds it again
            log.info("messages that left a window are not handled yet: %s", error)
        return []

    async def drain(self) -> None:
        """Wait until the callback has been asked for all that sweeps found."""
        while self._asking is not None and not self._asking.done():
            await asyncio.wait([self._asking])

    async def close(self) -> None:
        """Wait for what is being asked, for `ANSWERS_WITHIN` at most: what is not done
        then stays owed.
        """
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWERS_WITHIN.total_seconds()):
                    await self.drain()
        finally:
            if self._asking is not None:
                self._asking.cancel()
                await asyncio.wait([self._asking])

    async def finish_pending(self, tenant: str) -> None:
        """Do what events of a tenant owe, but for what a callback is to be asked: an
        export does not carry it.
        """
        store = self._placement.topology.archive
        query = Query(MESSAGES, Tenant(tenant), Eq("owing", True), limit=self._placement.settings.page)
        async for page in self._placement.pages("onward.owed", store, query):
            owners = [
                replace(row, owed=tuple(o for o in row.owed if not is_to_be_asked(o)))
                for row in page.records
                if isinstance(row, Record)
            ]
            await self._outbox.finish_all(
                [OutboxRecord(MESSAGES, store, owner) for owner in owners if owner.owed]
            )

    async def _session(self, owner: Record) -> Record | None:
        """The session that an event is of; None where that was deleted."""
        try:
            record = await self._sessions.record(owner.key.tenant, str(owner.fields["conversation_id"]))
        except NotFound:
            return None
        return record if self._sessions.log(record).events_of([owner]) else None

    def _is_left_alone(self, key: Key) -> bool:
        failed = self._failed.get(key)
        return failed is not None and failed.until is not None and self._placement.now() < failed.until

    async def _ask(self, pending: OutboxRecord, owner: Record, session: Record, callback: Callback) -> bool:
        """Ask the callback and write down what it returned, where nobody else has; then
        do what that owes.
        """
        made: list[tuple[EntryDraft, dict[str, JsonValue]]] = []
        told, user = NOWHERE, self._sessions.log(session).life.user
        for leaving, places in await self._exiting_messages(owner, session):
            drafts = await self._let_in(owner.key.tenant, await self._drafts(owner, callback, leaving))
            by: dict[str, JsonValue] = {} if leaving.user in (None, user) else {"user": leaving.user}
            made += [(draft, {"of": places.to_json(), **by}) for draft in drafts]
            told = told.with_all(places)
        self._failed.pop(owner.key, None)
        if not made:
            return True
        now, each = self._placement.now(), [of for _, of in made]
        answer: dict[str, JsonValue] = {
            MADE: [_draft_to_json(draft, now) for draft, _ in made],
            ANSWER: self._placement.nonce(),
            OF: told.to_json(),
        }
        answer |= {} if each == [{"of": answer[OF]}] * len(each) else {EACH: each}
        steps = tuple(replace(o, data=answer) if o.step == LEAVE else o for o in owner.owed)
        noted = _with_pending_steps(owner, steps, now)
        outcome = await self._placement.write_one(
            "onward.note", pending.store, Put(MESSAGES, noted, AtVersion(owner.version))
        )
        if (error := rejection_error(pending.store, outcome)) is not None:
            raise error
        if not outcome.applied:
            return False  # others were first, or the message was changed; who looks next sees it
        if (heard := self._heard.get(owner.key)) is not None:
            heard.event = noted
        return not any(
            owed.step == LEAVE
            for owed in await self._outbox.finish(OutboxRecord(MESSAGES, pending.store, noted), only=LEAVE)
        )

    async def _let_in(self, tenant: str, drafts: Sequence[EntryDraft]) -> list[EntryDraft]:
        """Those that may be written; of the others nothing is made."""
        kept: list[EntryDraft] = []
        for draft in drafts:
            try:
                kept += await self._trust.let_in(tenant, [draft])
            except RejectedByGate:
                log.info("an entry derived from messages was refused and is not stored")
        return kept

    async def _drafts(self, owner: Record, callback: Callback, leaving: ExitedMessages) -> list[EntryDraft]:
        try:
            async with asyncio.timeout(ANSWERS_WITHIN.total_seconds()):  # maintenance waits for it
                made = callback(leaving)
                return drafts_of(await made if inspect.isawaitable(made) else made, leaving)
        except Exception as error:
            failed = self._failed.setdefault(owner.key, _Backoff())
            failed.until = self._placement.now() + min(AGAIN_AFTER * 2**failed.times, AT_MOST)
            failed.times = min(failed.times + 1, 10)
            said = "the callback did not answer in time" if isinstance(error, TimeoutError) else str(error)
            raise _CallbackError(said or type(error).__name__) from error

    async def _exiting_messages(self, owner: Record, session: Record) -> list[tuple[ExitedMessages, Places]]:
        """The messages that leave by an event, as they are now: without what was taken
        out by hand since, and what goes by a cut before it and has come back in
        between. Those of each user apart, so that what is learnt of them is that
        user's.

        And the places of all that is told with them, that of the summary too: it may
        say what any message said that it stands for. No user is told the summary of
        what others said.
        """
        log = self._sessions.log(session)
        (event,) = await log.whole([event_of(owner)])
        there = [
            e
            for _, e in sorted((await log.at(_places(event))).items())
            if e.type is EventType.MESSAGE and e.number is not None
        ]
        events = [e for e in await log.whole([e for e in there if not e.is_redacted]) if not e.is_redacted]
        gone = await History(self._placement, log).window_exits(events)
        kept = [
            e
            for e, why in zip(events, gone, strict=True)
            if not why.is_by_hand and why.cut_by in (None, event.place)
        ]
        owner_of, agent, namespace = (
            log.life.user,
            *(_text(session.fields.get(name)) for name in ("agent", "namespace")),
        )
        by_user: dict[str | None, list[tuple[Event, Message, int]]] = {}
        for one in kept:
            if (message := one.message) is not None and (number := one.number) is not None:
                by_user.setdefault(next(iter(one.writers(owner_of)), None), []).append((one, message, number))
        found: list[tuple[ExitedMessages, Places]] = []
        for user, said in by_user.items():
            is_told = not event.is_redacted and set(event.writers(owner_of)) <= {user}
            summary = event.message if is_told else None
            places = Places.of(
                [*(one.place for one, _, _ in said), *([] if summary is None else [event.place])]
            )
            messages, numbers = [message for _, message, _ in said], [number for _, _, number in said]
            found.append(
                (
                    ExitedMessages(log.life.session_id, user, agent, namespace, messages, numbers, summary),
                    places,
                )
            )
        return found

    # -- what was erased ---------------------------------------------------------------

    async def forget(self, log: Log, event: Event) -> None:
        """Delete the entries that were made of what this event said, which was erased,
        and let what is still to be made be asked for anew.

        Each event that owes it is written again, so that an answer which is under way,
        and may have read the text, is not noted. One that is noted, and was given
        without it, stays.
        """
        store, life, place = log.store, log.life, event.place
        query = Query(
            MESSAGES, within(life.partition), Eq("owing", True), limit=self._placement.settings.page
        )
        async for page in self._placement.pages("onward.owed", store, query):
            for row in page.records:
                if isinstance(row, Record) and place in _places(event_of(row)):
                    await self._ask_anew(store, row, place)
        await self.derived.forget(log, event)

    async def _ask_anew(self, store: Store, owner: Record, place: int) -> None:
        patience = RetryDeadline(self._placement, owner.key.id)
        while any(
            owed.step == LEAVE and (MADE not in owed.data or place in Places.from_json(owed.data[OF]))
            for owed in owner.owed
        ):
            anew = _with_pending_steps(owner, reset_answers(owner.owed), self._placement.now())
            outcome = await self._placement.write_one(
                "onward.anew", store, Put(MESSAGES, anew, AtVersion(owner.version), erases=True)
            )
            if (error := rejection_error(store, outcome)) is not None:
                raise error
            if outcome.applied or not isinstance(outcome.stored, Record):
                return
            owner = outcome.stored
            await patience.wait()


def reset_answers(owed: Sequence[PendingStep]) -> tuple[PendingStep, ...]:
    """What is owed, with whatever the callback has answered so far forgotten."""
    return tuple(PendingStep(LEAVE, LEAVE) if each.step == LEAVE else each for each in owed)


class _CallbackError(MemoryTiersError):
    """The caller's callback failed; it is asked again."""

    retryable = True


def _with_pending_steps(owner: Record, steps: tuple[PendingStep, ...], now: datetime) -> Record:
    """The event's record with other debts: when it came to say what it says stays (see
    `said_at`).
    """
    return replace(
        owner, version=version_at(now, owner.version), body={**owner.body, "said": said_at(owner)}, owed=steps
    )


def is_to_be_asked(owed: PendingStep) -> bool:
    """Whether this waits for a callback's answer."""
    return owed.step == LEAVE and MADE not in owed.data


def _places(event: Event) -> Places:
    data: Any = event.draft.data
    return Places.from_json(data.get(LEAVES, ()))


def _text(value: FieldValue) -> str | None:
    return None if value is None else str(value)


def _draft_to_json(draft: EntryDraft, now: datetime) -> dict[str, JsonValue]:
    """A draft as JSON; how long it lasts is told from now."""
    lasting = draft.model_copy(update={"expires_at": expiry(draft.expires_at, now)})
    return {
        **lasting.model_dump(mode="json", exclude_none=True, exclude={"scope"}),
        "scope": draft.scope.text,
    }
