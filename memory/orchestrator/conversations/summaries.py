"""Compactions of one session: a summary stands for the older part of its window, by hand or when it grows too large."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from memory.domain.errors import CompactionError, Conflict
from memory.domain.message import Message, Role
from memory.domain.session import Compaction
from memory.orchestrator.collections import MESSAGES
from memory.orchestrator.conversations.events import Draft, Event, EventType
from memory.orchestrator.conversations.log import Log, Seen
from memory.orchestrator.conversations.onward import Onward
from memory.orchestrator.conversations.places import Places
from memory.orchestrator.conversations.reading import Window
from memory.orchestrator.placement import Placement
from memory.policies.tokens import message_tokens
from memory.policies.window import Split, Threshold, split_by_policy, split_for_compaction
from memory.ports.query import And, Eq, Order, Query, within
from memory.ports.record import JsonValue
from memory.ports.tokens import TokenCounter

Summarise: TypeAlias = Callable[[list[Message]], str | Message | Awaitable[str | Message]]
Splitting: TypeAlias = Callable[[Sequence[Message], int], Split]


class Summaries:
    """Makes them and tells of them. `window` reads the session's whole window."""

    def __init__(self, placement: Placement, log: Log, counter: TokenCounter, onward: Onward, window: Callable[[], Awaitable[Window]]) -> None:
        self._placement = placement
        self._log = log
        self._counter = counter
        self._onward = onward
        self._window = window

    async def compact(self, summarise: Summarise, *, keep_last: int, reason: str, trigger_id: str | None = None) -> Compaction:
        """Let a summary stand for all but the last messages of the window: one write. An earlier summary goes with them (B34 to B42).

        Where another compaction took some of them meanwhile nothing is written, and that one is returned. Raises `CompactionError`, and nothing has
        changed, where the summary cannot be had.
        """
        while True:
            window = await self._window()
            made = await self._compact(window, split_for_compaction(window.messages, keep_last), summarise, reason, trigger_id)
            if made is not None:
                return made

    async def compact_if_needed(self, summarise: Summarise, threshold: Threshold, of_tools: int) -> Compaction | None:
        """Compact where the window, with what tools take, has reached the threshold; None where it has not, or nothing may go (B43, B46, B47)."""
        while True:
            window = await self._window()
            if not threshold.is_reached(window.messages, sum(window.costs) + of_tools):
                return None
            split = split_by_policy(window.messages, threshold.keep_last)
            if all(window.messages[at].is_summary for at in split.archived):
                return None  # the last user message is too far back: a summary of the summary gains nothing
            made = await self._compact(window, split, summarise, "token_limit", None)
            if made is not None:
                return made

    async def _compact(self, window: Window, split: Split, summarise: Summarise, reason: str, trigger_id: str | None) -> Compaction | None:
        """One compaction, or another that was first; None where a message of these left the window meanwhile."""
        messages, state, gone = window.messages, window.state, split.archived
        archived = [messages[at] for at in gone]
        summary = await _summary(summarise, archived)
        left = Places.of(event.place for at in gone if (event := window.events[at]) is not None)
        cost = sum(window.costs)
        said: dict[str, JsonValue] = {
            "left": left.to_json(),
            "archived": [str(message.id) for message in archived],
            "before": len(messages),
            "after": len(messages) - len(archived) + 1,
            "tokens": [cost, cost - sum(window.costs[at] for at in gone) + message_tokens(summary, self._counter)],
            "reason": reason,
            "trigger": trigger_id,
            "counter": self._counter.name,
        }

        def decide(seen: Seen) -> list[Draft]:
            if seen.state.after.status != "active":
                raise Conflict(f"session '{self._log.life.session_id}' is {seen.state.after.status}; resume it first", self._log.life.session_id)
            if seen.state.after.compactions != state.after.compactions or any(place not in seen.state.window for place in left):
                return []
            leaves, owed = self._onward.leaving(left.between(seen.state.after.onward + 1, left.last))
            return [Draft(EventType.COMPACTION, summary, {**said, **leaves}, message_tokens(summary, self._counter), owed)]

        if appended := await self._log.append(decide):
            return self._told(appended[0])
        if (await self._log.load()).state.after.compactions != state.after.compactions:
            return (await self.all())[state.after.compactions]
        return None

    async def all(self) -> list[Compaction]:
        """Every compaction, the first one first (B39)."""
        life = self._log.life
        asked = And((Eq("conversation_id", life.session_id), Eq("event", EventType.COMPACTION.value)))
        query = Query(MESSAGES, within(life.partition), asked, (Order("created_at"),), self._placement.settings.page)
        pages = self._placement.pages("history.compactions", self._log.store, query)
        return [self._told(event) async for page in pages for event in self._log.events_of(page.records)]

    def _told(self, event: Event) -> Compaction:
        data: Mapping[str, Any] = event.draft.data
        message = event.message
        assert message is not None  # noqa: S101 - a compaction is a message
        before, after = data.get("tokens") or (None, None)
        return Compaction(
            event.key.id,
            self._log.life.session_id,
            event.created_at,
            message,
            list(data.get("archived", ())),  # none are named by one that was erased
            data["before"],
            data["after"],
            data["reason"],
            before,
            after,
            data.get("trigger"),
        )


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
