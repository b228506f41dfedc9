"""What one session can do: messages in and out of its window, its history, compactions, its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from memory.domain.errors import Conflict, InvalidInput, MemoryTiersError, NotFound
from memory.domain.message import Message, Role
from memory.domain.session import Compaction, Context, FoundMessage, HistoryPage, SessionInfo
from memory.orchestrator.conversations.events import Draft, Event, EventType, copy_of
from memory.orchestrator.conversations.finding import Finding
from memory.orchestrator.conversations.history import History, HistoryAsked
from memory.orchestrator.conversations.log import Log, Seen
from memory.orchestrator.conversations.onward import Left, Onward
from memory.orchestrator.conversations.places import Places
from memory.orchestrator.conversations.reading import Asked, Window, both, read_window
from memory.orchestrator.conversations.sessions import FOLLOWS_WITHIN, SessionRecords, info_of, system_of
from memory.orchestrator.conversations.summaries import Summaries, Summarise
from memory.orchestrator.placement import Placement
from memory.orchestrator.turns import Patience
from memory.policies.tokens import message_tokens, tools_tokens
from memory.policies.window import Threshold, arranged, fitted, fitted_in_steps, is_pinned, layered, newest
from memory.ports.query import within
from memory.ports.record import FieldValue, JsonValue, Record
from memory.ports.tokens import TokenCounter

log = logging.getLogger(__name__)

INTERRUPTED = "TOOL_CALL_INTERRUPTED"
"""What the result says of a call that was never answered (B53)."""
SYSTEM = "system"
_ALL = Asked()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place in a session's log to roll back to."""

    session_id: str
    incarnation: str
    place: int


class _SeenSince(Exception):
    """A message of an id that was looked up has come into the log meanwhile, or may have."""


class Conversation:
    """One session, as one handle has it."""

    def __init__(self, placement: Placement, sessions: SessionRecords, onward: Onward, record: Record, log: Log, counter: TokenCounter) -> None:
        self._placement = placement
        self._onward = onward
        self._sessions = sessions
        self._record = record
        self._log = log
        self._counter = counter
        self._history = History(placement, log)
        self._summaries = Summaries(placement, log, counter, onward, self._window)

    @property
    def id(self) -> str:
        return self._log.life.session_id

    @property
    def log(self) -> Log:
        return self._log

    # -- reading ------------------------------------------------------------------------------------------------------

    async def info(self) -> SessionInfo:
        """The session as it is now."""
        self._record, seen = await both(self._same_life(), self._log.load())
        return info_of(self._record, seen.state)

    async def _same_life(self) -> Record:
        record = await self._sessions.record(self._log.life.tenant, self.id)
        if record.body["incarnation"] != self._log.life.incarnation:
            raise NotFound(self.id, "session")  # deleted, and created again since: this handle is of its former life
        return record

    async def context(
        self,
        budget: int | None = None,
        *,
        last: int | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        by: Literal["blocks", "turns"] = "blocks",
        slack: float = 0.0,
    ) -> Context:
        """What a model is to be sent: the system message, the newest summary, then the messages of the window, results behind their calls.

        No more of the window is read than tells what is shown.
        """
        of_tools = tools_tokens(tools, self._counter)
        room = None if budget is None else budget - of_tools
        window = await self._window(Asked(last, room, by))
        messages, costs = window.messages, window.costs
        arrangement = arranged(messages)
        shown, over = arrangement.order, 0
        if last is not None:
            within = {*newest(messages, last), *(at for at in shown if is_pinned(messages[at]))}
            shown = tuple(at for at in shown if at in within)
        if room is not None:
            some, each = [messages[at] for at in shown], [costs[at] for at in shown]
            if slack:
                found = fitted_in_steps(some, each, [window.said_by_then(at) for at in shown], room, max(1, int(room * slack)), by=by)
            else:
                found = fitted(some, each, room, by=by)
            shown, over = tuple(shown[at] for at in found.kept), found.over_budget
        return _context(window, shown, over, of_tools)

    async def layered(self, most: int) -> Context:
        """The system message, every summary there has been, and the newest so many other messages (B51)."""
        window = await self._window(Asked(last=most))
        summaries = [compaction.summary for compaction in await self._summaries.all()]
        shown = layered(window.messages, summaries, most)
        return Context(shown, [message_tokens(message, self._counter) for message in shown], window.state.after.version)

    async def _window(self, asked: Asked = _ALL) -> Window:
        self._record, window = await read_window(self._log, self._same_life(), self._counter, asked)
        return window

    async def history(self, asked: HistoryAsked) -> HistoryPage:
        self._record = await self._same_life()
        return await self._history.page(asked, system_of(self._record))

    async def search(self, text: str, limit: int) -> list[FoundMessage]:
        """The messages that answer best by words, archived ones too; not those that were excluded."""
        self._record = await self._same_life()
        return await Finding(self._placement, self._sessions).find(within(self._log.life.partition), None, text, limit)

    # -- messages -----------------------------------------------------------------------------------------------------

    async def append(self, messages: Sequence[Message], *, in_history: bool = True) -> list[Message]:
        """The messages as stored: new ones at the end, in order; one whose id is there replaces what it said, where it stands (B20 to B23)."""
        messages = [copy_of(message, message.id) for message in messages]
        given = {message.id: message for message in messages if message.id is not None}
        if SYSTEM in given:
            raise InvalidInput("id", "'system' is the id of a session's system message: update it")
        patience = Patience(self._placement, self.id)
        while True:
            known = (self._log.seen or await self._log.load()).state.place
            found = {message_id: await self._log.find(message_id, as_seen=True) for message_id in given}
            new = [message for message in messages if message.id is None or (found[message.id] is None and given[message.id] is message)]
            late = await self._stand_ins(new)
            try:
                events = await self._log.append(self._drafts(new, in_history, known, late)) if new else []
                appended = [event for event in events if event.type is EventType.MESSAGE]
                stored = {id(message): event.message for message, event in zip(new, appended, strict=True)}
                for message_id, event in found.items():
                    if event is not None:
                        stored[id(given[message_id])] = await self._replaced(event, given[message_id])
                break
            except _SeenSince:
                await patience.wait()
        await self._touch()
        answers = [stored.get(id(message if message.id is None else given[message.id])) for message in messages]
        return [answer for answer in answers if answer is not None]

    async def _stand_ins(self, messages: Sequence[Message]) -> list[int]:
        """The places of the results that were made up for calls which these messages answer after all."""
        calls = [message.tool_call_id for message in messages if message.role is Role.TOOL and message.tool_call_id is not None]
        named = {_stand_in(call) for call in calls} - {message.id for message in messages}
        return [event.place for name in sorted(named) if (event := await self._log.find(name, as_seen=True)) is not None]

    def _drafts(self, messages: Sequence[Message], in_history: bool, looked_up: int, late: Sequence[int]) -> Callable[[Seen], list[Draft]]:
        """The messages as events; `looked_up` is the place up to which their ids are known not to be there, and what is at the `late` places goes."""

        def decide(seen: Seen) -> list[Draft]:
            if seen.state.after.status != "active":
                raise Conflict(f"session '{self.id}' is {seen.state.after.status}; resume it first", self.id)
            named = [message.id for message in messages if message.id is not None]
            if named and (seen.since > looked_up + 1 or any(name in seen.ids for name in named)):
                raise _SeenSince
            data: dict[str, JsonValue] = {"counter": self._counter.name} | ({} if in_history else {"in_history": False})
            gone = [Draft(EventType.EXCLUDE, data={"place": at, "reason": "invalid_response"}) for at in late if at in seen.state.window]
            return [*gone, *[Draft(EventType.MESSAGE, message, data, message_tokens(message, self._counter)) for message in messages]]

        return decide

    async def _replaced(self, event: Event, message: Message) -> Message | None:
        """The message where it stands, saying this instead; what was excluded is in the window again (B29)."""
        changed = await self._changed(event, lambda _: message)
        seen = await self._log.load()
        if changed.place not in seen.state.window and (await self._history.gone([changed]))[0].archived_by is None:
            await self._restored(changed)
        return changed.message

    async def _changed(self, event: Event | None, change: Callable[[Message], Message]) -> Event:
        patience, message_id = Patience(self._placement, self.id), "" if event is None else str(event.message.id if event.message else "")
        while event is not None and event.draft.message is not None:
            new = change(event.draft.message).model_copy(update={"id": event.draft.message.id})
            if new == event.draft.message:
                if event.edits:  # perhaps by this very call before it failed, and then nobody was told
                    await self._log.tell_edit(event)
                return event
            changed = await self._log.change(event, new, message_tokens(new, self._counter))
            if changed is not None:
                return changed
            await patience.wait()
            event = await self._log.find(message_id)
        raise NotFound(message_id, "message")

    async def update(self, message_id: str, changes: Mapping[str, Any]) -> Message:
        """Change a message where it stands; its number and its place in the window stay (B26)."""
        if message_id == SYSTEM:
            return await self._update_system(changes)
        return await self.change(message_id, lambda message: message.model_copy(update=dict(changes)))

    async def change(self, message_id: str, change: Callable[[Message], Message], *, as_seen: bool = False) -> Message:
        """Let a message say what `change` makes of it, which is asked again where others changed it meanwhile.

        With `as_seen` it is first asked of the message as this handle has it: for changes that are none only where nothing is left to do.
        """
        event = (self._log.at_hand(message_id) if as_seen else None) or await self._log.find(message_id)
        if event is None:
            raise NotFound(message_id, "message")
        changed = await self._changed(event, change)
        assert changed.message is not None  # noqa: S101 - it is one that was found as a message
        await self._touch()
        return changed.message

    async def _update_system(self, changes: Mapping[str, Any]) -> Message:
        record = await self._same_life()
        system = system_of(record)
        if system is None:
            raise NotFound(SYSTEM, "message")
        new = system.model_copy(update=dict(changes))
        said = new.model_dump(mode="json", exclude_defaults=True, exclude={"id"})
        self._record = await self._sessions.follow(record, (await self._log.load()).state, self._placement.now(), system=said)
        return new

    async def exclude(self, message_id: str, reason: str) -> bool:
        """Take a message out of the window, not out of the history (B27, B28); false where it is not in the window, and for the system message."""
        event = None if message_id == SYSTEM else await self._log.find(message_id)
        if event is None:
            return False

        def decide(seen: Seen) -> list[Draft]:
            return [Draft(EventType.EXCLUDE, data={"place": event.place, "reason": reason})] if event.place in seen.state.window else []

        return await self._done(decide)

    async def restore(self, message_id: str) -> bool:
        """Take an excluded message back into the window, at its place; false where it is there, or was taken out by a compaction."""
        event = None if message_id == SYSTEM else await self._log.find(message_id)
        if event is None or (await self._history.gone([event]))[0].archived_by is not None:
            return False
        return await self._restored(event)

    async def _restored(self, event: Event) -> bool:
        data: dict[str, JsonValue] = {"place": event.place}
        if event.draft.message is not None and (event.type is EventType.COMPACTION or is_pinned(event.draft.message)):
            data["pinned"] = True

        def decide(seen: Seen) -> list[Draft]:
            return [] if event.place in seen.state.window else [Draft(EventType.RESTORE, data=data)]

        return await self._done(decide)

    async def clear(self) -> int:
        """Take every message that is known of out of the window, and none that comes meanwhile; how many (B30, B31)."""
        seen = await self._log.load()
        return await self._left(EventType.CLEAR, seen.state.window, "manual")

    async def checkpoint(self, name: str | None = None) -> Checkpoint:
        """The place to which the log has come."""
        if name is None:
            place = (await self._log.load()).state.place
        else:
            (event,) = await self._log.append(lambda _: [Draft(EventType.CHECKPOINT, data={"name": name})])
            place = event.place
        return Checkpoint(self.id, self._log.life.incarnation, place)

    async def roll_back(self, checkpoint: Checkpoint, reason: str) -> int:
        """Take what was said since, as far as it is known of, out of the window; how many messages (B52)."""
        if (checkpoint.session_id, checkpoint.incarnation) != (self.id, self._log.life.incarnation):
            raise InvalidInput("checkpoint", "is one of another session")
        seen = await self._log.load()
        return await self._left(EventType.ROLL_BACK, seen.state.window.between(checkpoint.place + 1, seen.state.place), reason)

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

    async def mend_tool_calls(self) -> list[Message]:
        """Answer each call of the window that was never answered, once, with a result that says so (B53)."""
        calls = [found.call.id for found in arranged((await self._window()).messages).interrupted]
        made = [Message(id=_stand_in(call), role=Role.TOOL, content=INTERRUPTED, tool_call_id=call, is_error=True) for call in calls]
        return await self.append(made) if made else []

    # -- compaction ---------------------------------------------------------------------------------------------------

    async def compact(self, summarise: Summarise, *, keep_last: int, reason: str, trigger_id: str | None = None) -> Compaction:
        compaction = await self._summaries.compact(summarise, keep_last=keep_last, reason=reason, trigger_id=trigger_id)
        await self._touch()
        return compaction

    async def compact_if_needed(self, summarise: Summarise, threshold: Threshold, tools: Sequence[Mapping[str, Any]]) -> Compaction | None:
        compaction = await self._summaries.compact_if_needed(summarise, threshold, tools_tokens(tools, self._counter))
        if compaction is not None:
            await self._touch()
        return compaction

    async def compactions(self) -> list[Compaction]:
        return await self._summaries.all()

    # -- its life -----------------------------------------------------------------------------------------------------

    async def close(self, status: str) -> bool:
        """End or archive the session: nothing is appended to it until it is resumed. False where it was so already.

        What is still being said is taken as it stands.
        """

        def decide(seen: Seen) -> list[Draft]:
            if seen.state.after.status == status:
                return []
            window = seen.state.window
            leaves, owed = self._onward.leaving(window.between(seen.state.after.onward + 1, window.last)) if status == "ended" else ({}, ())
            return [Draft(EventType.CLOSED, data={"status": status, **leaves}, owed=(*self._sessions.owed_follow, *owed))]

        closed = await self._turned(decide)
        for event in (await self._log.window())[1].values():
            if event.message is not None and not event.message.is_final:
                with suppress(NotFound):  # erased meanwhile
                    await self._changed(event, lambda message: message.model_copy(update={"is_final": True}))
        return closed

    async def resume(self) -> bool:
        """Go on with a session that was ended or archived; false where it is active."""

        def decide(seen: Seen) -> list[Draft]:
            return [] if seen.state.after.status == "active" else [Draft(EventType.RESUMED, owed=self._sessions.owed_follow)]

        return await self._turned(decide)

    async def _turned(self, decide: Callable[[Seen], list[Draft]]) -> bool:
        events = await self._log.append(decide)
        for event in events:  # what goes onward by it is no affair of lists, and nobody waits for it here
            await self._sessions.finish(replace(self._log.record_of(event), owed=self._sessions.owed_follow))
        return bool(events)

    async def onward(self) -> Left:
        """Carry what has left the window onward, as far as that is owed and can be done now."""
        return await self._onward.of_session(await self._same_life())

    async def describe(self, told: Mapping[str, FieldValue], **changes: JsonValue) -> SessionInfo:
        """Change what of the session is no affair of its log: title and metadata, and as fields tags and expiry."""
        record = await self._same_life()
        state = (await self._log.load()).state
        self._record = await self._sessions.follow(record, state, self._placement.now(), told, **changes)
        return info_of(self._record, state)

    async def _touch(self) -> None:
        """Tell the session's own record, for lists; not with each message of a burst. What was said is stored: that this fails is no reason to say
        that it is not."""
        if self._log.seen is None:
            return
        state, now, touched = self._log.seen.state, self._placement.now(), self._record.fields["touched_at"]
        self._sessions.is_behind(self._record, state, now)
        if isinstance(touched, datetime) and now - touched >= FOLLOWS_WITHIN:
            try:
                self._record = await self._sessions.tell(self._record, state, now)
            except MemoryTiersError as error:
                log.info("the record of session %s is behind its log: %s", self.id, error)


def _context(window: Window, shown: Sequence[int], over: int, of_tools: int) -> Context:
    messages, arrangement = window.messages, arranged(window.messages)
    invalid = arrangement.invalid_response
    return Context(
        [messages[at] for at in shown],
        [window.costs[at] for at in shown],
        window.state.after.version,
        window.count - len(shown) - len(invalid),
        over,
        [str(messages[at].id) for at in invalid],
        [open_call.call.id for open_call in arrangement.interrupted if open_call.position in shown],
        of_tools,
    )


def _stand_in(call_id: str) -> str:
    """The id of the result that is made up for a call."""
    return f"interrupted:{call_id}"
