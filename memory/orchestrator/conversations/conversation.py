"""What one session can do: messages in and out of its window, its history, compactions,
its end.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from memory.domain.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from memory.domain.ids import is_id
from memory.domain.message import SYSTEM, Message, Role
from memory.domain.session import Context, HistoryPage
from memory.domain.validation import LARGE_TEXT_BYTES
from memory.orchestrator.conversations.blobs.large_texts import large_texts
from memory.orchestrator.conversations.log.events import ENTERS, FIRST_PLACE, Draft, Event, EventType, copy_of
from memory.orchestrator.conversations.log.folding import State, left_by
from memory.orchestrator.conversations.log.forks import copied_on
from memory.orchestrator.conversations.log.seen import LogSnapshot
from memory.orchestrator.conversations.sessions import END, ForkSource, SessionDraft, draft_like, system_of
from memory.orchestrator.conversations.window.compaction import WindowCompaction
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.orchestrator.conversations.window.reading import (
    COPIED,
    Window,
    WindowExtent,
    order_events,
    read_of,
)
from memory.orchestrator.conversations.window.reads import Version, WindowRead, reads_of_caller, version_of
from memory.orchestrator.conversations.window.replacing import AT_ONCE, Replacement
from memory.orchestrator.conversations.window_exits import WindowExitResult
from memory.orchestrator.storage.collections import MESSAGES
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.places import Places
from memory.policies.context import ContextRequest, read_out
from memory.policies.message_alignment import align_messages
from memory.policies.tokens import message_tokens, tools_tokens
from memory.policies.window import is_made_for_reading, is_pinned, stand_in, stand_in_id
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import And, Eq, Gt, Partitions, Query, within
from memory.ports.record import JsonValue, PendingStep, Record

EVERYTHING = ContextRequest()
NONE_READ: Mapping[str, Version] = {}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place in a session's log to roll back to."""

    session_id: str
    incarnation: str
    place: int


class _StaleRead(Exception):
    """What was looked up before is not so any more, or may not be: a message of that id
    has come into the log, or a compaction.
    """


class Conversation(WindowCompaction):
    """One session, as one handle has it."""

    # -- reading -----------------------------------------------------------------------

    async def context(
        self, asked: ContextRequest = EVERYTHING, *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Context:
        """What a model is to be sent: the system message, the newest summary, then the
        messages of the window, results behind their calls.

        No more of the window is read than tells what is shown. While the store does not
        answer, what this process last saw of it is shown, and said. The calling task
        has now read the window.
        """
        context, read = await self.read(asked, tools=tools)
        reads_of_caller().put(self._log.life.incarnation, read)
        return context

    async def read(
        self, asked: ContextRequest = EVERYTHING, *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[Context, WindowRead]:
        """Return the same, and what a caller knows by it. It does not count as a read
        of the calling task.
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
                [f"{error}; the result shows the session as this process last read it"],
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
        calls = {id(window.messages[at]): call_id for at, call_id in window.arranged.answers.items()}
        copies = [copy_of(message) async for message in iterate_cooperatively(messages, COPIED)]
        for message, copy in zip(told.messages, copies, strict=True):
            copy.tool_call_id = calls.get(id(message), copy.tool_call_id)
        return replace(told, messages=copies, degraded=degraded), read_of(window, messages)

    async def _earlier_summaries(self) -> list[Message]:
        """The summaries that compactions archived or that are in the window: none that
        was erased, taken out by hand or rolled back (B28, B51).
        """
        events = [event for event in await self._compaction_events() if not event.is_redacted]
        told = zip(events, await self._history.window_exits(events), strict=True)
        whole = await self._log.whole([event for event, gone in told if gone.excluded is None])
        return [message for event in whole if (message := event.message) is not None and not message.is_empty]

    async def history(self, asked: HistoryQuery) -> HistoryPage:
        self._record, page = await self._history.page(asked, self._same_life())
        return page

    async def search_scope(self) -> Partitions:
        """Where a search finds this session's messages. Raises `NotFound` where the
        session is over.
        """
        self._record = await self._same_life()
        return within(self._log.life.partition)

    # -- messages ----------------------------------------------------------------------

    async def append(self, messages: Sequence[Message], *, in_history: bool = True) -> list[Message]:
        """The messages as stored: new ones at the end, in order; one whose id is there
        replaces what it said, where it stands (B20 to B23).

        One that was in the window only enters the history under the next number, unless
        it is given with `in_history=False` again.
        """
        stored = await self.append_as_read(messages, in_history=in_history, enters=in_history)
        return [message for message in stored if message is not None]

    async def append_as_read(
        self,
        messages: Sequence[Message],
        *,
        in_history: bool = True,
        enters: bool = False,
        versions: Mapping[str, Version] = NONE_READ,
        keeps_edits: bool = False,
    ) -> list[Message | None]:
        """The same. Messages that the caller has read, in these `versions`, are not
        written again where they were edited or erased since.

        In the answer an edited one is as it is now, and an erased one is None. Those
        that are there already and in the window only stay so, unless `enters`. With
        `keeps_edits` no message that was ever edited is written again.
        """
        messages = [copy_of(message) for message in messages]
        given = {
            message.id: message for message in messages if message.id is not None
        }  # of one id several times the last, where the first stands
        in_order = {
            message.id or id(message): given[message.id] if message.id else message for message in messages
        }.values()
        if SYSTEM in given:
            raise InvalidInput("id", "'system' is the id of a session's system message: update it")
        patience = RetryDeadline(self._placement, self.id)
        while True:
            state = (self._log.snapshot or await self._log.load()).state
            known = state.place
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
                await self._sessions.refuse_change(self._log.life)  # before anything is said
            late = await self._stand_ins(new)
            try:
                events = await self._log.append(self._drafts(new, in_history, known, late)) if new else []
                appended = [event for event in events if event.type is EventType.MESSAGE]
                self._note_writes(*appended)
                stored = {id(message): event.message for message, event in zip(new, appended, strict=True)}
                for name, event in again.items():
                    stored[id(given[name])] = await self._replace_message(
                        event, given[name], known_as[name], enters=enters
                    )
                break
            except _StaleRead:
                await patience.wait()
        await self._touch()
        return [stored.get(id(message if message.id is None else given[message.id])) for message in messages]

    async def without_erased(
        self, messages: Sequence[Message], known: Container[str | None] = ()
    ) -> list[Message]:
        """The messages without those whose ids are of messages that were erased, and
        not said again since; the `known` ones are not looked up.
        """
        names = [message.id for message in messages if message.id is not None and message.id not in known]
        erased = await self._log.erased_ids(names) if names else set[str]()
        erased -= {name for name in erased if await self._log.find(name) is not None}
        return [message for message in messages if message.id not in erased]

    async def message(self, message_id: str) -> Message | None:
        """The message of this id, in the window or not, with all that it says; None
        where there is none, or where it was erased.
        """
        event = await self._log.find(message_id)
        whole = [] if event is None or event.is_redacted else await self._log.whole([event])
        return whole[0].message if whole else None

    async def carry_in(self, messages: Sequence[Message], *, revive: bool) -> int:
        """Append messages of a file, each with an id; how many of them were erased or
        edited here, and are not written unless `revive`.
        """
        left = list(messages) if revive else await self.without_erased(messages)
        stored = await self.append_as_read(left, enters=True, keeps_edits=not revive)
        return len(messages) - sum(
            one is not None and one == message for message, one in zip(left, stored, strict=True)
        )

    async def _stand_ins(self, messages: Sequence[Message]) -> dict[str, int | None]:
        """The results that are made up for calls which these messages answer after all,
        by their ids: their places, None where none was made up.
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
        self, messages: Sequence[Message], said_by: Sequence[tuple[str, ...]] | None = None
    ) -> None:
        """What a session that was created just now begins with: no other message of
        theirs has these ids. `said_by`: who wrote each.
        """
        for start in range(0, len(messages), AT_ONCE):
            known = (self._log.snapshot or await self._log.load()).state.place
            some = slice(start, start + AT_ONCE)
            drafts = self._drafts(messages[some], True, known, {}, None if said_by is None else said_by[some])
            self._note_writes(*await self._log.append(drafts))
            self._begun += len(messages[some])
        await self._touch()

    async def is_as_begun(self) -> bool:
        """Whether nothing happened in it but what it began with, or was to."""
        return (await self._log.load()).state.place == FIRST_PLACE - 1 + self._begun

    def _drafts(
        self,
        messages: Sequence[Message],
        in_history: bool,
        looked_up: int,
        late: Mapping[str, int | None],
        said_by: Sequence[tuple[str, ...]] | None = None,
    ) -> Callable[[LogSnapshot], list[Draft]]:
        """The messages as events, written by this handle's user unless `said_by` tells
        of each who wrote it.

        `looked_up` is the place up to which their ids are known not to be there, and
        those of the `late` results to stand where they do: these go.
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
        """Raise `Conflict` where the session has ended or is archived: no message comes
        into its window.
        """
        if seen.state.after.status != "active":
            raise Conflict(f"session '{self.id}' is {seen.state.after.status}; resume it first", self.id)

    async def enter_history(self, message_ids: Sequence[str]) -> None:
        """Let these messages be in the history, those that are in the window only so
        far.
        """
        seen = self._log.snapshot or await self._log.load()
        known = {
            event.draft.message.id: event for event in seen.events.values() if event.draft.message is not None
        }
        for message_id in message_ids:
            event = known.get(message_id) or await self._log.find(message_id)
            if event is not None:
                await self._ensure_in_history(event)

    async def _ensure_in_history(self, event: Event) -> Event:
        """The message once it is in the history: it keeps its place, and an event at
        the end of the log gives it the next number.

        Where that event was stored and the message not, the number that it gave is
        found again.
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
        """The number that an event gave to the message at this place; None where none
        did.
        """
        life = self._log.life
        asked = And(
            (Eq("conversation_id", life.session_id), Eq("event", EventType.EDITED.value), Gt("place", place))
        )
        query = Query(MESSAGES, within(life.partition), asked, limit=self._placement.settings.page)
        pages = self._placement.pages("history.numbers", self._log.store, query)
        events = [event async for page in pages for event in self._log.events_of(page.records)]
        return next((event.after.number for event in events if _gives_number(event, place)), None)

    async def _replace_message(
        self, event: Event, message: Message, version: Version | None = None, *, enters: bool = False
    ) -> Message | None:
        """The message where it stands, saying this instead; what was excluded is in the
        window again (B29).

        With the `version` that the caller has read, a message that was edited since
        stays as it is, and of an erased one None is returned.
        """
        before = await self._log.load()
        enters = enters and not event.draft.is_in_history
        if enters or event.place not in before.state.window:
            self._refuse_if_not_active(before)
        try:
            changed = await self._change_message(event, lambda _: message, version, again=True)
            changed = await self._ensure_in_history(changed) if enters else changed
        except NotFound:
            if version is None:
                raise
            await self._same_life()  # raises where it is the session that is gone
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
    ) -> Event:
        """The message changed where it stands. Unless it `writes`, the handle's user
        has said nothing by that.

        Raises `LegalHoldActive` where its session is under legal hold, unless the message is being
        said and grows, or is said `again` and grows.
        """
        patience, message_id = (
            RetryDeadline(self._placement, self.id),
            "" if event is None else str(event.draft.message.id if event.draft.message else ""),
        )
        while event is not None and event.draft.message is not None:
            (event,) = await self._log.whole([event], strict=True)
            if event.is_redacted or event.draft.message is None:
                break
            if version is not None and version_of(event) != version:
                return event
            new = change(event.draft.message).model_copy(update={"id": event.draft.message.id})
            if new == event.draft.message:
                if event.edits:  # perhaps by this very call before it failed, and then nobody was told
                    await self._log.tell_edit(event)
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
            )
            if changed is not None:
                return changed
            await patience.wait()
            event = await self._log.find(message_id)
        raise NotFound(message_id, "message")

    async def update(self, message_id: str, changes: Mapping[str, Any]) -> Message:
        """Change a message where it stands; its number and its place in the window stay
        (B26).
        """
        if message_id == SYSTEM:
            return await self._update_system(changes)
        return await self.change(message_id, lambda message: message.model_copy(update=dict(changes)))

    async def change(
        self, message_id: str, change: Callable[[Message], Message], *, as_seen: bool = False
    ) -> Message:
        """Let a message say what `change` makes of it, which is asked again where
        others changed it meanwhile.

        With `as_seen` it is first asked of the message as this handle has it: for
        changes that are none only where nothing is left to do.
        """
        event = (self._log.at_hand(message_id) if as_seen else None) or await self._log.find(message_id)
        if event is None:
            raise NotFound(message_id, "message")
        changed = await self._change_message(event, change)
        if as_seen:
            self._note_writes(changed)
        assert changed.message is not None  # noqa: S101 - it is one that was found as a message
        await self._touch()
        return changed.message

    async def _update_system(self, changes: Mapping[str, Any]) -> Message:
        made: list[Message] = []

        async def compute(record: Record) -> Mapping[str, JsonValue]:
            system = system_of(record)
            if system is None:
                raise NotFound(SYSTEM, "message")
            new = system.model_copy(update=dict(changes))
            if new != system:
                await self._sessions.refuse_change(self._log.life)
            if large := large_texts(new):
                raise InvalidInput(
                    str(large[0][0][0]), f"of the system message exceeds {LARGE_TEXT_BYTES} bytes. Shorten it"
                )
            made.append(new)
            return {"system": new.model_dump(mode="json", exclude_defaults=True, exclude={"id"})}

        record, state = await self._same_life(), (await self._log.load()).state
        self._record = await self._sessions.follow(record, state, self._placement.now(), compute=compute)
        return made[-1]

    async def as_of(self, message_id: str | None) -> tuple[SessionDraft, list[Message]]:
        """What a session that forks off from this one behind a message begins with: the
        window as it was then, less what was excluded since.

        None is the end. Raises `NotFound` where there is no such message.
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
        places, incarnation = tuple(each.place for each, _ in copied), self._log.life.incarnation
        lineage = tuple(copied_on(self._record, self.id, incarnation, places))
        source = ForkSource(
            self.id, incarnation, places, tuple(each.draft.said_by for each, _ in copied), lineage
        )
        return replace(draft, forked_from=source, writer=self._user), [message for _, message in copied]

    async def exclude(self, message_id: str, reason: str) -> bool:
        """Take a message out of the window, not out of the history (B27, B28); false
        where it is not in the window, and for the system message.
        """
        event = None if message_id == SYSTEM else await self._log.find(message_id)
        if event is None:
            return False

        def decide(seen: LogSnapshot) -> list[Draft]:
            return (
                [Draft(EventType.EXCLUDE, data={"place": event.place, "reason": reason})]
                if event.place in seen.state.window
                else []
            )

        return await self._append_and_touch(decide)

    async def restore(self, message_id: str) -> bool:
        """Take an excluded message back into the window, at its place; false where it
        is there, or was taken out by a compaction.
        """
        event = None if message_id == SYSTEM else await self._log.find(message_id)
        return event is not None and await self._restore_event(event)

    async def _restore_event(self, event: Event) -> bool:
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
                return await self._append_and_touch(decide)
            except _StaleRead:
                await patience.wait()

    async def clear(self) -> int:
        """Take every message that is known of out of the window, and none that comes
        meanwhile; how many (B30, B31).
        """
        seen = await self._log.load()
        return await self._remove_from_window(EventType.CLEAR, seen.state.window, "manual")

    async def checkpoint(self, name: str | None = None) -> Checkpoint:
        """The place to which the log has come."""
        if name is None:
            place = (await self._log.load()).state.place
        else:
            (event,) = await self._log.append(lambda _: [Draft(EventType.CHECKPOINT, data={"name": name})])
            place = event.place
        return Checkpoint(self.id, self._log.life.incarnation, place)

    async def roll_back(self, checkpoint: Checkpoint, reason: str) -> int:
        """Let the window be what it was at the checkpoint, but for what was erased
        since; how many messages leave it (B52).

        What others wrote since this call began stays. Edits of messages stay too.
        """
        if (checkpoint.session_id, checkpoint.incarnation) != (self.id, self._log.life.incarnation):
            raise InvalidInput("checkpoint", "belongs to another session")
        patience, known = RetryDeadline(self._placement, self.id), (await self._log.load()).state
        wanted = await self._log.state_at(min(checkpoint.place, known.place))
        state, left, leaving = known, known.window.without(wanted.window), Places()
        while True:
            back = await self._returning_places(wanted, known, state)
            late = await self._archived_since(wanted, known, state, checkpoint.place)

            def decide(
                seen: LogSnapshot, looked_up: int = state.place, back: Places = back, late: Places = late
            ) -> list[Draft]:
                nonlocal leaving
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
                await self._append_and_touch(decide)
            except _StaleRead:
                await patience.wait()
                state = (await self._log.load()).state
            else:
                return len(leaving)

    async def _returning_places(self, wanted: State, known: State, state: State) -> Places:
        """What of the `wanted` window is not in the `known` one any more, nor in that
        of now, and was not erased.
        """
        missing = wanted.window.without(known.window).without(state.window)
        events = await self._log.at(missing) if missing.ranges else {}
        return Places.of(place for place, event in events.items() if not event.is_redacted)

    async def _archived_since(self, wanted: State, known: State, state: State, place: int) -> Places:
        """What compactions behind this place, as far as they are `known`, have taken
        out of the window, and was not in the `wanted` one: they did not happen, and it
        was not said.
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
    ) -> list[Message]:
        """Let the window consist of these messages (C22); they as stored. Without
        `by_content` one without an id is new, whatever it says.

        Messages leave the window only if they are part of `read`, which is what the
        calling task has last read of the session unless given; where it has read
        nothing, the window as it is now. What others wrote since stays, behind the
        list. A message of the read that was edited since stays as it is, and one that
        was erased is not written again, unless `revive`.
        """
        window = await self._window()
        shown = await self._whole(window, [window.messages[at] for at in window.arranged.order])
        if read is None:
            read = reads_of_caller().settle(self._log.life.incarnation, messages)
        if read is None or not read.is_read:
            read = read_of(window, shown)
        wanted = _without_made_up(messages, shown, by_content=by_content)
        if not revive:
            wanted = await self._not_reviving(wanted, window, shown, read, by_content=by_content)
        made = Replacement(wanted, shown, window.places, read.removable(self._mark), by_content=by_content)
        told: list[Message | None] = []
        versions = NONE_READ if revive else read.versions
        for start in range(0, len(made.told), AT_ONCE):
            told += await self.append_as_read(made.told[start : start + AT_ONCE], versions=versions)
        await self._remove_from_window(EventType.REPLACE, made.leaving, "replaced")
        reads_of_caller().take_back(self._log.life.incarnation)
        return made.as_stored(told)

    async def _not_reviving(
        self,
        messages: Sequence[Message],
        window: Window,
        shown: Sequence[Message],
        read: WindowRead,
        *,
        by_content: bool,
    ) -> list[Message]:
        """The messages without those that were erased since they were read; those that
        were edited since, as they are now.
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
        """Answer each call of the window that was never answered, once, with a result
        that says so, and take out results that answer none (B53).
        """
        arranged = (await self._window()).arranged
        made = [stand_in(arranged.messages[found.position], found) for found in arranged.interrupted]
        answered = await self.append(made) if made else []
        for at in arranged.invalid_response:
            await self.exclude(str(arranged.messages[at].id), "invalid_response")
        return answered

    # -- its life ----------------------------------------------------------------------

    async def close(self, status: str, *, is_promoted: bool = False) -> bool:
        """End or archive the session: nothing is appended to it until it is resumed.
        False where it was so already. An end is owed to its entries, unless these have
        gone where it has them go and none are to be made yet.

        What is still being said is taken as it stands.
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

        closed = await self._change_status(decide)
        for event in (await self._log.window())[1].values():
            if event.draft.message is not None and not event.draft.message.is_final:
                with suppress(NotFound):  # erased meanwhile
                    await self._change_message(
                        event, lambda message: message.model_copy(update={"is_final": True}), writes=False
                    )
        return closed

    async def resume(self) -> bool:
        """Go on with a session that was ended or archived; false where it is active."""

        def decide(seen: LogSnapshot) -> list[Draft]:
            return (
                []
                if seen.state.after.status == "active"
                else [Draft(EventType.RESUMED, owed=self._sessions.owed_follow)]
            )

        return await self._change_status(decide)

    async def _change_status(self, decide: Callable[[LogSnapshot], list[Draft]]) -> bool:
        events = await self._log.append(decide)
        for event in events:  # nobody waits here for messages that leave by it
            await self._sessions.finish(replace(self._log.record_of(event), owed=self._sessions.owed_follow))
        return bool(events)

    async def handle_window_exit(self) -> WindowExitResult:
        """Make entries of the messages that left the window, as far as possible now."""
        return await self._window_exit.of_session(await self._same_life())


def _grows(before: Message, after: Message) -> bool:
    """Whether everything that a message said is still there, as in one that is
    streamed.
    """
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
    """Whether something that a message said is not there any more, as far as it is
    known whole here.
    """
    return event.draft.message is not None and event.draft.is_whole and not _grows(event.draft.message, after)


def _without_made_up(
    messages: Sequence[Message], shown: Sequence[Message], *, by_content: bool
) -> list[Message]:
    """The messages without the system message and those that were made up for a read,
    unless they are stored.
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
    """Whether the message at this place entered the history by the event."""
    return (
        event.type is EventType.EDITED
        and bool(event.draft.data.get(ENTERS))
        and event.draft.data["place"] == place
    )
