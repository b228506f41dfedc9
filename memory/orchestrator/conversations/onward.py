"""Onward: what messages become when they leave a session's window.

An event that lets messages leave by a compaction, or by the session's end, owes `leave`. Whoever has the callback and finds that carries it out: the
callback is asked, what it returned is written into the debt on condition that nobody was first, and of that the entries are made, each under an id
computed from the session's incarnation, the place and a number. So of one event the entries of one answer exist, each once, whoever dies.

Each entry owes `confirm` until the session has been seen alive behind it: one that was made while its session was deleted goes. The entries of a
session that is deleted go by `unlearn`, owed by the erasure, which finds them by the session they name.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from memory.domain import ids
from memory.domain.entry import EntryDraft, expiry
from memory.domain.errors import MemoryTiersError, NotFound
from memory.domain.scope import Scope
from memory.domain.session import HistoryItem
from memory.orchestrator.browsing import BROWSED
from memory.orchestrator.collections import ENTRIES, MESSAGES
from memory.orchestrator.conversations.events import LEAVES, Event, EventType, event_of
from memory.orchestrator.conversations.history import History, item_of
from memory.orchestrator.conversations.log import Log
from memory.orchestrator.conversations.passages import said_at
from memory.orchestrator.conversations.places import Places
from memory.orchestrator.conversations.sessions import UNLEARN, SessionRecords
from memory.orchestrator.entry_records import record_of
from memory.orchestrator.erasure import Erasure
from memory.orchestrator.meaning import Meaning
from memory.orchestrator.outbox import Outbox, Pending, Until, replicas
from memory.orchestrator.placement import Placement, refused
from memory.orchestrator.turns import Patience
from memory.orchestrator.versions import version_at
from memory.policies.onward import Leaving, drafts_of
from memory.policies.onward import Onward as Callback
from memory.ports.query import Eq, Query, Tenant, within
from memory.ports.record import JsonValue, Key, Owed, Partition, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Put

LEAVE, CONFIRM = "leave", "confirm"
MADE = "made"
"""In what is owed: what the callback returned."""
SAID_IN = "said_in"
"""In the body of an entry: incarnation and places of the messages that it was made of."""
AGAIN_AFTER, AT_MOST = timedelta(minutes=1), timedelta(hours=1)
"""How long a callback that failed is left alone, twice as long after each failure."""
ANSWERS_WITHIN = timedelta(minutes=2)


@dataclass(slots=True)
class _Failed:
    """How often a callback has failed for an event, and until when it is left alone."""

    times: int = 0
    until: datetime | None = None


@dataclass(slots=True)
class Left:
    """What became of the messages of one session that had left: ids of the entries made now, and why others were not made yet."""

    entries: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


class Onward:
    """Carries messages onward."""

    def __init__(
        self,
        placement: Placement,
        *,
        sessions: SessionRecords,
        meaning: Meaning,
        outbox: Outbox,
        erasure: Erasure,
        callback: Callback | Literal["elsewhere"] | None,
    ) -> None:
        self._placement = placement
        self._sessions = sessions
        self._meaning = meaning
        self._outbox = outbox
        self._erasure = erasure
        self._callback = callback if callable(callback) else None
        self._owes = callback is not None
        self._failed: dict[Key, _Failed] = {}
        self._asked: set[Key] = set()
        self._heard: dict[Key, list[str]] = {}
        outbox.register(LEAVE, self._leave)
        outbox.register(CONFIRM, self._confirm, Until.DELETED)
        outbox.register(UNLEARN, self._unlearn)

    def leaving(self, places: Places) -> tuple[dict[str, JsonValue], tuple[Owed, ...]]:
        """What an event says and owes by which messages at these places leave."""
        return ({LEAVES: places.to_json()}, (Owed(LEAVE, LEAVE),)) if self._owes and places.ranges else ({}, ())

    # -- carrying out -------------------------------------------------------------------------------------------------

    async def of_session(self, record: Record) -> Left:
        """Carry onward now whatever of this session is owed; a callback that has failed lately is asked again."""
        store, told = self._placement.topology.archive, Left()
        query = Query(MESSAGES, within(Partition(record.key.tenant, record.scope)), Eq("owing", True), limit=self._placement.settings.page)
        owners = [row async for page in self._placement.pages("onward.owed", store, query) for row in page.records if isinstance(row, Record)]
        for owner in sorted(owners, key=lambda owner: owner.created_at):
            self._failed.pop(owner.key, None)
            self._heard[owner.key] = told.entries
            try:
                left = await self._outbox.finish(Pending(MESSAGES, store, owner))
            finally:
                del self._heard[owner.key]
            if any(owed.step == LEAVE for owed in left):
                told.waiting.append(f"what was said in session {record.fields['session_id']!s} is not onward yet: {self._why(owner.key)}")
        return told

    def _why(self, key: Key) -> str:
        said = [problem.said for problem in self._outbox.problems if (problem.tenant, problem.record_id, problem.step) == (key.tenant, key.id, LEAVE)]
        return said[-1] if said else "it waits for a process that has the callback, or is at it now"

    async def _leave(self, pending: Pending, owed: Owed) -> bool:
        owner = pending.owner
        session = await self._session(owner) if isinstance(owner, Record) else None
        if not isinstance(owner, Record) or session is None:
            self._failed.pop(owner.key, None)
            return True  # deleted
        if MADE not in owed.data:
            if self._callback is None or owner.key in self._asked or self._is_left_alone(owner.key):
                return False
            self._asked.add(owner.key)
            try:
                return await self._ask(pending, owner, session, self._callback)
            finally:
                self._asked.discard(owner.key)
        await self._store(owner, session, owed.data[MADE])
        return True

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

    async def _ask(self, pending: Pending, owner: Record, session: Record, callback: Callback) -> bool:
        """Ask the callback and write down what it returned, where nobody else has; then do what that owes."""
        leaving = await self._leaving(owner, session)
        drafts = [] if leaving is None else await self._drafts(owner, callback, leaving)
        self._failed.pop(owner.key, None)
        if not drafts:
            return True
        now = self._placement.now()
        steps = tuple(replace(o, data={**o.data, MADE: [_said(draft, now) for draft in drafts]}) if o.step == LEAVE else o for o in owner.owed)
        noted = _owing(owner, steps, now)
        outcome = await self._placement.write_one("onward.note", pending.store, Put(MESSAGES, noted, AtVersion(owner.version)))
        if (error := refused(pending.store, outcome)) is not None:
            raise error
        if not outcome.applied:
            return False  # others were first, or the message was changed; who looks next sees it
        return not any(owed.step == LEAVE for owed in await self._outbox.finish(Pending(MESSAGES, pending.store, noted)))

    async def _drafts(self, owner: Record, callback: Callback, leaving: Leaving) -> list[EntryDraft]:
        try:
            async with asyncio.timeout(ANSWERS_WITHIN.total_seconds()):  # maintenance waits for it
                made = callback(leaving)
                return drafts_of(await made if inspect.isawaitable(made) else made, leaving)
        except Exception as error:
            failed = self._failed.setdefault(owner.key, _Failed())
            failed.until = self._placement.now() + min(AGAIN_AFTER * 2**failed.times, AT_MOST)
            failed.times = min(failed.times + 1, 10)
            said = "the callback did not answer in time" if isinstance(error, TimeoutError) else str(error)
            raise _CallbackFailed(said or type(error).__name__) from error

    async def _leaving(self, owner: Record, session: Record) -> Leaving | None:
        """The messages that leave by an event, as they are now: without those that were excluded since; None where there are none."""
        log, event = self._sessions.log(session), event_of(owner)
        events = [
            e for _, e in sorted((await log.at(_places(event))).items()) if e.type is EventType.MESSAGE and e.number is not None and not e.is_redacted
        ]
        gone = await History(self._placement, log).gone(events)
        kept = [(e.message, e.number) for e, why in zip(events, gone, strict=True) if why.excluded is None]
        said = [(message, number) for message, number in kept if message is not None and number is not None]
        if not said:
            return None
        user, agent, namespace = (None if (value := session.fields.get(name)) is None else str(value) for name in ("subject", "agent", "namespace"))
        summary = event.message
        messages, numbers = [message for message, _ in said], [number for _, number in said]
        return Leaving(log.life.session_id, user, agent, namespace, messages, numbers, summary)

    # -- the entries --------------------------------------------------------------------------------------------------

    async def _store(self, owner: Record, session: Record, made: Sequence[Mapping[str, Any]]) -> None:
        """Make the entries that do not stand yet. One that was deleted since is not made again."""
        records = [self._record(owner, session, number, said) for number, said in enumerate(made)]
        located = await self._placement.locate_many(ENTRIES, [record.key for record in records])
        fresh = [record for record, there in zip(records, located, strict=True) if not (there.record or there.tombstone or there.corrupt)]
        for record in await self._meaning.embedded(fresh):
            store = self._placement.topology.home(record.tier)
            born = replace(record, owed=(*replicas(self._placement, ENTRIES, store, record.tier), *record.owed))
            outcome = await self._placement.write_one("onward.home", store, Put(ENTRIES, born, Absent()))
            if (error := refused(store, outcome)) is not None:
                raise error
            if outcome.applied:
                await self._outbox.finish(Pending(ENTRIES, store, replace(born, generation=outcome.generation)))
                self._heard.get(owner.key, []).append(record.key.id)

    def _record(self, owner: Record, session: Record, number: int, said: Mapping[str, Any]) -> Record:
        draft, now, incarnation = _draft(said), self._placement.now(), str(session.body["incarnation"])
        event = event_of(owner)
        key = Key(owner.key.tenant, ids.derived_id(owner.key.tenant, draft.scope.text, "onward", incarnation, str(event.place), str(number)))
        tier = self._placement.kinds.of(ENTRIES).route(draft.scope.kind).tier
        record = record_of(draft, key=key, version=version_at(now), now=now, tier=tier)
        return replace(
            record,
            fields={**record.fields, "conversation_id": session.fields["session_id"]},
            body={**record.body, SAID_IN: {"incarnation": incarnation, "places": _places(event).to_json()}},
            owed=(Owed(CONFIRM, CONFIRM),),
        )

    async def _confirm(self, pending: Pending, owed: Owed) -> bool:
        """Delete an entry whose session was deleted while it was made."""
        entry = pending.owner
        if isinstance(entry, Record) and not await self._lives(entry):
            await self._erasure.delete(ENTRIES, entry.key)
        return True

    async def _lives(self, entry: Record) -> bool:
        try:
            session = await self._sessions.record(entry.key.tenant, str(entry.fields["conversation_id"]))
        except NotFound:
            return False
        return bool(session.body["incarnation"] == entry.body[SAID_IN]["incarnation"])

    async def _unlearn(self, pending: Pending, owed: Owed) -> bool:
        """Delete the entries that were made of what was said in a session that is gone."""
        tenant, session_id, incarnation = owed.data["tenant"], owed.data["session_id"], owed.data["incarnation"]
        try:
            if (await self._sessions.record(tenant, session_id)).body["incarnation"] == incarnation:
                return False  # its erasure comes first
        except NotFound:
            pass
        async for entry in self._made_of(tenant, session_id):
            if entry.body.get(SAID_IN, {}).get("incarnation") == incarnation:
                await self._erasure.delete(ENTRIES, entry.key)
        return True

    async def forget(self, log: Log, place: int) -> None:
        """Delete the entries that were made of the message at this place, which was erased, and let what is still to be made be asked for anew.

        Each event that owes it is written again, so that an answer which is under way, and has read the text, is not noted.
        """
        store, life = log.store, log.life
        query = Query(MESSAGES, within(life.partition), Eq("owing", True), limit=self._placement.settings.page)
        async for page in self._placement.pages("onward.owed", store, query):
            for row in page.records:
                if isinstance(row, Record) and any(o.step == LEAVE for o in row.owed) and place in _places(event_of(row)):
                    await self._ask_anew(store, row)
        async for entry in self._made_of(life.tenant, life.session_id):
            said_in: Any = entry.body.get(SAID_IN, {})
            if said_in.get("incarnation") == life.incarnation and place in Places.told(said_in["places"]):
                await self._erasure.delete(ENTRIES, entry.key)

    async def _ask_anew(self, store: Store, owner: Record) -> None:
        patience = Patience(self._placement, owner.key.id)
        while any(owed.step == LEAVE for owed in owner.owed):
            steps = tuple(Owed(LEAVE, LEAVE) if owed.step == LEAVE else owed for owed in owner.owed)
            anew = _owing(owner, steps, self._placement.now())
            outcome = await self._placement.write_one("onward.anew", store, Put(MESSAGES, anew, AtVersion(owner.version)))
            if (error := refused(store, outcome)) is not None:
                raise error
            if outcome.applied or not isinstance(outcome.stored, Record):
                return
            owner = outcome.stored
            await patience.wait()

    async def _made_of(self, tenant: str, session_id: str) -> AsyncIterator[Record]:
        for store in self._placement.topology.homes:
            query = Query(ENTRIES, Tenant(tenant), Eq("conversation_id", session_id), limit=self._placement.settings.page, roles=BROWSED)
            async for page in self._placement.pages("onward.made", store, query):
                for row in page.records:
                    if isinstance(row, Record):
                        yield row

    async def messages_of(self, entry: Record) -> list[HistoryItem]:
        """The messages that an entry was made of, those that are there still."""
        if SAID_IN not in entry.body or not await self._lives(entry):
            return []
        session = await self._sessions.record(entry.key.tenant, str(entry.fields["conversation_id"]))
        log = self._sessions.log(session)
        events = [e for _, e in sorted((await log.at(Places.told(entry.body[SAID_IN]["places"]))).items()) if e.number is not None]
        return [item_of(e, gone) for e, gone in zip(events, await History(self._placement, log).gone(events), strict=True)]


class _CallbackFailed(MemoryTiersError):
    """The caller's callback failed; it is asked again."""

    retryable = True


def _owing(owner: Record, steps: tuple[Owed, ...], now: datetime) -> Record:
    """The event's record with other debts: when it came to say what it says stays (see `said_at`)."""
    return replace(owner, version=version_at(now, owner.version), body={**owner.body, "said": said_at(owner)}, owed=steps)


def _places(event: Event) -> Places:
    data: Any = event.draft.data
    return Places.told(data.get(LEAVES, ()))


def _said(draft: EntryDraft, now: datetime) -> dict[str, JsonValue]:
    """A draft as JSON; how long it lasts is told from now."""
    lasting = draft.model_copy(update={"expires_at": expiry(draft.expires_at, now)})
    return {**lasting.model_dump(mode="json", exclude_none=True, exclude={"scope"}), "scope": draft.scope.text}


def _draft(said: Mapping[str, Any]) -> EntryDraft:
    return EntryDraft(**{**said, "scope": Scope.parse(said["scope"])})
