"""The part of a session's log that a process has cached.

A read then needs only the newer events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from memory.domain.time import EPOCH
from memory.orchestrator.conversations.log.events import FIRST_PLACE, Event, EventType, size_of
from memory.orchestrator.conversations.log.folding import BASE_EVERY, State
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.ports.record import Record, Stored

NEWEST = BASE_EVERY + 16
"""Events that are read at once to find the end of a log.

The newest event that carries the window is among them, unless one of them is damaged.
"""
REMEMBERED = 512
"""Events that are not read again unless they were edited."""
REMEMBERED_SIZE = 8_192
"""Characters of the largest message that is cached."""
REMEMBERED_FOR = timedelta(minutes=1)
IDS_REMEMBERED = 10_000


@dataclass(slots=True)
class LogSnapshot:
    """The state of a log, as a handle has seen it."""

    state: State
    events: dict[int, Event] = field(default_factory=dict)
    """The newest events by place, as they were last read.

    An event is removed once its edit is seen.
    """
    read_since: datetime = EPOCH
    """When the first of them was read."""
    as_of: datetime = EPOCH
    """When this state was last confirmed to be complete."""
    nonce: str = ""
    """The nonce of the newest event, to check that the event is still there.

    Empty if the event cannot be read.
    """
    gaps: Places = NOWHERE
    """Earlier places that were read and are empty, because their events were lost."""
    ids: dict[str, int] = field(default_factory=dict)
    """The places of all messages with a given id, from place `since` on."""
    since: int = FIRST_PLACE

    def take(self, event: Event) -> None:
        """Take in the next event of the log."""
        self.state, self.nonce = self.state.with_event(event), event.draft.nonce
        if event.type in (EventType.EDITED, EventType.ERASED):
            self._forget(event)
        self.keep(event)

    def pass_over(self, place: int) -> None:
        """Skip the next place of the log, whose event cannot be read."""
        self.state, self.nonce = self.state.past(place), ""

    def _forget(self, change: Event) -> None:
        """Remove a cached message that this event edits or erases."""
        data: Any = change.draft.data
        known = self.events.get(data["place"])
        if known is not None and ("version" not in data or known.version < data["version"]):
            del self.events[data["place"]]

    def keep(self, event: Event) -> None:
        """Cache the event, unless it is large or not final.

        The id that was given to its message is cached in any case.
        """
        message = event.draft.message
        if event.type is EventType.ERASED or event.is_redacted:
            gone = event.draft.data.get("place", event.place)
            self.ids = {name: place for name, place in self.ids.items() if place != gone}
        if (given := event.given_id) is not None:
            self.ids[given] = event.place
            if len(self.ids) > IDS_REMEMBERED:
                self.since = max(self.since, 1 + self.ids.pop(next(iter(self.ids))))
        large = event.draft.is_whole and event.draft.artifacts
        if message is not None and (not message.is_final or large or size_of(message) > REMEMBERED_SIZE):
            self.events.pop(event.place, None)
            return
        self.events[event.place] = event
        if len(self.events) > REMEMBERED + NEWEST:
            newest = sorted(self.events)[-REMEMBERED:]
            self.events = {
                place: self.events[place] for place in (*self.state.pinned, *newest) if place in self.events
            }

    def copy(self) -> LogSnapshot:
        return replace(self, events=dict(self.events), ids=dict(self.ids))

    def follows(self, earlier: LogSnapshot) -> None:
        """Reuse ids of an earlier state of the same log, if it reaches this one."""
        if earlier.state.place + 1 >= self.since > earlier.since:
            self.ids, self.since = earlier.ids | self.ids, earlier.since


def wanted_of(state: State, newest: int | None) -> list[int]:
    """Return the places of a window to read.

    With `newest`, these are the pinned places and that many of the newest.
    """
    if newest is None:
        return list(state.window)
    end = state.window.newest(newest)
    return sorted([*state.pinned.without(end), *end])


def edited_while_read(found: Mapping[int, Event]) -> list[int]:
    """Return the places of messages that were read before an edit that was read too.

    This can happen because stores read several keys one after the other.
    """
    edits: list[Any] = [event.draft.data for event in found.values() if event.type is EventType.EDITED]
    return [
        data["place"]
        for data in edits
        if data["place"] in found and found[data["place"]].version < data["version"]
    ]


def is_another(there: Stored | None, nonce: str) -> bool:
    """Return whether the event of this nonce is gone or replaced."""
    return there is None or (isinstance(there, Record) and there.body.get("nonce") != nonce)


def has_gap(rows: Sequence[Stored | None]) -> bool:
    """Return whether an empty place comes before a taken one.

    The rows are of consecutive places.
    """
    stands = [row is not None for row in rows]
    return any(later and not earlier for earlier, later in pairwise(stands))
