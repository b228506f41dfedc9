"""Reads of a session's window, only as far back as a request needs."""

from __future__ import annotations

import hashlib
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memory.domain.message import Message
from memory.orchestrator.conversations.log.events import Event, EventType
from memory.orchestrator.conversations.log.folding import State
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.sessions import system_of
from memory.orchestrator.conversations.window.reads import MESSAGES_KEPT, WindowRead, version_of
from memory.orchestrator.storage.places import Places
from memory.policies.tokens import message_tokens
from memory.policies.window import MessageArrangement, arrange, reaches_back
from memory.ports.concurrency import both_at_once
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.record import Record
from memory.ports.tokens import TokenCounter

MARGIN = 8
"""Additional messages to read, because a cut may fall into a call's results."""
COPIED = 500
"""Messages that are copied before other tasks get a turn."""
_VERSION_BYTES = 7
LEAST_COST = 4
"""The least tokens expected of a message.

It limits how many messages a budget makes the first read fetch.
"""


@dataclass(frozen=True, slots=True)
class Window:
    """A window, or its end, with the tokens of each message.

    It has the system message, summaries, then the other messages by place. Large texts
    have only their beginnings: see `Handle._whole`.

    The messages are those in the cache: callers get copies. `count` is the number of
    readable messages in the whole window.
    """

    state: State
    arranged: MessageArrangement
    costs: list[int]
    events: list[Event | None]
    """The event of each message; None for the system message."""
    count: int
    is_whole: bool

    @property
    def messages(self) -> Sequence[Message]:
        return self.arranged.messages

    @property
    def said_by_then(self) -> list[int]:
        """For each message, the total tokens of the session when it was written."""
        return [0 if event is None else event.after.tokens for event in self.events]

    @property
    def places(self) -> dict[str, int]:
        """The place of each message by its id, without the system message."""
        return {
            str(message.id): event.place
            for message, event in zip(self.messages, self.events, strict=True)
            if event is not None
        }


def version_of_window(window: Window) -> int:
    """Return a number that changes with each change of a whole window.

    It covers the text of the system message, and edits of the other messages.
    """
    found = hashlib.sha256(str(window.state.after.version).encode())
    for message, event in zip(window.messages, window.events, strict=True):
        seen = message.model_dump_json() if event is None else f"{event.key.id} {event.place} {event.edits}"
        found.update(f"\n{seen}".encode())
    return int.from_bytes(found.digest()[:_VERSION_BYTES]) or 1


def read_of(window: Window, shown: Sequence[Message]) -> WindowRead:
    """Return the read of a task that was shown these messages of the window."""
    versions = {
        str(message.id): version_of(event)
        for message, event in zip(window.messages, window.events, strict=True)
        if event is not None
    }
    stored = [message for message in shown if message.id in versions]  # no stand-ins for missing results
    places = window.state.window if window.is_whole else Places.of(place for place, _ in versions.values())
    read = WindowRead(places, versions, stored if len(stored) <= MESSAGES_KEPT else None)
    read.hide({window.messages[at].id for at in window.arranged.order} - {message.id for message in stored})
    return read


@dataclass(frozen=True, slots=True)
class WindowExtent:
    """The part of a window to show: the newest messages, or those within a budget.

    The default is the whole window.
    """

    last: int | None = None
    budget: int | None = None
    by: Literal["blocks", "turns"] = "blocks"


async def read_window(
    log: Log, record: Coroutine[Any, Any, Record], counter: TokenCounter, asked: WindowExtent
) -> tuple[Record, Window]:
    """Return the session's record and the needed part of its window, read together."""
    reach = _estimate_count(None if log.snapshot is None else log.snapshot.state, asked)
    told, (state, events) = await both_at_once(record, log.window(reach))
    while True:
        uncounted = [
            event
            for event in events.values()
            if not event.draft.is_whole and _stored_tokens(event, counter) is None
        ]
        events |= {event.place: event for event in await log.whole(uncounted)}
        read = state.window if reach is None else state.window.newest(reach)
        earlier = state.window.without(read)
        damaged = len(read) - sum(place in events for place in read)
        window = await _window(told, state, events.values(), counter, damaged, is_whole=not earlier.ranges)
        if reach is None or window.is_whole or _is_enough(window, asked):
            return told, window
        events |= await log.at(earlier.newest(reach))
        reach *= 2


async def window_at_hand(
    log: Log, record: Record, counter: TokenCounter, asked: WindowExtent
) -> Window | None:
    """Return the needed part of the window from the cache.

    It is at most `REMEMBERED_FOR` old. None if it is not cached.
    """
    seen = log.cached_snapshot
    if seen is None:
        return None
    at_hand = {place for place, event in seen.events.items() if event.draft.is_whole}
    missing = Places.of(place for place in seen.state.window if place not in at_hand)
    shown = seen.state.window.between(missing.last + 1, seen.state.place)
    pinned = seen.state.pinned.without(shown)
    if pinned.both(missing).ranges:
        return None
    events = [seen.events[place] for place in (*pinned, *shown)]
    is_whole = not missing.ranges
    window = await _window(record, seen.state, events, counter, 0, is_whole=is_whole)
    return window if is_whole or _is_enough(window, asked) else None


def _is_enough(window: Window, asked: WindowExtent) -> bool:
    """Return whether the end of a window is enough for the request."""
    return reaches_back(window.arranged, window.costs, last=asked.last, budget=asked.budget, by=asked.by)


async def _window(
    record: Record,
    state: State,
    events: Iterable[Event],
    counter: TokenCounter,
    damaged: int,
    *,
    is_whole: bool,
) -> Window:
    system = system_of(record)
    said = [
        (message, event)
        async for event in iterate_cooperatively(order_events(events), COPIED)
        if (message := event.draft.message) is not None
    ]
    first = [] if system is None else [system]
    return Window(
        state,
        arrange([*first, *[message for message, _ in said]]),
        [
            *[message_tokens(message, counter) for message in first],
            *[_cost(message, event, counter) for message, event in said],
        ],
        [*[None for _ in first], *[event for _, event in said]],
        len(first) + len(state.window) - damaged,
        is_whole,
    )


def order_events(events: Iterable[Event]) -> list[Event]:
    """Return the events with visible messages: summaries first, then by place."""
    shown = [event for event in events if event.draft.message is not None and not event.is_redacted]
    return sorted(shown, key=lambda event: (event.type is not EventType.COMPACTION, event.place))


def _cost(message: Message, event: Event, counter: TokenCounter) -> int:
    """Return the stored tokens if this counter counted them, else count now."""
    counted = _stored_tokens(event, counter)
    return message_tokens(message, counter) if counted is None else counted


def _stored_tokens(event: Event, counter: TokenCounter) -> int | None:
    return event.draft.tokens if event.draft.data.get("counter") == counter.name else None


def _estimate_count(seen: State | None, asked: WindowExtent) -> int | None:
    """Estimate how many of the newest messages are enough; None for all.

    The estimate uses the average tokens of the session's messages so far.
    """
    if asked.last is not None:
        return asked.last + MARGIN
    if asked.budget is None:
        return None
    average = (
        max(LEAST_COST, seen.after.tokens / max(1, seen.after.number))
        if seen is not None
        else 10 * LEAST_COST
    )
    return int(max(0, asked.budget) / average * 1.25) + MARGIN
