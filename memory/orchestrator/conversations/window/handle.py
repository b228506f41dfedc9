"""The common base of all operations of a session.

It holds the session's record, its log, and the caller's reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from memory.domain.errors import InvalidInput, MemoryTiersError, NotFound
from memory.domain.json_values import is_same_json
from memory.domain.message import SYSTEM, Message
from memory.domain.session import SessionInfo
from memory.domain.validation import LARGE_TEXT_BYTES
from memory.domain.versions import version_conflict
from memory.orchestrator.conversations.blobs.large_texts import large_texts
from memory.orchestrator.conversations.log.events import Draft, Event, EventType
from memory.orchestrator.conversations.log.folding import left_by
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.log.seen import LogSnapshot
from memory.orchestrator.conversations.sessions import (
    ATTRIBUTES,
    FOLLOWS_WITHIN,
    SessionDraft,
    SessionRecords,
    attributes_version,
    info_of,
    system_of,
)
from memory.orchestrator.conversations.window.history import History
from memory.orchestrator.conversations.window.reading import Window, WindowExtent, read_window, window_at_hand
from memory.orchestrator.conversations.window.reads import reads_of_caller
from memory.orchestrator.conversations.window.replacing import WindowGuard
from memory.orchestrator.conversations.window_exits import WindowExitHandler
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.places import Places
from memory.orchestrator.storage.requests import (
    CREATED_OVER,
    MADE_BY,
    RequestMark,
    deleted_since,
    marks_with,
    was_made_by,
)
from memory.ports.concurrency import both_at_once
from memory.ports.record import FieldValue, JsonValue, Record
from memory.ports.tokens import TokenCounter

log = logging.getLogger(__name__)

_ALL = WindowExtent()


def body_of_system(system: Message) -> JsonValue:
    """Return how the record of a session holds its system message."""
    held: JsonValue = system.model_dump(mode="json", exclude_defaults=True, exclude={"id"})
    return held


class Handle:
    """One session, as seen by one handle."""

    def __init__(
        self,
        placement: Placement,
        sessions: SessionRecords,
        window_exit: WindowExitHandler,
        record: Record,
        log: Log,
        counter: TokenCounter,
        user: str | None = None,
    ) -> None:
        """Open a session for `user`, by default the session's own."""
        self._placement = placement
        self._window_exit = window_exit
        self._sessions = sessions
        self._record = record
        self._log = log
        self._counter = counter
        self._user = log.life.user if user is None else user
        self._history = History(placement, log)
        self._begun = 0
        self._mark = object()
        """Distinguishes this handle's writes from other writes of the same task."""

    @property
    def id(self) -> str:
        return self._log.life.session_id

    @property
    def log(self) -> Log:
        return self._log

    @property
    def user(self) -> str | None:
        """The user who writes through this handle."""
        return self._user

    @property
    def _writers(self) -> tuple[str, ...]:
        """The authors to store in a message that is written through this handle.

        Empty if that is the session's user.
        """
        return self._log.life.writers_of(self._user)

    def _writers_after(self, event: Event) -> tuple[str, ...]:
        """Return the authors of a message after a change through this handle."""
        return self._log.life.writers_after(event.draft.said_by, self._user)

    def as_owned(self) -> SessionDraft:
        """Return a draft that opens this session again for the same owner."""
        agent, namespace = (
            None if (value := self._log.life.whose.get(name)) is None else str(value)
            for name in ("agent", "namespace")
        )
        return SessionDraft(self.id, user=self._user, agent=agent, namespace=namespace)

    async def _same_life(self) -> Record:
        try:
            record = await self._sessions.record(self._log.life.tenant, self.id)
        except NotFound:
            raise NotFound(self.id, "session", expired_at=self._sessions.known_expiry(self._record)) from None
        if record.body["incarnation"] != self._log.life.incarnation:
            raise NotFound(
                self.id, "session"
            )  # deleted and created again since: this handle is of its former life
        return record

    def refuse_later_life(self, request: RequestMark) -> None:
        """Raise `Conflict` if the session was created again since the request began."""
        if request.may_have_made(int(str(self._record.body.get(CREATED_OVER, 0)))):
            raise deleted_since(f"session {self.id!r}")

    async def refuse_if_over(self) -> None:
        """Raise `NotFound` if this handle knows that the session has expired.

        Nobody would read a later write.
        """
        if self._sessions.known_expiry(self._record) is not None:
            self._record = await self._same_life()

    async def _window(self, asked: WindowExtent = _ALL) -> Window:
        """Return the window, or only the end of it that `asked` needs."""
        self._record, window = await read_window(self._log, self._same_life(), self._counter, asked)
        return window

    async def _window_at_hand(self, asked: WindowExtent) -> Window | None:
        """Return the needed end of the window from the cache; None if not cached."""
        record = self._sessions.cached_record(self._log.life.tenant, self.id)
        if record is None or record.body["incarnation"] != self._log.life.incarnation:
            return None
        return await window_at_hand(self._log, record, self._counter, asked)

    async def _whole(self, window: Window, messages: Sequence[Message]) -> list[Message]:
        """Return these messages of the window with their complete texts.

        Messages that were erased meanwhile are left out.
        """
        lacking = {
            id(m): e.place
            for m, e in zip(window.messages, window.events, strict=True)
            if e is not None and not e.draft.is_whole
        }
        wanted = {lacking[id(message)] for message in messages if id(message) in lacking}
        whole = await self._log.whole(
            [event for event in window.events if event is not None and event.place in wanted]
        )
        read = {event.place: None if event.is_redacted else event.message for event in whole}
        said = [read[lacking[id(message)]] if id(message) in lacking else message for message in messages]
        return [message for message in said if message is not None]

    def _note_writes(self, *events: Event) -> None:
        reads = reads_of_caller()
        for event in events:
            reads.note_write(self._log.life.incarnation, event, self._mark)

    async def _remove_from_window(
        self,
        event: EventType,
        known: Places,
        reason: str,
        request: RequestMark | None = None,
        data: Mapping[str, JsonValue] | None = None,
        guard: WindowGuard | None = None,
    ) -> int:
        """Take those of the known places that are in the window out of it.

        Messages that a replacement takes out are passed to `on_window_exit`. Returns
        how many left. With `data` for the event, it is appended even if none leaves.
        """

        def decide(seen: LogSnapshot) -> list[Draft]:
            leaving = Places.of(place for place in known if place in seen.state.window)
            leaves, owed = (
                self._window_exit.exit_data_and_steps(leaving, seen.state.after)
                if event is EventType.REPLACE
                else ({}, ())
            )
            return (
                [
                    Draft(
                        event,
                        data={"left": leaving.to_json(), "reason": reason, **leaves, **(data or {})},
                        owed=owed,
                    )
                ]
                if leaving.ranges or data
                else []
            )

        checked = decide if guard is None else guard.with_check(decide)
        done = await self._append_and_touch(checked, request)
        return 0 if done is None else len(left_by(done.draft))

    async def _append_and_touch(
        self, decide: Callable[[LogSnapshot], list[Draft]], request: RequestMark | None = None
    ) -> Event | None:
        """Append an event, and return it; None if `decide` returns none.

        A repeat of the request returns the event of the first attempt.
        """
        events = await self._log.append_once(decide, request)
        await self._touch()
        return events[0] if events else None

    async def info(self) -> SessionInfo:
        """Return the session's current description."""
        self._record, seen = await both_at_once(self._same_life(), self._log.load())
        return info_of(self._record, seen.state, self._log.gaps)

    async def describe(
        self,
        told: Mapping[str, FieldValue],
        *,
        expected: int | None = None,
        system: Callable[[Message], Message] | None = None,
        request: RequestMark | None = None,
        **changes: JsonValue,
    ) -> SessionInfo:
        """Change values of the session that are not in its log.

        These are title and metadata, and by `told` the fields for tags, agent and
        expiry. If it has these values already, its version stays.

        Args:
            expected: The version of the attributes that must be stored.
            system: Returns the new system message for the stored one.
            request: The mark of the request. A repeat of it changes nothing.

        Raises:
            LegalHoldActive: The session is under legal hold, and a title, metadata or
                system message would be overwritten.
            NotFound: It has no system message that `system` would replace.
            VersionConflict: Its attributes have another version than the expected one.
        """

        async def next_attributes(there: Record) -> Mapping[str, JsonValue]:
            stored = attributes_version(there)
            if expected not in (None, stored):
                raise version_conflict(f"session {self.id}", expected, stored, self.id)
            new: dict[str, JsonValue] = {ATTRIBUTES: self._placement.next_version(max(stored, there.version))}
            if system is not None:
                new["system"] = body_of_system(await self._next_system(there, system))
            return new if request is None else new | {MADE_BY: marks_with(there, request)}

        record, seen = await both_at_once(self._same_life(), self._log.load())
        if request is not None and was_made_by(record, request):
            self._record = record
            return info_of(record, seen.state, self._log.gaps)
        system_message = (await next_attributes(record)).get("system", record.body.get("system"))
        stated = {**changes, "system": system_message}
        differing = {
            name
            for name, value in stated.items()
            if not is_same_json(record.body.get(name) or None, value or None)
        }
        if any(record.body.get(name) for name in differing & changes.keys()):
            await self._sessions.refuse_change(self._log.life)
        if differing or any(
            (record.fields.get(name) or None) != (value or None) for name, value in told.items()
        ):
            record = await self._sessions.follow(
                record, seen.state, self._placement.now(), told, compute=next_attributes, **changes
            )
        self._record = record
        return info_of(record, seen.state, self._log.gaps)

    async def _next_system(self, record: Record, change: Callable[[Message], Message]) -> Message:
        """Return the system message of the record after a change."""
        system = system_of(record)
        if system is None:
            raise NotFound(SYSTEM, "message")
        new = change(system)
        if new != system:
            await self._sessions.refuse_change(self._log.life)
        if large := large_texts(new):
            raise InvalidInput(
                str(large[0][0][0]), f"of the system message exceeds {LARGE_TEXT_BYTES} bytes. Shorten it"
            )
        return new

    async def note_access(self) -> datetime:
        """Note a read of the session; return its time.

        The session's record is updated no more often than lists need it. A failure of
        that does not fail the read.
        """
        now, told = self._placement.now(), info_of(self._record).accessed_at
        if told is None or now - told >= FOLLOWS_WITHIN:
            try:
                seen = self._log.snapshot or await self._log.load()
                touched: Any = self._record.fields["touched_at"]
                self._record = await self._sessions.follow(
                    self._record, seen.state, touched, accessed_at=now.isoformat()
                )
            except NotFound:
                raise
            except MemoryTiersError as error:
                log.info("the time of the last read of session %s was not recorded: %s", self.id, error)
        return now

    async def _touch(self) -> None:
        """Update the session's record for lists, but not for each message of a burst.

        The messages are stored already, so a failure of the update does not fail the
        call.
        """
        if self._log.snapshot is None:
            return
        state, now, touched = (
            self._log.snapshot.state,
            self._placement.now(),
            self._record.fields["touched_at"],
        )
        self._sessions.is_behind(self._record, state, now)
        if isinstance(touched, datetime) and now - touched >= FOLLOWS_WITHIN:
            try:
                self._record = await self._sessions.tell(self._record, state, now)
            except MemoryTiersError as error:
                log.info("the record of session %s is behind its log: %s", self.id, error)
