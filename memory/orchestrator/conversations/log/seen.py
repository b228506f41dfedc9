"""What a process has seen of a session's log, and remembers: a read is of what came
since.
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
"""Events read at once to know the end of a log: the newest that carries the window is
among them, unless one of them is damaged.
"""
REMEMBERED = 512
"""Events that are not read again unless they were edited."""
REMEMBERED_SIZE = 8_192
"""Characters of the largest message that is remembered."""
REMEMBERED_FOR = timedelta(minutes=1)
IDS_REMEMBERED = 10_000


@dataclass(slots=True)
class LogSnapshot:
    """What a handle has seen of the log."""

    state: State
    events: dict[int, Event] = field(default_factory=dict)
    """The newest ones, by place, as they were when they were last read: one that was
    edited since goes when that is seen.
    """
    read_since: datetime = EPOCH
    """When the first of them was read."""
    as_of: datetime = EPOCH
    """When this was last seen to be all there is."""
    nonce: str = ""
    """Of the newest event: tells whether that stands there still. Empty where what
    stands there cannot be read.
    """
    gaps: Places = NOWHERE
    """Places before it, as far as was read, at which nothing stands: what stood there
    was lost.
    """
    ids: dict[str, int] = field(default_factory=dict)
    """The places of the messages that were given ids of their own: of all of them, from
    place `since` on.
    """
    since: int = FIRST_PLACE

    def take(self, event: Event) -> None:
        """The next event of the log."""
        self.state, self.nonce = self.state.with_event(event), event.draft.nonce
        if event.type in (EventType.EDITED, EventType.ERASED):
            self._forget(event)
        self.keep(event)

    def pass_over(self, place: int) -> None:
        """The next place of the log, at which what stands cannot be read."""
        self.state, self.nonce = self.state.past(place), ""

    def _forget(self, change: Event) -> None:
        """What was remembered of a message that says something else, or nothing, since
        this version of it.
        """
        data: Any = change.draft.data
        known = self.events.get(data["place"])
        if known is not None and ("version" not in data or known.version < data["version"]):
            del self.events[data["place"]]

    def keep(self, event: Event) -> None:
        """Remember the event, unless it is large or not final, and in any case the id
        that was given to its message.
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
        """What was seen earlier of the same log, up to where this begins, holds still."""
        if earlier.state.place + 1 >= self.since > earlier.since:
            self.ids, self.since = earlier.ids | self.ids, earlier.since


def wanted_of(state: State, newest: int | None) -> list[int]:
    """The places of a window that are read; where not all are, the pinned ones and so
    many of the newest.
    """
    if newest is None:
        return list(state.window)
    end = state.window.newest(newest)
    return sorted([*state.pinned.without(end), *end])


def edited_while_read(found: Mapping[int, Event]) -> list[int]:
    """Places of messages that were read before an edit of which is told among what was
    read: stores read several keys one after the other.
    """
    edits: list[Any] = [event.draft.data for event in found.values() if event.type is EventType.EDITED]
    return [
        data["place"]
        for data in edits
        if data["place"] in found and found[data["place"]].version < data["version"]
    ]


def is_another(there: Stored | None, nonce: str) -> bool:
    """Whether at a place where the event of this nonce stood nothing does, or another."""
    return there is None or (isinstance(there, Record) and there.body.get("nonce") != nonce)


def has_gap(rows: Sequence[Stored | None]) -> bool:
    """Whether at one of these places, which follow each other, nothing stands, and at a
    later one something.
    """
    stands = [row is not None for row in rows]
    return any(later and not earlier for earlier, later in pairwise(stands))
