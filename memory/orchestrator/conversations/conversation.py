"""What one session can do: messages in and out of its window, its history, compactions, its end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from memory.domain.errors import Conflict, InvalidInput, NotFound
from memory.domain.message import Message, Role
from memory.domain.session import Context, FoundMessage, HistoryPage, SessionInfo
from memory.orchestrator.collections import MESSAGES
from memory.orchestrator.conversations.compacting import Compacting
from memory.orchestrator.conversations.events import Draft, Event, EventType
from memory.orchestrator.conversations.history import HistoryAsked, item_of
from memory.orchestrator.conversations.log import Seen
from memory.orchestrator.conversations.replacing import AT_ONCE, Replacement
from memory.orchestrator.conversations.sessions import SessionDraft, draft_like, info_of, system_of
from memory.orchestrator.steps import step
from memory.orchestrator.turns import Patience
from memory.policies.ranking import rank_by_words
from memory.policies.reading import ContextAsked, read_out
from memory.policies.tokens import message_tokens, tools_tokens
from memory.policies.window import arranged
from memory.ports.query import WORDS, Query, Search, Words, within
from memory.ports.record import JsonValue

log = logging.getLogger(__name__)

Summarise: TypeAlias = Callable[[list[Message]], str | Message | Awaitable[str | Message]]
SEARCHED = 200
"""Messages that are looked at beyond twice those asked for, to leave out those that were excluded."""
INTERRUPTED = "TOOL_CALL_INTERRUPTED"
"""What the result says of a call that was never answered (B53)."""
SYSTEM = "system"
EVERYTHING = ContextAsked()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place in a session's log to roll back to."""

    session_id: str
    incarnation: str
    place: int


class _SeenSince(Exception):
    """A message of an id that was looked up has come into the log meanwhile, or may have."""


class Conversation(Compacting):
    """One session, as one handle has it."""

    # -- reading ------------------------------------------------------------------------------------------------------

    async def context(self, asked: ContextAsked = EVERYTHING, *, tools: Sequence[Mapping[str, Any]] = ()) -> Context:
        """What a model is to be sent: the system message, the newest summary, then the messages of the window, results behind their calls."""
        self._record = await self._same_life()
        state, events = await self._log.window()
        self._known = state.window
        if asked.layered:
            asked = replace(asked, earlier=[made.summary for made in await self.compactions()])
        window, counted = self._messages(events), self._counted(events)
        costs = {message.id: counted.get(message.id) or message_tokens(message, self._counter) for message in [*window, *asked.earlier]}
        return read_out(window, costs, state.after.version, asked, tools_tokens(tools, self._counter))

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

    # -- messages -----------------------------------------------------------------------------------------------------

    async def append(self, messages: Sequence[Message], *, in_history: bool = True) -> list[Message]:
        """The messages as stored: new ones at the end, in order; one whose id is there replaces what it said, where it stands (B20 to B23)."""
        given = {message.id: message for message in messages if message.id is not None}
        if SYSTEM in given:
            raise InvalidInput("id", "'system' is the id of a session's system message: update it")
        patience = Patience(self._placement, self.id)
        while True:
            state = (self._log.seen or await self._log.load()).state
            known, self._known = state.place, state.window if self._known is None else self._known
            found = {message_id: await self._log.find(message_id, as_seen=True) for message_id in given}
            new = [message for message in messages if message.id is None or (found[message.id] is None and given[message.id] is message)]
            late = await self._stand_ins(new)
            try:
                events = await self._log.append(self._drafts(new, in_history, known, late)) if new else []
                appended = [event for event in events if event.type is EventType.MESSAGE]
                self._wrote(*appended)
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

    async def begin(self, messages: Sequence[Message]) -> None:
        """What a session that was created just now begins with: no other message of theirs has these ids."""
        for start in range(0, len(messages), AT_ONCE):
            known = (self._log.seen or await self._log.load()).state.place
            self._wrote(*await self._log.append(self._drafts(messages[start : start + AT_ONCE], True, known, [])))

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

    async def as_of(self, message_id: str | None) -> tuple[SessionDraft, list[Message]]:
        """What a session that forks off from this one behind a message begins with: the window as it was then, less what was excluded since.

        None is the end. Raises `NotFound` where there is no such message.
        """
        self._record = await self._same_life()
        event = None if message_id in (None, SYSTEM) else await self._log.find(str(message_id))
        if event is None and message_id not in (None, SYSTEM):
            raise NotFound(str(message_id), "message")
        events: list[Event] = []
        if message_id is None:
            _, events = await self._log.window()
        elif event is not None:
            events = await self._log.window_at(event.place)
        told = zip(events, await self._history.gone(events), strict=True)
        kept = [each for each, gone in told if gone.excluded is None or (event is not None and each.place == event.place)]
        messages = [message for message in self._messages(kept) if message.id != SYSTEM]
        return draft_like(self._record, forked_from={"session_id": self.id, "message_id": message_id}), messages

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

    async def replace(self, messages: Sequence[Message], *, by_content: bool = True) -> list[Message]:
        """Let the window consist of these messages (C22); they as stored. Without `by_content` one without an id is new, whatever it says.

        Messages of others that this handle's caller has not read stay, behind them.
        """
        self._record = await self._same_life()
        state, events = await self._log.window()
        window = self._messages(events)
        shown = [window[at] for at in arranged(window).order]
        places = {str(event.message.id): event.place for event in events if event.message is not None}
        known = state.window if self._known is None else self._known
        made = Replacement([message for message in messages if message.id != SYSTEM], shown, places, known, by_content=by_content)
        told: list[Message] = []
        for start in range(0, len(made.told), AT_ONCE):
            told += await self.append(made.told[start : start + AT_ONCE])
        await self._left(EventType.REPLACE, made.leaving, "replaced")
        return made.as_stored(told)

    async def mend_tool_calls(self) -> list[Message]:
        """Answer each call of the window that was never answered, once, with a result that says so (B53)."""
        _, events = await self._log.window()
        calls = [found.call.id for found in arranged(self._messages(events)).interrupted]
        made = [Message(id=_stand_in(call), role=Role.TOOL, content=INTERRUPTED, tool_call_id=call, is_error=True) for call in calls]
        return await self.append(made) if made else []

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


def _stand_in(call_id: str) -> str:
    """The id of the result that is made up for a call."""
    return f"interrupted:{call_id}"
