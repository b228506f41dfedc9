"""Window exit: makes entries of messages that leave the window of a session.

Messages leave by a compaction, a cut, a replacement, or the session's end. Such an
event has the pending step `leave`. Excludes, clears, roll-backs and erasures by hand
have no pending step. Any process with the callback may carry out the step:

- It calls the callback.
- It stores the answer in the step, on condition that no other process was first.
- It makes the entries of that answer (`derived_entries.py`).

So each event leads to the entries of one answer, each stored once, even after a crash.
Entries of a message are made once, even if it returned to the window and left again.

A callback may take minutes. A caller that handles one session waits for it. A sweep
does not wait: the callback runs beside it, for one event after the other.
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
from memory.domain.errors import MemoryTiersError, NotFound, RejectedByGate, error_text
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
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.places import NOWHERE, Places
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
"""The pause after a callback's first failure, and the longest pause.

The pause doubles with each failure.
"""
ANSWERS_WITHIN = timedelta(minutes=2)


@dataclass(slots=True)
class _Backoff:
    """How often a callback has failed for an event, and when it may run again."""

    times: int = 0
    until: datetime | None = None


@dataclass(slots=True)
class WindowExitResult:
    """The result of handling the messages that left the window of one session.

    `entries` has the ids of the entries made now. `waiting` says why others were not
    made. `owing` has the session's events with the steps that are still pending.
    """

    entries: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    owing: list[Record] = field(default_factory=list)


@dataclass(slots=True)
class _AwaitedEvent:
    """An event that a caller waits for, in its current state.

    `entries` has the ids of the entries made for it.
    """

    event: Record
    entries: list[str]


class WindowExitHandler:
    """Makes entries of messages that left a window."""

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
        """The events for which the callback is still to be called beside sweeps."""
        self._asking: asyncio.Task[None] | None = None
        outbox.register(LEAVE, self._leave)

    def exit_data_and_steps(
        self, places: Places, after: LogTotals
    ) -> tuple[dict[str, JsonValue], tuple[PendingStep, ...]]:
        """Return the data and steps of an event through which these messages leave.

        `after` holds the totals before the event. Messages that left by an earlier end
        are not included again.
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
                self._heard.pop(owner.key, None)  # another caller may have waited for it too
            if left:
                told.owing.append(replace(heard.event, owed=left))
            if any(owed.step == LEAVE for owed in left):
                told.waiting.append(
                    f"session {record.fields['session_id']!s}: messages that left its window are not handled"
                    f" yet: {self._why(owner.key)}"
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
        """Return the entries that a sweep would make now of a stored answer.

        None if the callback has not answered yet.
        """
        if (session := await self._session(owner)) is None:
            return []
        return await self.derived.plan_entries(owner, session, owed.data) if MADE in owed.data else None

    def is_to_ask(self, owner: Record) -> bool:
        """Return whether a sweep here would call the callback for this event."""
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
            )  # other steps of these events may have waited for this one

    async def _ask_next(self) -> list[OutboxRecord]:
        """Call the callback for the event that waits longest.

        Returns its remaining steps if the `leave` step is done.
        """
        key, found = next(iter(self._waiting.items()))
        del self._waiting[key]
        try:
            owner = await self._placement.read_one("onward.owed", found.store, found.collection, key)
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
        """Wait until the callback was called for everything that sweeps found."""
        while self._asking is not None and not self._asking.done():
            await asyncio.wait([self._asking])

    async def close(self) -> None:
        """Wait up to `ANSWERS_WITHIN` for callbacks; the rest stays pending."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWERS_WITHIN.total_seconds()):
                    await self.drain()
        finally:
            if self._asking is not None:
                self._asking.cancel()
                await asyncio.wait([self._asking])

    async def finish_pending(self, tenant: str) -> None:
        """Carry out the pending steps of a tenant's events before an export.

        Steps that wait for a callback's answer are left out, because an export does not
        carry them.
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
        """Return the session of an event; None if it was deleted."""
        try:
            record = await self._sessions.record(owner.key.tenant, str(owner.fields["conversation_id"]))
        except NotFound:
            return None
        return record if self._sessions.log(record).events_of([owner]) else None

    def _is_left_alone(self, key: Key) -> bool:
        failed = self._failed.get(key)
        return failed is not None and failed.until is not None and self._placement.now() < failed.until

    async def _ask(self, pending: OutboxRecord, owner: Record, session: Record, callback: Callback) -> bool:
        """Call the callback, store its answer, and make the entries.

        The answer is discarded if another process was first.
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
        raise_if_rejected(pending.store, outcome)
        if not outcome.applied:
            return False  # another writer was first; the next attempt sees its change
        if (heard := self._heard.get(owner.key)) is not None:
            heard.event = noted
        return not any(
            owed.step == LEAVE
            for owed in await self._outbox.finish(OutboxRecord(MESSAGES, pending.store, noted), only=LEAVE)
        )

    async def _let_in(self, tenant: str, drafts: Sequence[EntryDraft]) -> list[EntryDraft]:
        """Return the drafts that the gates accept; the others are dropped."""
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
            late = isinstance(error, TimeoutError)
            raise _CallbackError(
                "the callback did not answer in time" if late else error_text(error)
            ) from error

    async def _exiting_messages(self, owner: Record, session: Record) -> list[tuple[ExitedMessages, Places]]:
        """Return the messages that leave by an event, per user, in their current form.

        Messages that were excluded by hand since are left out. So are messages that
        left by an earlier cut and returned in between. The messages of each user are
        separate, so that the derived entries belong to that user.

        The places include that of the summary, which may repeat any message in its
        range. A user never receives a summary of other users' messages.
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
        """Delete the entries derived from this erased message, and reset open answers.

        Each event with a pending `leave` step for it is written again. A concurrent
        answer that may have read the text then conflicts, and is not stored. A stored
        answer that was given without the message stays.
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
            raise_if_rejected(store, outcome)
            if outcome.applied or not isinstance(outcome.stored, Record):
                return
            owner = outcome.stored
            await patience.wait()


def reset_answers(owed: Sequence[PendingStep]) -> tuple[PendingStep, ...]:
    """Return the pending steps without any answers of the callback."""
    return tuple(PendingStep(LEAVE, LEAVE) if each.step == LEAVE else each for each in owed)


class _CallbackError(MemoryTiersError):
    """The caller's callback failed; it is called again later."""

    retryable = True


def _with_pending_steps(owner: Record, steps: tuple[PendingStep, ...], now: datetime) -> Record:
    """Return the event's record with other pending steps.

    The moment at which its content was written stays (see `said_at`).
    """
    return replace(
        owner, version=version_at(now, owner.version), body={**owner.body, "said": said_at(owner)}, owed=steps
    )


def is_to_be_asked(owed: PendingStep) -> bool:
    """Return whether this step waits for a callback's answer."""
    return owed.step == LEAVE and MADE not in owed.data


def _places(event: Event) -> Places:
    data: Any = event.draft.data
    return Places.from_json(data.get(LEAVES, ()))


def _text(value: FieldValue) -> str | None:
    return None if value is None else str(value)


def _draft_to_json(draft: EntryDraft, now: datetime) -> dict[str, JsonValue]:
    """Return a draft as JSON; a relative expiry counts from now."""
    lasting = draft.model_copy(update={"expires_at": expiry(draft.expires_at, now)})
    return {
        **lasting.model_dump(mode="json", exclude_none=True, exclude={"scope"}),
        "scope": draft.scope.text,
    }
