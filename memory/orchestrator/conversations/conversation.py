"""What one session can do: messages in and out of its window, its history, compactions, its end."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from memory.domain.errors import CompactionError, Conflict, InvalidInput, MemoryTiersError, NotFound
from memory.domain.message import Message, Role
from memory.domain.session import Compaction, Context, FoundMessage, HistoryPage, SessionInfo
from memory.orchestrator.collections import MESSAGES
from memory.orchestrator.conversations.events import Draft, Event, EventType
from memory.orchestrator.conversations.history import History, HistoryAsked, item_of
from memory.orchestrator.conversations.log import Log, Seen
from memory.orchestrator.conversations.places import Places
from memory.orchestrator.conversations.sessions import FOLLOWS_WITHIN, SessionRecords, info_of, system_of
from memory.orchestrator.placement import Placement
from memory.orchestrator.steps import step
from memory.orchestrator.turns import Patience
from memory.policies.ranking import rank_by_words
from memory.policies.tokens import message_tokens, tools_tokens
from memory.policies.window import arranged, fitted, newest, split_for_compaction
from memory.ports.query import WORDS, And, Eq, Order, Query, Search, Words, within
from memory.ports.record import JsonValue, Record
from memory.ports.tokens import TokenCounter

log = logging.getLogger(__name__)

Summarise: TypeAlias = Callable[[list[Message]], str | Message | Awaitable[str | Message]]
SEARCHED = 200
"""Messages that are looked at beyond twice those asked for, to leave out those that were excluded."""
INTERRUPTED = "TOOL_CALL_INTERRUPTED"
"""What the result says of a call that was never answered (B53)."""
SYSTEM = "system"


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

    def __init__(self, placement: Placement, sessions: SessionRecords, record: Record, log: Log, counter: TokenCounter) -> None:
        self._placement = placement
        self._sessions = sessions
        self._record = record
        self._log = log
        self._counter = counter
        self._history = History(placement, log)

    @property
    def id(self) -> str:
        return self._log.life.session_id

    # -- reading ------------------------------------------------------------------------------------------------------

    async def info(self) -> SessionInfo:
        """The session as it is now."""
        self._record = await self._same_life()
        return info_of(self._record, (await self._log.load()).state)

    async def _same_life(self) -> Record:
        record = await self._sessions.record(self._log.life.tenant, self.id)
        if record.body["incarnation"] != self._log.life.incarnation:
            raise NotFound(self.id, "session")  # deleted, and created again since: this handle is of its former life
        return record

    async def context(
        self, budget: int | None = None, *, last: int | None = None, tools: Sequence[Mapping[str, Any]] = (), turns: bool = False
    ) -> Context:
        """What a model is to be sent: the system message, the newest summary, then the messages of the window, results behind their calls."""
        self._record = await self._same_life()
        state, events = await self._log.window()
        messages = self._messages(events)
        arrangement = arranged(messages)
        shown, counted = arrangement.order, self._counted(events)
        if last is not None:
            within = {*newest(messages, last), *(at for at in shown if messages[at].role is Role.SYSTEM or messages[at].is_summary)}
            shown = tuple(at for at in shown if at in within)
        costs = [counted.get(message.id) or message_tokens(message, self._counter) for message in messages]
        of_tools, over = tools_tokens(tools, self._counter), 0
        if budget is not None:
            some = [messages[at] for at in shown]
            found = fitted(some, [costs[at] for at in shown], budget - of_tools, by="turns" if turns else "blocks")
            shown, over = tuple(shown[at] for at in found.kept), found.over_budget
        invalid = set(arrangement.invalid_response)
        return Context(
            [messages[at] for at in shown],
            [costs[at] for at in shown],
            state.after.version,
            [str(message.id) for at, message in enumerate(messages) if at not in shown and at not in invalid],
            over,
            [str(messages[at].id) for at in arrangement.invalid_response],
            [open_call.call.id for open_call in arrangement.interrupted],
            of_tools,
        )

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

    async def history(self, asked: HistoryAsked) -> HistoryPage:
        self._record = await self._same_life()
        return await self._history.page(asked, system_of(self._record))

    async def search(self, text: str, limit: int) -> list[FoundMessage]:
        """The messages that answer best by words, archived ones too; not those that were excluded."""
        self._record = await self._same_life()
        where, most = within(self._log.life.partition), SEARCHED + 2 * limit
        if self._log.store.capabilities.lexical:
            with step("messages.search"):
                hits = await self._log.store.search(Search(MESSAGES, where, Words(text), most))
        else:
            query = Query(MESSAGES, where, limit=self._placement.settings.page, select=frozenset({WORDS}))
            pages = self._placement.pages("messages.look", self._log.store, query)
            hits = await rank_by_words([head async for page in pages for head in page.heads], MESSAGES, text, most)
        scores = {hit.head.key: hit.score for hit in hits}
        found = sorted([event for event in await self._log.of(list(scores)) if event.number is not None], key=lambda event: event.place)
        told = zip(found, await self._history.gone(found), strict=True)
        messages = [FoundMessage(item_of(event, gone), scores[event.key]) for event, gone in told if gone.excluded is None]
        return sorted(messages, key=lambda message: (-message.score, message.item.number))[:limit]

    async def compactions(self) -> list[Compaction]:
        """Every compaction, the first one first (B39)."""
        life = self._log.life
        asked = And((Eq("conversation_id", life.session_id), Eq("event", EventType.COMPACTION.value)))
        query = Query(MESSAGES, within(life.partition), asked, (Order("created_at"),), self._placement.settings.page)
        pages = self._placement.pages("history.compactions", self._log.store, query)
        events = [event async for page in pages for event in self._log.events_of(page.records)]
        return [await self._told(event) for event in events]

    # -- messages -----------------------------------------------------------------------------------------------------

    async def append(self, messages: Sequence[Message], *, in_history: bool = True) -> list[Message]:
        """The messages as stored: new ones at the end, in order; one whose id is there replaces what it said, where it stands (B20 to B23)."""
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
        event = await self._log.find(message_id)
        if event is None:
            raise NotFound(message_id, "message")
        changed = await self._changed(event, lambda message: message.model_copy(update=dict(changes)))
        assert changed.message is not None  # noqa: S101 - it is one that was found as a message
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
        def decide(seen: Seen) -> list[Draft]:
            return [] if event.place in seen.state.window else [Draft(EventType.RESTORE, data={"place": event.place})]

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
        _, events = await self._log.window()
        calls = [found.call.id for found in arranged(self._messages(events)).interrupted]
        made = [Message(id=_stand_in(call), role=Role.TOOL, content=INTERRUPTED, tool_call_id=call, is_error=True) for call in calls]
        return await self.append(made) if made else []

    # -- compaction ---------------------------------------------------------------------------------------------------

    async def compact(self, summarise: Summarise, *, keep_last: int, reason: str, trigger_id: str | None = None) -> Compaction:
        """Let a summary stand for all but the last messages of the window: one write. An earlier summary goes with them (B34 to B42).

        Where another compaction took some of them meanwhile nothing is written, and that one is returned. Raises `CompactionError`, and nothing has
        changed, where the summary cannot be had.
        """
        self._record = await self._same_life()
        state, events = await self._log.window()
        messages = self._messages(events)
        places = {str(event.message.id): event.place for event in events if event.message is not None}
        archived = [messages[at] for at in split_for_compaction(messages, keep_last).archived]
        summary = await _summary(summarise, archived)
        left = Places.of(places[str(message.id)] for message in archived)
        before = len(messages)
        cost = sum(message_tokens(m, self._counter) for m in messages)
        after_cost = cost - sum(message_tokens(m, self._counter) for m in archived) + message_tokens(summary, self._counter)
        said: dict[str, JsonValue] = {
            "left": left.to_json(),
            "archived": [str(message.id) for message in archived],
            "before": before,
            "after": before - len(archived) + 1,
            "tokens": [cost, after_cost],
            "reason": reason,
            "trigger": trigger_id,
            "counter": self._counter.name,
        }

        def decide(seen: Seen) -> list[Draft]:
            if seen.state.after.status != "active":
                raise Conflict(f"session '{self.id}' is {seen.state.after.status}; resume it first", self.id)
            if seen.state.after.compactions != state.after.compactions or any(place not in seen.state.window for place in left):
                return []
            return [Draft(EventType.COMPACTION, summary, said, message_tokens(summary, self._counter))]

        appended = await self._log.append(decide)
        await self._touch()
        if appended:
            return await self._told(appended[0])
        if (await self._log.load()).state.after.compactions != state.after.compactions:
            made = await self.compactions()
            if len(made) <= state.after.compactions:
                raise NotFound(self.id, "session")  # deleted since
            return made[state.after.compactions]
        return await self.compact(summarise, keep_last=keep_last, reason=reason, trigger_id=trigger_id)  # a message of them left the window meanwhile

    async def _told(self, event: Event) -> Compaction:
        data: Mapping[str, Any] = event.draft.data
        message = event.message
        assert message is not None  # noqa: S101 - a compaction is a message
        before, after = data.get("tokens") or (None, None)
        return Compaction(
            event.key.id,
            self.id,
            event.created_at,
            message,
            list(data["archived"]),
            data["before"],
            data["after"],
            data["reason"],
            before,
            after,
            data.get("trigger"),
        )

    # -- its life -----------------------------------------------------------------------------------------------------

    async def close(self, status: str) -> bool:
        """End or archive the session: nothing is appended to it until it is resumed. False where it was so already."""

        def decide(seen: Seen) -> list[Draft]:
            if seen.state.after.status == status:
                return []
            return [Draft(EventType.CLOSED, data={"status": status}, owed=self._sessions.owed_follow)]

        return await self._turned(decide)

    async def resume(self) -> bool:
        """Go on with a session that was ended or archived; false where it is active."""

        def decide(seen: Seen) -> list[Draft]:
            return [] if seen.state.after.status == "active" else [Draft(EventType.RESUMED, owed=self._sessions.owed_follow)]

        return await self._turned(decide)

    async def _turned(self, decide: Callable[[Seen], list[Draft]]) -> bool:
        events = await self._log.append(decide)
        for event in events:
            await self._sessions.finish(self._log.record_of(event))
        return bool(events)

    async def rename(self, **changes: JsonValue) -> SessionInfo:
        """Change what of the session is no affair of its log: title and metadata."""
        record = await self._same_life()
        state = (await self._log.load()).state
        self._record = await self._sessions.follow(record, state, self._placement.now(), **changes)
        return info_of(self._record, state)

    async def _touch(self) -> None:
        """Tell the session's own record, for lists; not with each message of a burst. What was said is stored: that this fails is no reason to say
        that it is not."""
        touched: Any = self._record.fields["touched_at"]
        if self._log.seen is not None and self._placement.now() - touched >= FOLLOWS_WITHIN:
            try:
                self._record = await self._sessions.follow(self._record, self._log.seen.state, self._placement.now())
            except MemoryTiersError as error:
                log.info("the record of session %s is behind its log: %s", self.id, error)


def _stand_in(call_id: str) -> str:
    """The id of the result that is made up for a call."""
    return f"interrupted:{call_id}"


async def _summary(summarise: Summarise, archived: list[Message]) -> Message:
    names = [str(message.id) for message in archived]
    try:
        made = summarise([message.model_copy(deep=True) for message in archived])
        said = await made if inspect.isawaitable(made) else made
    except Exception as error:
        raise CompactionError(names, str(error)) from error
    if isinstance(said, str):
        said = Message(role=Role.SYSTEM, content=said)
    if not isinstance(said, Message):
        raise CompactionError(names, f"the summary must be text or a message, not {type(said).__name__}")
    if not said.text.strip() or said.tool_calls:
        raise CompactionError(names, "Summary generation failed: it says nothing, or asks for a tool")
    return said.model_copy(update={"is_summary": True})
