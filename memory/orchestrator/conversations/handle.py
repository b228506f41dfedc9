"""What all that is done with one session has in common: its record, its log, and what its caller knows of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from memory.domain.errors import MemoryTiersError, NotFound
from memory.domain.message import Message
from memory.domain.session import SessionInfo
from memory.orchestrator.conversations.events import Draft, Event, EventType
from memory.orchestrator.conversations.history import History
from memory.orchestrator.conversations.log import Log, Seen
from memory.orchestrator.conversations.places import Places
from memory.orchestrator.conversations.sessions import FOLLOWS_WITHIN, SessionRecords, info_of, system_of
from memory.orchestrator.placement import Placement
from memory.ports.record import FieldValue, Record
from memory.ports.tokens import TokenCounter

log = logging.getLogger(__name__)


class Handle:
    """One session, as one handle has it."""

    def __init__(self, placement: Placement, sessions: SessionRecords, record: Record, log: Log, counter: TokenCounter) -> None:
        self._placement = placement
        self._sessions = sessions
        self._record = record
        self._log = log
        self._counter = counter
        self._history = History(placement, log)
        self._known: Places | None = None
        """The places of the window that this handle's caller has read or written; None where neither was done yet."""

    @property
    def id(self) -> str:
        return self._log.life.session_id

    async def _same_life(self) -> Record:
        record = await self._sessions.record(self._log.life.tenant, self.id)
        if record.body["incarnation"] != self._log.life.incarnation:
            raise NotFound(self.id, "session")  # deleted, and created again since: this handle is of its former life
        return record

    def _messages(self, events: Sequence[Event]) -> list[Message]:
        """The window in the order that a model reads it: system, summaries, then by place."""
        system = system_of(self._record)
        said = [(event, message) for event in events if (message := event.message) is not None]
        summaries = [message for event, message in said if event.type is EventType.COMPACTION]
        others = [message for event, message in said if event.type is not EventType.COMPACTION]
        return [*([] if system is None else [system]), *summaries, *others]

    def _counted(self, events: Sequence[Event]) -> dict[str | None, int]:
        """What messages take, as far as this counter has counted them when they were stored."""
        drafts = ((event.message, event.draft) for event in events)
        return {m.id: d.tokens for m, d in drafts if m is not None and d.tokens is not None and d.data.get("counter") == self._counter.name}

    def _wrote(self, *events: Event) -> None:
        for event in events:
            self._known = (self._known or Places()).with_one(event.place)

    async def _left(self, event: EventType, known: Places, reason: str) -> int:
        """Let those of the known places that are in the window leave it."""
        left = 0

        def decide(seen: Seen) -> list[Draft]:
            nonlocal left
            leaving = Places.of(place for place in known if place in seen.state.window)
            left = len(leaving)
            return [Draft(event, data={"left": leaving.to_json(), "reason": reason})] if left else []

        await self._done(decide)
        return left

    async def _done(self, decide: Callable[[Seen], list[Draft]]) -> bool:
        done = bool(await self._log.append(decide))
        await self._touch()
        return done

    async def info(self) -> SessionInfo:
        """The session as it is now."""
        self._record = await self._same_life()
        return info_of(self._record, (await self._log.load()).state)

    async def describe(self, *, tags: Sequence[str], agent: str | None) -> None:
        """Let the session have these tags and this agent, instead of those it had."""
        named: dict[str, FieldValue] = {"tags": tuple(tags), "agent": agent}
        if any((self._record.fields.get(name) or None) != (value or None) for name, value in named.items()):
            record, seen = await self._same_life(), await self._log.load()
            self._record = await self._sessions.follow(record, seen.state, self._placement.now(), named=named)

    async def note_access(self) -> datetime:
        """When it was read: now. Its own record is told not more often than lists are; that this fails is no reason not to show what was read."""
        now, told = self._placement.now(), info_of(self._record).accessed_at
        if told is None or now - told >= FOLLOWS_WITHIN:
            try:
                seen = self._log.seen or await self._log.load()
                touched: Any = self._record.fields["touched_at"]
                self._record = await self._sessions.follow(self._record, seen.state, touched, accessed_at=now.isoformat())
            except NotFound:
                raise
            except MemoryTiersError as error:
                log.info("the record of session %s does not say when it was read: %s", self.id, error)
        return now

    async def _touch(self) -> None:
        """Tell the session's own record, for lists; not with each message of a burst. What was said is stored: that this fails is no reason to say
        that it is not."""
        touched: Any = self._record.fields["touched_at"]
        if self._log.seen is not None and self._placement.now() - touched >= FOLLOWS_WITHIN:
            try:
                self._record = await self._sessions.follow(self._record, self._log.seen.state, self._placement.now())
            except MemoryTiersError as error:
                log.info("the record of session %s is behind its log: %s", self.id, error)
