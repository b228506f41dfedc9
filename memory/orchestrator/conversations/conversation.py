"""The operations of one session: messages, window, history, compactions and its end."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from memory.domain.error_table import store_note
from memory.domain.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from memory.domain.ids import is_id
from memory.domain.message import SYSTEM, Message, Role
from memory.domain.session import Context, HistoryPage, SessionState
from memory.domain.shapes import forget_changed
from memory.domain.shapes.originals import continues, is_same_original
from memory.domain.versions import version_conflict, version_text
from memory.orchestrator.conversations.log.events import ENTERS, FIRST_PLACE, Draft, Event, EventType, copy_of
from memory.orchestrator.conversations.log.folding import State, left_by
from memory.orchestrator.conversations.log.forks import copied_on
from memory.orchestrator.conversations.log.seen import LogSnapshot
from memory.orchestrator.conversations.log.session_state import (
    StateChange,
    read_state,
    refuse_if_split,
    with_state,
)
from memory.orchestrator.conversations.sessions import (
    CONFIRM_FORK,
    END,
    ForkSource,
    SessionDraft,
    draft_like,
)
from memory.orchestrator.conversations.window.compaction import WindowCompaction
from memory.orchestrator.conversations.window.handle import body_of_system
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.orchestrator.conversations.window.reading import (
    COPIED,
    Window,
    WindowExtent,
    order_events,
    read_of,
    version_of_window,
)
from memory.orchestrator.conversations.window.reads import Version, WindowRead, reads_of_caller, version_of
from memory.orchestrator.conversations.window.replacing import (
    AT_ONCE,
    Replacement,
    WindowChanged,
    WindowGuard,
    begin_edits,
)
from memory.orchestrator.conversations.window_exits import WindowExitResult
from memory.orchestrator.storage.collections import MESSAGES
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.places import Places
from memory.orchestrator.storage.requests import MADE_BY, RequestMark, marks_with, was_made_by
from memory.policies.context import ContextRequest, read_out
from memory.policies.message_alignment import align_messages
from memory.policies.tokens import message_tokens, tools_tokens
from memory.policies.window import is_made_for_reading, is_pinned, stand_in, stand_in_id
from memory.ports.concurrency import both_at_once
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import And, Eq, Gt, Partitions, Query, within
from memory.ports.record import JsonValue, PendingStep, Record

EVERYTHING = ContextRequest()
POPPED_MORE = 16
"""Messages that are read more if an original's first message is further back."""
NONE_READ: Mapping[str, Version] = {}
STORED = "stored"
"""In the data of a replacement by a request: the places of its messages, in order."""
NO_STATE: Mapping[str, JsonValue] = {}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place in a session's log to roll back to."""

    session_id: str
    incarnation: str
    place: int


class _StaleRead(Exception):
    """An earlier lookup is out of date: the log has new messages or compactions."""


class Conversation(WindowCompaction):
    """One session, as seen by one handle."""

    # -- reading -----------------------------------------------------------------------

    async def context(
        self, asked: ContextRequest = EVERYTHING, *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Context:
        """Return the context to send to a model.

        It holds the system message, the newest summary, then the messages of the
        window. Results follow their calls. Only as much of the window is read as the
        context needs.

        If the store does not answer, the context shows the window as this process saw
        it within the last minute, and `degraded` says so. The call counts as a read by
        the calling task.
        """
        context, read = await self.read(asked, tools=tools)
        reads_of_caller().put(self._log.life.incarnation, read)
        return context

    async def read(
        self, asked: ContextRequest = EVERYTHING, *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[Context, WindowRead]:
        """Return the context, and the caller's resulting knowledge of the window.

        Unlike `context`, this does not count as a read by the calling task.
        """
        of_tools = tools_tokens(tools, self._counter)
        reach, degraded = (
            WindowExtent(asked.newest, None if asked.budget is None else asked.budget - of_tools, asked.by),
            list[str](),
        )
        try:
            window = await self._window(reach)
        except StoreUnavailable as error:
            remembered = await self._window_at_hand(reach)
            if remembered is None:
                raise
            window, degraded = (
                remembered,
                [store_note(error, "the result shows the session as this process last read it")],
            )
        if asked.layered:
            asked = replace(asked, earlier=await self._earlier_summaries())
        version = window.state.after.version
        told = read_out(
            window.arranged,
            window.costs,
            window.said_by_then,
            window.count,
            version,
            asked,
            self._counter,
            of_tools,
        )
        messages = await self._whole(window, told.messages)
        if len(messages) < len(told.messages):  # some were erased meanwhile
            return await self.read(asked, tools=tools)
        answers = {} if asked.as_stored else window.arranged.answers
        calls = {id(window.messages[at]): call_id for at, call_id in answers.items()}
        copies = [copy_of(message) async for message in iterate_cooperatively(messages, COPIED)]
        for message, copy in zip(told.messages, copies, strict=True):
            copy.tool_call_id = calls.get(id(message), copy.tool_call_id)
        is_all = window.is_whole and not told.left_out and not degraded
        seen_as = version_text(version_of_window(window)) if is_all else None
        shown = replace(told, messages=copies, degraded=degraded, window_version=seen_as)
        return shown, read_of(window, messages)

    async def _earlier_summaries(self) -> list[Message]:
        """Return the summaries in the window and those that compactions archived.

        Summaries that were erased, excluded by hand or rolled back are left out.
        """
        events = [event for event in await self._compaction_events() if not event.is_redacted]
        told = zip(events, await self._history.window_exits(events), strict=True)
        whole = await self._log.whole([event for event, gone in told if gone.excluded is None])
        return [message for event in whole if (message := event.message) is not None and not message.is_empty]

    async def history(self, asked: HistoryQuery) -> HistoryPage:
        self._record, page = await self._history.page(asked, self._same_life())
        return page

    async def search_scope(self) -> Partitions:
        """Return the partitions in which a search finds this session's messages.

        Raises `NotFound` if the session is over.
        """
        self._record = await self._same_life()
        return within(self._log.life.partition)

    # -- messages ----------------------------------------------------------------------

    async def append(
        self,
        messages: Sequence[Message],
        *,
        in_history: bool = True,
        change: StateChange | None = None,
        request: RequestMark | None = None,
    ) -> list[Message]:
        """Store messages, and return them as stored.

        New messages are appended in order. A message whose id exists replaces the
        content of that message at its place.

        A message that was only in the window enters the history under the next number,
        unless it is passed with `in_history=False` again.

        With a `change` of the session's state, all messages must be new. Then messages
        and state are stored together or not at all.

        Args:
            request: The mark of the request. Messages without ids get ids that derive
                from it, so that a repeat finds them. A repeat undoes no later edit or
                erasure, and changes no state again.
        """
        there: dict[str, Message] = {}
        erased: set[str] = set()
        if request is not None:
            names = message_ids(messages, request)
            new = [message.id is None for message in messages]
            for name, is_new in zip(names, new, strict=True):
                if is_new and request.repeats and (found := await self.message(name)) is not None:
                    there[name] = found
            if request.repeats:
                gone = [name for name, is_new in zip(names, new, strict=True) if is_new and name not in there]
                erased = await self._log.erased_ids(gone) if gone else erased
            messages = [
                message if message.id is not None else message.model_copy(update={"id": name})
                for message, name in zip(messages, names, strict=True)
            ]
        rest = [message for message in messages if message.id not in there and message.id not in erased]
        written = (
            await self.append_as_read(
                rest, in_history=in_history, enters=in_history, change=None if there or erased else change
            )
            if rest or not messages
            else []
        )
        if not there:
            return [message for message in written if message is not None]
        there |= {str(message.id): message for message in written if message is not None}
        stored = [there.get(str(message.id)) for message in messages]
        return [message for message in stored if message is not None]

    async def append_as_read(
        self,
        messages: Sequence[Message],
        *,
        in_history: bool = True,
        enters: bool = False,
        versions: Mapping[str, Version] = NONE_READ,
        keeps_edits: bool = False,
        change: StateChange | None = None,
        guard: WindowGuard | None = None,
    ) -> list[Message | None]:
        """Store messages like `append`, but respect edits that the caller has not read.

        A message in `versions` that was edited or erased since that version is not
        written again. The result has the edited message as it is now, and None for an
        erased one.

        Args:
            enters: Whether existing messages that are only in the window enter the
                history.
            versions: The version of each message that the caller has read, by id.
            keeps_edits: Do not write any message again that was ever edited.
            guard: Checks the window at the first write.
        """
        messages = [copy_of(message) for message in messages]
        given = {
            message.id: message for message in messages if message.id is not None
        }  # if an id repeats, the last message counts, at the position of the first
        in_order = {
            message.id or id(message): given[message.id] if message.id else message for message in messages
        }.values()
        if SYSTEM in given:
            raise InvalidInput("id", "'system' is the id of the system message. Use another id, or update it")
        patience = RetryDeadline(self._placement, self.id)
        while True:
            seen = self._log.snapshot or await self._log.load()
            known = seen.state.place
            found = {message_id: await self._log.find(message_id, as_seen=True) for message_id in given}
            new = [m for m in in_order if m.id is None or (found[m.id] is None and m.id not in versions)]
            again = {name: event for name, event in found.items() if event is not None}
            known_as = {
                name: versions.get(name, (event.place, 0) if keeps_edits else None)
                for name, event in again.items()
            }
            if any(
                known_as[name] in (None, version_of(event)) and _loses(event, given[name])
                for name, event in again.items()
            ):
                await self._sessions.refuse_change(self._log.life)  # before anything is written
            late = await self._stand_ins(new)
            decide = self._drafts(new, in_history, known, late)
            try:
                if change is not None:
                    decide = await self._with_change(decide, change, seen, len(new) + len(late), again)
                decide = decide if guard is None else guard.with_check(decide)
                events = await self._log.append(decide) if new or change is not None else []
                if guard is not None:
                    guard.note(events)
                    if again and not guard.is_passed:
                        guard.note(await self._log.append(guard.with_check(begin_edits)))
                appended = [event for event in events if event.type is EventType.MESSAGE]
                self._note_writes(*appended)
                stored = {id(message): event.message for message, event in zip(new, appended, strict=True)}
                for name, event in again.items():
                    stored[id(given[name])] = await self._replace_message(
                        event, given[name], known_as[name], enters=enters, strict=guard is not None
                    )
                break
            except _StaleRead:
                await self._same_life()  # a message in the cache is nowhere if the session was deleted
                await patience.wait()
        await self._touch()
        return [stored.get(id(message if message.id is None else given[message.id])) for message in messages]

    async def _with_change(
        self,
        decide: Callable[[LogSnapshot], list[Draft]],
        change: StateChange,
        read: LogSnapshot,
        events: int,
        again: Mapping[str, Event],
    ) -> Callable[[LogSnapshot], list[Draft]]:
        """Return the drafts of an append that changes the state too."""
        for message_id in again:
            raise Conflict(
                f"message '{message_id}' exists already, and with state= every message must be new. An"
                " earlier call may have stored both: read session.state()",
                message_id,
            )
        refuse_if_split(self._log, max(events, 1))
        place = read.state.after.state_place
        state = await read_state(self._log, read.state.after)

        def decide_with_state(seen: LogSnapshot) -> list[Draft]:
            self._refuse_if_not_active(seen)
            change.check_version(seen.state.after, self.id)
            if seen.state.after.state_place != place:
                raise _StaleRead
            return with_state(decide(seen), change.apply(state))

        return decide_with_state

    async def state(self) -> SessionState:
        """Return the current state of the session."""
        self._record, seen = await both_at_once(self._same_life(), self._log.load())
        return await read_state(self._log, seen.state.after)

    async def without_erased(
        self, messages: Sequence[Message], known: Container[str | None] = ()
    ) -> list[Message]:
        """Return the messages without erased ones.

        A message counts as erased if its id was erased and not written again since. Ids
        in `known` are not looked up.
        """
        names = [message.id for message in messages if message.id is not None and message.id not in known]
        erased = await self._log.erased_ids(names) if names else set[str]()
        erased -= {name for name in erased if await self._log.find(name) is not None}
        return [message for message in messages if message.id not in erased]

    async def message(self, message_id: str) -> Message | None:
        """Return the full message of this id, whether in the window or not.

        None if there is no such message, or if it was erased.
        """
        event = await self._log.find(message_id)
        whole = [] if event is None or event.is_redacted else await self._log.whole([event])
        return whole[0].message if whole else None

    async def messages_by_id(self, message_ids: Sequence[str]) -> dict[str, Message]:
        """Return the full messages of these ids, as this handle last read the log.

        Ids without a message are left out, and so are those of erased messages.
        """
        found = await self._log.find_many(message_ids)
        whole = {event.place: event for event in await self._log.whole(found.values())}
        stored = {name: whole[event.place].message for name, event in found.items() if event.place in whole}
        return {name: message for name, message in stored.items() if message is not None}

    async def carry_in(self, messages: Sequence[Message], *, revive: bool) -> int:
        """Append messages of an imported file, each with an id.

        Returns how many were not written because they were erased or edited here. With
        `revive` they are written too.
        """
        left = list(messages) if revive else await self.without_erased(messages)
        stored = await self.append_as_read(left, enters=True, keeps_edits=not revive)
        return len(messages) - sum(
            one is not None and one == message for message, one in zip(left, stored, strict=True)
        )

    async def _stand_ins(self, messages: Sequence[Message]) -> dict[str, int | None]:
        """Return the made-up results of calls that these messages answer.

        Maps the id of each such result to its place, or to None if none was made up.
        """
        calls = [
            message.tool_call_id
            for message in messages
            if message.role is Role.TOOL and message.tool_call_id is not None
        ]
        named = {stand_in_id(call) for call in calls} - {message.id for message in messages}
        return {
            name: None if (event := await self._log.find(name, as_seen=True)) is None else event.place
            for name in sorted(named)
        }

    async def begin(
        self,
        messages: Sequence[Message],
        said_by: Sequence[tuple[str, ...]] | None = None,
        state: Mapping[str, JsonValue] = NO_STATE,
    ) -> bool:
        """Append the first messages of a session that was created just now.

        No other message has their ids. `said_by` has the authors of each message.
        `state` is the state of the session. Returns False if another attempt of the
        request appends them too.
        """
        for start in range(0, len(messages), AT_ONCE):
            known = (self._log.snapshot or await self._log.load()).state.place
            some = slice(start, start + AT_ONCE)
            drafts = self._drafts(messages[some], True, known, {}, None if said_by is None else said_by[some])
            try:
                self._note_writes(*await self._log.append(drafts))
            except _StaleRead:
                return False
            self._begun += len(messages[some])
        if state:  # behind the messages, whose copies an erasure finds by their places
            await self._log.append(lambda _: with_state([], state))
            self._begun += 1
        await self._touch()
        return True

    async def copied_so_far(self, messages: Sequence[Message]) -> int | None:
        """Return how many of these messages a fork that was cut off has.

        None if the fork is complete, or has other messages.
        """
        record, seen = await both_at_once(self._same_life(), self._log.load())
        copied = seen.state.place - FIRST_PLACE + 1
        if not any(owed.step == CONFIRM_FORK for owed in record.owed) or copied > len(messages):
            return None
        there = await self._log.at(range(FIRST_PLACE, FIRST_PLACE + copied))
        names = [None if (said := event.draft.message) is None else said.id for event in there.values()]
        return copied if names == [message.id for message in messages[:copied]] else None

    async def is_as_begun(self) -> bool:
        """Return whether the log holds nothing but the messages it began with."""
        return (await self._log.load()).state.place == FIRST_PLACE - 1 + self._begun

    def _drafts(
        self,
        messages: Sequence[Message],
        in_history: bool,
        looked_up: int,
        late: Mapping[str, int | None],
        said_by: Sequence[tuple[str, ...]] | None = None,
    ) -> Callable[[LogSnapshot], list[Draft]]:
        """Return the messages as events.

        Args:
            looked_up: The place up to which the log is known not to have their ids.
            late: The made-up results to exclude, with their known places.
            said_by: The authors of each message. The default is this handle's user.
        """
        writers = [self._writers] * len(messages) if said_by is None else said_by

        def decide(seen: LogSnapshot) -> list[Draft]:
            known: dict[str, int | None] = {
                message.id: None for message in messages if message.id is not None
            }
            known |= late
            if known and (
                seen.since > looked_up + 1
                or any(seen.ids.get(name, place) != place for name, place in known.items())
            ):
                raise _StaleRead
            self._refuse_if_not_active(seen)
            data: dict[str, JsonValue] = {"counter": self._counter.name} | (
                {} if in_history else {"in_history": False}
            )
            left = [place for place in late.values() if place is not None and place in seen.state.window]
            gone = [
                Draft(EventType.EXCLUDE, data={"place": place, "reason": "invalid_response"})
                for place in left
            ]
            said = [
                Draft(EventType.MESSAGE, message, data, message_tokens(message, self._counter), said_by=by)
                for message, by in zip(messages, writers, strict=True)
            ]
            return [*gone, *said]

        return decide

    def _refuse_if_not_active(self, seen: LogSnapshot) -> None:
        """Raise `Conflict` if the session has ended or is archived.

        Such a session accepts no message into its window.
        """
        if seen.state.after.status != "active":
            raise Conflict(f"session '{self.id}' is {seen.state.after.status}; resume it first", self.id)

    async def enter_history(self, message_ids: Sequence[str]) -> None:
        """Add messages to the history that are only in the window so far."""
        seen = self._log.snapshot or await self._log.load()
        known = {
            event.draft.message.id: event for event in seen.events.values() if event.draft.message is not None
        }
        for message_id in message_ids:
            event = known.get(message_id) or await self._log.find(message_id)
            if event is not None:
                await self._ensure_in_history(event)

    async def _ensure_in_history(self, event: Event) -> Event:
        """Return the message after it has entered the history.

        It keeps its place. An event at the end of the log gives it the next number. If
        that event was stored but the message was not updated, the number is found
        again.
        """
        patience = RetryDeadline(self._placement, self.id)
        while not event.draft.is_in_history and not event.is_redacted:
            known = (await self._log.load()).state.place
            number = await self._number_given(event.place)
            try:
                if number is None:
                    (given,) = await self._log.append(self._giving_number(event, known))
                    number = given.after.number
                (whole,) = await self._log.whole([event], strict=True)
                if not whole.is_redacted and (entered := await self._log.enter(whole, number)) is not None:
                    return entered
            except _StaleRead:
                pass
            await patience.wait()
            there = (await self._log.at([event.place])).get(event.place)
            if there is None:
                raise NotFound(event.given_id or event.key.id, "message")
            event = there
        return event

    def _giving_number(self, event: Event, looked_up: int) -> Callable[[LogSnapshot], list[Draft]]:
        def decide(seen: LogSnapshot) -> list[Draft]:
            if any(
                place > looked_up and _gives_number(other, event.place)
                for place, other in seen.events.items()
            ):
                raise _StaleRead
            self._refuse_if_not_active(seen)
            return [
                Draft(EventType.EDITED, data={"place": event.place, "version": event.version, ENTERS: True})
            ]

        return decide

    async def _number_given(self, place: int) -> int | None:
        """Return the number that an event gave to the message here, or None."""
        life = self._log.life
        asked = And(
            (Eq("conversation_id", life.session_id), Eq("event", EventType.EDITED.value), Gt("place", place))
        )
        query = Query(MESSAGES, within(life.partition), asked, limit=self._placement.settings.page)
        pages = self._placement.pages("history.numbers", self._log.store, query)
        events = [event async for page in pages for event in self._log.events_of(page.records)]
        return next((event.after.number for event in events if _gives_number(event, place)), None)

    async def _replace_message(
        self,
        event: Event,
        message: Message,
        version: Version | None = None,
        *,
        enters: bool = False,
        strict: bool = False,
    ) -> Message | None:
        """Replace the content of a message at its place.

        An excluded message returns to the window. With the `version` that the caller
        has read, a message that was edited since stays as it is. The result is None if
        a message with a `version` was erased.

        Raises:
            WindowChanged: With `strict`, the message was edited or erased since.
        """
        before = await self._log.load()
        enters = enters and not event.draft.is_in_history
        if enters or event.place not in before.state.window:
            self._refuse_if_not_active(before)
        try:
            changed = await self._change_message(event, lambda _: message, version, again=True, strict=strict)
            changed = await self._ensure_in_history(changed) if enters else changed
        except NotFound:
            if version is None:
                raise
            await self._same_life()  # raises if the session itself is gone
            if strict:
                raise WindowChanged from None
            return None
        self._note_writes(changed)
        seen = self._log.snapshot or await self._log.load()
        if changed.place not in seen.state.window:
            await self._restore_event(changed)
        return changed.message

    async def _change_message(
        self,
        event: Event | None,
        change: Callable[[Message], Message],
        version: Version | None = None,
        *,
        writes: bool = True,
        again: bool = False,
        strict: bool = False,
        request: RequestMark | None = None,
    ) -> Event:
        """Change a message at its place. A repeat of the request changes nothing.

        Args:
            writes: Whether the handle's user becomes an author of the message.
            again: Whether the caller passes the whole message again.
            strict: Raise `WindowChanged` for a message with another `version`.

        Raises:
            NotFound: the message is gone.
            LegalHoldActive: the session is under legal hold. A message that only grows
                may still change if it is being streamed, or with `again`.
        """
        patience, message_id = (
            RetryDeadline(self._placement, self.id),
            "" if event is None else str(event.draft.message.id if event.draft.message else ""),
        )
        while event is not None and event.draft.message is not None:
            (event,) = await self._log.whole([event], strict=True)
            if event.is_redacted or event.draft.message is None:
                break
            is_other = version is not None and version_of(event) != version
            if is_other and not strict:
                return event
            if request is not None and event.was_made_by(request):
                await self._log.ensure_edit_told(event)
                return event
            new = change(event.draft.message).model_copy(update={"id": event.draft.message.id})
            new = forget_changed(new)
            if is_other and new != event.draft.message:
                raise WindowChanged
            if new == event.draft.message:
                if event.edits:
                    await self._log.ensure_edit_told(event)
                return event
            if writes and not (
                (again or not event.draft.message.is_final) and _grows(event.draft.message, new)
            ):
                await self._sessions.refuse_change(self._log.life)
            changed = await self._log.change(
                event,
                new,
                message_tokens(new, self._counter),
                said_by=self._writers_after(event) if writes else None,
                request=request,
            )
            if changed is not None:
                return changed
            await patience.wait()
            event = await self._log.find(message_id)
        raise NotFound(message_id, "message")

    async def update(
        self, message_id: str, changes: Mapping[str, Any], request: RequestMark | None = None
    ) -> Message:
        """Change a message. Its number and its place in the window stay the same.

        A repeat of the request returns the message as it is now.
        """
        return await self.change(
            message_id, lambda message: message.model_copy(update=dict(changes)), request=request
        )

    async def change(
        self,
        message_id: str,
        change: Callable[[Message], Message],
        *,
        as_seen: bool = False,
        request: RequestMark | None = None,
    ) -> Message:
        """Apply `change` to a message, which may be the system message.

        `change` is called again if another writer changed the message meanwhile.

        Args:
            as_seen: Call it first with the message as this handle has cached it. Use
                this only for changes that return an equal message if nothing is left to
                do.
        """
        if message_id == SYSTEM:
            return await self._change_system(change, request)
        event = (self._log.at_hand(message_id) if as_seen else None) or await self._log.find(message_id)
        if event is None:
            raise NotFound(message_id, "message")
        changed = await self._change_message(event, change, request=request)
        if as_seen:
            self._note_writes(changed)
        assert changed.message is not None  # noqa: S101 - it is one that was found as a message
        await self._touch()
        return changed.message

    async def _change_system(
        self, change: Callable[[Message], Message], request: RequestMark | None
    ) -> Message:
        made: list[Message] = []

        async def compute(record: Record) -> Mapping[str, JsonValue]:
            if request is not None and was_made_by(record, request):
                made.append(await self._next_system(record, lambda system: system))
                return {}
            made.append(await self._next_system(record, change))
            marks = {} if request is None else {MADE_BY: marks_with(record, request)}
            return {"system": body_of_system(made[-1]), **marks}

        record, state = await self._same_life(), (await self._log.load()).state
        self._record = await self._sessions.follow(record, state, self._placement.now(), compute=compute)
        return made[-1]

    async def as_of(self, message_id: str | None) -> tuple[SessionDraft, list[Message]]:
        """Return the draft and the messages of a session that forks behind a message.

        The messages are the window as it was then, without those that were excluded
        since. None stands for the end of the session. Raises `NotFound` if there is no
        such message.
        """
        self._record = await self._same_life()
        event = None if message_id in (None, SYSTEM) else await self._log.find(str(message_id))
        if event is None and message_id not in (None, SYSTEM):
            raise NotFound(str(message_id), "message")
        events: list[Event] = []
        if message_id is None:
            events = [event for event in (await self._window()).events if event is not None]
        elif event is not None:
            events = await self._log.window_at(event.place)
        told = zip(events, await self._history.window_exits(events), strict=True)
        kept = [
            each
            for each, gone in told
            if gone.excluded is None or (event is not None and each.place == event.place)
        ]
        whole = await self._log.whole(kept, strict=True)
        copied = [(each, message) for each in order_events(whole) if (message := each.message) is not None]
        draft = draft_like(self._record, forked_from={"session_id": self.id, "message_id": message_id})
        after = (await self._log.load()).state.after if event is None else event.after
        state = await read_state(self._log, after)
        places, incarnation = tuple(each.place for each, _ in copied), self._log.life.incarnation
        lineage = tuple(copied_on(self._record, self.id, incarnation, places))
        source = ForkSource(
            self.id,
            incarnation,
            places,
            tuple(each.draft.said_by for each, _ in copied),
            lineage,
            dict(state),
        )
        return replace(draft, forked_from=source, writer=self._user), [message for _, message in copied]

    async def exclude(self, message_id: str, reason: str, request: RequestMark | None = None) -> bool:
        """Take a message out of the window, but not out of the history.

        Returns false if it is not in the window, and for the system message.
        """
        if await self._log.find_made(request) is not None:
            return True
        event = None if message_id == SYSTEM else await self._log.find(message_id)
        if event is None:
            return False

        def decide(seen: LogSnapshot) -> list[Draft]:
            return (
                [Draft(EventType.EXCLUDE, data={"place": event.place, "reason": reason})]
                if event.place in seen.state.window
                else []
            )

        return await self._append_and_touch(decide, request) is not None

    async def restore(self, message_id: str, request: RequestMark | None = None) -> bool:
        """Put an excluded message back into the window, at its place.

        Returns false if it is in the window, or if a compaction took it out.
        """
        if await self._log.find_made(request) is not None:
            return True
        event = None if message_id == SYSTEM else await self._log.find(message_id)
        return event is not None and await self._restore_event(event, request)

    async def _restore_event(self, event: Event, request: RequestMark | None = None) -> bool:
        data: dict[str, JsonValue] = {"place": event.place}
        if event.draft.message is not None and (
            event.type is EventType.COMPACTION or is_pinned(event.draft.message)
        ):
            data["pinned"] = True
        patience = RetryDeadline(self._placement, self.id)
        while True:
            known = (self._log.snapshot or await self._log.load()).state.after.compactions
            if (await self._history.window_exits([event]))[0].archived_by is not None:
                return False

            def decide(seen: LogSnapshot, known: int = known) -> list[Draft]:
                if seen.state.after.compactions != known:
                    raise _StaleRead
                return [] if event.place in seen.state.window else [Draft(EventType.RESTORE, data=data)]

            try:
                return await self._append_and_touch(decide, request) is not None
            except _StaleRead:
                await patience.wait()

    async def pop(self, count: int, request: RequestMark | None = None) -> list[Message]:
        """Take the newest originals out of the window, and return their messages.

        An original that became several messages leaves as a whole. Summaries stay. A
        repeat of the request returns the messages that the first call took out, without
        those that were erased since.
        """
        if (made := await self._log.find_made(request)) is not None:
            return await self._messages_at(left_by(made.draft))
        patience = RetryDeadline(self._placement, self.id)
        newest = count
        while True:
            state, there = await self._log.window(newest)
            places = state.window.newest(newest)
            spoken = [there[place] for place in places if place in there and not _is_summary(there[place])]
            left, is_all = newest_originals(spoken, count)
            if not is_all and len(places) < len(state.window):
                newest = 2 * newest + POPPED_MORE
                continue
            events = await self._log.whole(spoken[len(spoken) - left :], strict=True)
            if any(event.is_redacted for event in events):
                continue
            known = state.place
            leaving = Places.of(event.place for event in events)

            def decide(seen: LogSnapshot, known: int = known, leaving: Places = leaving) -> list[Draft]:
                if seen.state.place != known:
                    raise _StaleRead
                return (
                    [Draft(EventType.CLEAR, data={"left": leaving.to_json(), "reason": "popped"})]
                    if leaving.ranges
                    else []
                )

            try:
                done = await self._append_and_touch(decide, request)
            except _StaleRead:
                await patience.wait()
            else:
                if done is not None and left_by(done.draft) != leaving:
                    return await self._messages_at(left_by(done.draft))
                return [message for event in events if (message := event.message) is not None]

    async def clear(self, request: RequestMark | None = None) -> int:
        """Take every known message out of the window, and return how many.

        Messages that arrive during the call stay.
        """
        seen = await self._log.load()
        return await self._remove_from_window(EventType.CLEAR, seen.state.window, "manual", request)

    async def checkpoint(self, name: str | None = None, request: RequestMark | None = None) -> Checkpoint:
        """Return the last place of the log as a checkpoint."""
        if name is None:
            place = (await self._log.load()).state.place
        else:
            drafts = [Draft(EventType.CHECKPOINT, data={"name": name})]
            (event,) = await self._log.append_once(lambda _: drafts, request)
            place = event.place
        return Checkpoint(self.id, self._log.life.incarnation, place)

    async def roll_back(self, checkpoint: Checkpoint, reason: str, request: RequestMark | None = None) -> int:
        """Restore the window of a checkpoint; return how many messages leave it.

        Messages that were erased since do not return. Messages that others wrote after
        this call began stay. Edits of messages stay too.
        """
        if (checkpoint.session_id, checkpoint.incarnation) != (self.id, self._log.life.incarnation):
            raise InvalidInput("checkpoint", "belongs to another session. Pass a checkpoint of this session")
        if (made := await self._log.find_made(request)) is not None:
            return len(left_by(made.draft))
        patience, known = RetryDeadline(self._placement, self.id), (await self._log.load()).state
        wanted = await self._log.state_at(min(checkpoint.place, known.place))
        state, left = known, known.window.without(wanted.window)
        while True:
            back = await self._returning_places(wanted, known, state)
            late = await self._archived_since(wanted, known, state, checkpoint.place)

            def decide(
                seen: LogSnapshot, looked_up: int = state.place, back: Places = back, late: Places = late
            ) -> list[Draft]:
                if any(
                    event.type in (EventType.ROLL_BACK, EventType.ERASED)
                    for place, event in seen.events.items()
                    if place > looked_up
                ):
                    raise _StaleRead
                leaving, coming = left.both(seen.state.window), back.without(seen.state.window)
                said: dict[str, JsonValue] = {"left": leaving.to_json(), "reason": reason}
                if coming.ranges or late.ranges:
                    said |= {
                        "back": coming.to_json(),
                        "pinned": wanted.pinned.both(coming).to_json(),
                        "late": late.to_json(),
                    }
                return [Draft(EventType.ROLL_BACK, data=said)] if leaving.ranges or len(said) > 2 else []

            try:
                done = await self._append_and_touch(decide, request)
            except _StaleRead:
                await patience.wait()
                state = (await self._log.load()).state
            else:
                return 0 if done is None else len(left_by(done.draft))

    async def _returning_places(self, wanted: State, known: State, state: State) -> Places:
        """Return the places that come back into the window.

        They are in the `wanted` window, but neither in the `known` nor in the current
        one, and were not erased.
        """
        missing = wanted.window.without(known.window).without(state.window)
        events = await self._log.at(missing) if missing.ranges else {}
        return Places.of(place for place, event in events.items() if not event.is_redacted)

    async def _archived_since(self, wanted: State, known: State, state: State, place: int) -> Places:
        """Return the places that rolled-back compactions took out of the window.

        These are compactions behind `place`, as far as they are `known`. The roll-back
        undoes both them and the messages that were not in the `wanted` window.
        """
        if known.after.compactions <= wanted.after.compactions:
            return Places()
        made = {
            event.key.id: event
            for event in await self._compaction_events()
            if place < event.place <= known.place
        }
        archived = (
            Places.of(each for event in made.values() for each in left_by(event.draft))
            .without(wanted.window)
            .without(state.window)
        )
        events = (
            [event for event in (await self._log.at(archived)).values() if not event.is_redacted]
            if archived.ranges
            else []
        )
        gone = zip(events, await self._history.window_exits(events), strict=True)
        return Places.of(event.place for event, why in gone if why.archived_by in made)

    async def replace(
        self,
        messages: Sequence[Message],
        *,
        by_content: bool = True,
        read: WindowRead | None = None,
        revive: bool = False,
        expected: int | None = None,
        request: RequestMark | None = None,
    ) -> list[Message]:
        """Make the window consist of these messages, and return them as stored.

        A message leaves the window only if it is part of `read`. Messages that others
        wrote since the read stay, behind the list. A message of the read that was
        edited since stays as it is. One that was erased is not written again, unless
        `revive` is set.

        Args:
            by_content: Match messages without an id by their content. Otherwise each of
                them is new.
            read: The read that the list is based on. The default is the calling task's
                last read of the session, or the current window if it has read nothing.
            expected: The version that the window must have. The list is then based on
                a read of that version.
            request: The mark of the request. A repeat returns the messages of the first
                call as they are now, without erased ones.
        """
        names = dict[int, str]()
        if request is not None:
            if (done := await self._log.find_made(request)) is not None:
                return await self._messages_at(_stored_by(done))
            names = {
                id(message): name
                for message, name in zip(messages, message_ids(messages, request), strict=True)
                if message.id is None
            }
            messages = await self._with_names_given(messages, names) if request.repeats else messages
        window = await self._window()
        shown = await self._whole(window, [window.messages[at] for at in window.arranged.order])
        guard = None
        if expected is not None:
            self._check_window(window, expected)
            guard, read = WindowGuard(window.state.after.version), read_of(window, shown)
        if read is None:
            read = reads_of_caller().settle(self._log.life.incarnation, messages)
        if read is None or not read.is_read:
            read = read_of(window, shown)
        wanted = _without_made_up(messages, shown, by_content=by_content)
        if not revive:
            wanted = await self._not_reviving(wanted, window, shown, read, by_content=by_content)
        made = Replacement(wanted, shown, window.places, read.removable(self._mark), by_content=by_content)
        told: list[Message | None] = []
        versions = NONE_READ if revive and expected is None else read.versions
        new = [
            message.model_copy(update={"id": names[id(message)]}) if id(message) in names else message
            for message in made.told
        ]
        try:
            for start in range(0, len(new), AT_ONCE):
                told += await self.append_as_read(
                    new[start : start + AT_ONCE], versions=versions, guard=guard
                )
            stored = made.as_stored(told)
            data = {} if request is None else {STORED: await self._places_of(stored, window)}
            await self._remove_from_window(
                EventType.REPLACE, made.leaving, "replaced", request, data, guard=guard
            )
        except WindowChanged:
            assert expected is not None  # noqa: S101 - only a guard raises it
            self._check_window(await self._window(), expected)
            raise
        reads_of_caller().take_back(self._log.life.incarnation)
        return stored

    def _check_window(self, window: Window, expected: int) -> None:
        """Raise `VersionConflict` if a window has another version than expected."""
        if (stored := version_of_window(window)) != expected:
            raise version_conflict(f"the window of session '{self.id}'", expected, stored)

    async def _with_names_given(self, messages: Sequence[Message], names: Mapping[int, str]) -> list[Message]:
        """Return the messages with the ids under which an earlier attempt stored them.

        Those that it stored and that were erased since are left out.
        """
        erased = await self._log.erased_ids(names.values()) if names else set[str]()
        given: list[Message] = []
        for message in messages:
            name = names.get(id(message))
            if name is not None and await self._log.find(name) is not None:
                given.append(message.model_copy(update={"id": name}))
            elif name not in erased:
                given.append(message)
        return given

    async def _places_of(self, stored: Sequence[Message], window: Window) -> list[JsonValue]:
        """Return the places of stored messages, in their order."""
        places: list[JsonValue] = []
        for message in stored:
            place = window.places.get(str(message.id))
            if place is None and (event := await self._log.find(str(message.id))) is not None:
                place = event.place
            places += [] if place is None else [place]
        return places

    async def _messages_at(self, places: Iterable[int]) -> list[Message]:
        """Return the messages at these places, in this order, without erased ones."""
        wanted = list(places)
        found = await self._log.at(wanted)
        whole = await self._log.whole([found[place] for place in wanted if place in found])
        read = [event.message for event in whole if not event.is_redacted]
        return [message for message in read if message is not None]

    async def _not_reviving(
        self,
        messages: Sequence[Message],
        window: Window,
        shown: Sequence[Message],
        read: WindowRead,
        *,
        by_content: bool,
    ) -> list[Message]:
        """Return the messages without those that were erased since they were read.

        Messages that were edited since are returned as they are now.
        """
        now = {
            str(m.id): version_of(event)
            for m, event in zip(window.messages, window.events, strict=True)
            if event is not None
        }
        whole = {message.id: message for message in shown}
        unnamed = [at for at, message in enumerate(messages) if message.id is None]
        before = read.shown or []
        as_now = align_messages(messages, shown) if by_content and unnamed else [None] * len(messages)
        as_read = align_messages(messages, before) if by_content and unnamed else [None] * len(messages)
        kept: list[Message] = []
        for at, message in enumerate(messages):
            name = message.id
            if name is None and as_now[at] is None and (known := as_read[at]) is not None:
                name = before[known].id
            if name is None:
                kept.append(message)
            elif name in now:
                is_edited = read.versions.get(name, now[name]) != now[name]
                kept.append(whole[name] if is_edited and name in whole else message)
            elif name not in read.versions and not is_id(name):
                kept.append(message)
            else:
                there = await self._log.find(name, redacted=True)
                is_erased = name in read.versions if there is None else there.is_redacted
                if not is_erased:
                    kept.append(message)
        return kept

    async def repair_tool_calls(self) -> list[Message]:
        """Answer each unanswered call of the window once, with a result that says so.

        Results that answer no call are excluded. Returns the results that were added.
        """
        arranged = (await self._window()).arranged
        made = [stand_in(arranged.messages[found.position], found) for found in arranged.interrupted]
        answered = await self.append(made) if made else []
        for at in arranged.invalid_response:
            await self.exclude(str(arranged.messages[at].id), "invalid_response")
        return answered

    # -- its life ----------------------------------------------------------------------

    async def close(
        self, status: str, *, is_promoted: bool = False, request: RequestMark | None = None
    ) -> bool:
        """End or archive the session. It accepts no messages until it is resumed.

        Returns false if it had that status already. Messages that are still being
        streamed are stored as they are.

        Args:
            status: "ended" or "archived".
            is_promoted: Whether the session's entries were promoted already. The end
                then has the pending step `END` only if entries are still to be made of
                its messages.
        """

        def decide(seen: LogSnapshot) -> list[Draft]:
            if seen.state.after.status == status:
                return []
            leaves, owed = (
                self._window_exit.exit_data_and_steps(seen.state.window, seen.state.after)
                if status == "ended"
                else ({}, ())
            )
            ends = (PendingStep(END, END),) if status == "ended" and (owed or not is_promoted) else ()
            return [
                Draft(
                    EventType.CLOSED,
                    data={"status": status, **leaves},
                    owed=(*self._sessions.owed_follow, *owed, *ends),
                )
            ]

        closed = await self._change_status(decide, request)
        for event in (await self._log.window())[1].values():
            if event.draft.message is not None and not event.draft.message.is_final:
                with suppress(NotFound):  # erased meanwhile
                    await self._change_message(
                        event, lambda message: message.model_copy(update={"is_final": True}), writes=False
                    )
        return closed

    async def resume(self, request: RequestMark | None = None) -> bool:
        """Resume an ended or archived session; false if it is active."""

        def decide(seen: LogSnapshot) -> list[Draft]:
            return (
                []
                if seen.state.after.status == "active"
                else [Draft(EventType.RESUMED, owed=self._sessions.owed_follow)]
            )

        return await self._change_status(decide, request)

    async def _change_status(
        self, decide: Callable[[LogSnapshot], list[Draft]], request: RequestMark | None
    ) -> bool:
        events = await self._log.append_once(decide, request)
        for event in events:  # the caller does not wait for window exits
            await self._sessions.finish(replace(self._log.record_of(event), owed=self._sessions.owed_follow))
        return bool(events)

    async def handle_window_exit(self) -> WindowExitResult:
        """Make entries of the messages that left the window, as far as possible now."""
        return await self._window_exit.of_session(await self._same_life())


def newest_originals(events: Sequence[Event], count: int) -> tuple[int, bool]:
    """Return how many of the last events are the messages of the newest originals.

    Also return whether all of them are among the events.
    """
    messages = [event.draft.message for event in events]
    at = len(messages)
    for _ in range(count):
        if not at:
            return len(messages), False
        at -= 1
        while (message := messages[at]) is not None and continues(message):
            if not at:
                return len(messages), False
            before = messages[at - 1]
            if before is None or not is_same_original(before, message):
                break
            at -= 1
    return len(messages) - at, True


def _stored_by(event: Event) -> list[int]:
    """Return the places of the messages of a replacement that a request made."""
    places: Any = event.draft.data[STORED]
    return list(places)


def _is_summary(event: Event) -> bool:
    message = event.draft.message
    return event.type is EventType.COMPACTION or message is None or message.is_summary


def _grows(before: Message, after: Message) -> bool:
    """Return whether a message only adds to an earlier one, as in a stream."""
    texts = [(before.content, after.content), (before.reasoning or "", after.reasoning or "")]
    texts += [
        (call.arguments, later.arguments)
        for call, later in zip(before.tool_calls, after.tool_calls, strict=False)
    ]
    is_longer = all(
        was == now or (isinstance(was, str) and isinstance(now, str) and now.startswith(was))
        for was, now in texts
    )
    return (
        is_longer
        and len(before.tool_calls) <= len(after.tool_calls)
        and before.metadata.items() <= after.metadata.items()
    )


def _loses(event: Event, after: Message) -> bool:
    """Return whether a change drops something that the message said.

    Only messages that are known completely here are compared.
    """
    return event.draft.message is not None and event.draft.is_whole and not _grows(event.draft.message, after)


def _without_made_up(
    messages: Sequence[Message], shown: Sequence[Message], *, by_content: bool
) -> list[Message]:
    """Return the messages without the system message and those made up for reading.

    A made-up message that is stored is kept.
    """
    made_up = {at for at, message in enumerate(messages) if is_made_for_reading(message)}
    if made_up:
        stored = {message.id for message in shown}
        found = (
            align_messages(messages, shown)
            if by_content
            else [message.id if message.id in stored else None for message in messages]
        )
        made_up = {at for at in made_up if found[at] is None}
    return [message for at, message in enumerate(messages) if at not in made_up and message.id != SYSTEM]


def _gives_number(event: Event, place: int) -> bool:
    """Return whether this event added the message at this place to the history."""
    return (
        event.type is EventType.EDITED
        and bool(event.draft.data.get(ENTERS))
        and event.draft.data["place"] == place
    )


def message_ids(messages: Sequence[Message], request: RequestMark) -> list[str]:
    """Return the ids of messages. Those without an id get one of the request."""
    return [
        message.id if message.id is not None else request.part(at).text.replace(":", "-")
        for at, message in enumerate(messages)
    ]
