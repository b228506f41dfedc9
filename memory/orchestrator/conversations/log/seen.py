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
"""How many events are cached. A cached event is read again only if it was edited."""
REMEMBERED_SIZE = 8_192
"""Characters of the largest message that is cached."""
REMEMBERED_FOR = timedelta(minutes=1)
IDS_REMEMBERED = 10_000
NONCES_REMEMBERED = 512
EDITS_REMEMBERED = 1_000
_ANY_VERSION = 2**63
"""The version that an erasure tells: no text of the message is current."""


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
    edits: dict[int, int] = field(default_factory=dict)
    """The version that the events from `complete_from` on tell of edited messages, by
    place.
    """
    complete_from: int = FIRST_PLACE
    """The place from which on all events were read."""
    nonces: dict[int, str] = field(default_factory=dict)
    """The nonces of the newest events, by place."""
    copied_since: datetime | None = None
    """When the oldest event from a copy of the window was read from the log."""

    @property
    def origin(self) -> datetime:
        """When the oldest of the cached events was read from the log."""
        return self.read_since if self.copied_since is None else min(self.read_since, self.copied_since)

    def take(self, event: Event) -> None:
        """Take in the next event of the log."""
        self.state, self.nonce = self.state.with_event(event), event.draft.nonce
        if event.type in (EventType.EDITED, EventType.ERASED):
            self._forget(event)
        self.keep(event)

    def pass_over(self, place: int) -> None:
        """Skip the next place of the log, whose event cannot be read."""
        self.state, self.nonce = self.state.past(place), ""
        self.edits, self.complete_from = {}, place + 1

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
        self._note(event)
        if event.type is EventType.ERASED or event.is_redacted:
            gone = event.draft.data.get("place", event.place)
            self.ids = {name: place for name, place in self.ids.items() if place != gone}
        if (given := event.given_id) is not None:
            self.ids[given] = event.place
            if len(self.ids) > IDS_REMEMBERED:
                self.since = max(self.since, 1 + self.ids.pop(next(iter(self.ids))))
        if not is_cacheable(event):
            self.events.pop(event.place, None)
            return
        self.events[event.place] = event
        if len(self.events) > REMEMBERED + NEWEST:
            newest = sorted(self.events)[-REMEMBERED:]
            self.events = {
                place: self.events[place] for place in (*self.state.pinned, *newest) if place in self.events
            }

    def _note(self, event: Event) -> None:
        """Remember the nonce of the event, and the version that an edit tells."""
        self.nonces[event.place] = event.draft.nonce
        if len(self.nonces) > 2 * NONCES_REMEMBERED:
            self.nonces = {place: self.nonces[place] for place in sorted(self.nonces)[-NONCES_REMEMBERED:]}
        if event.type in (EventType.EDITED, EventType.ERASED):
            data: Any = event.draft.data
            told = data.get("version", _ANY_VERSION)
            self.edits[data["place"]] = max(told, self.edits.get(data["place"], 0))
            if len(self.edits) > EDITS_REMEMBERED:
                self.edits, self.complete_from = {}, self.state.place + 1

    def current_of(self, events: Mapping[int, Event]) -> dict[int, Event]:
        """Return the events that no known event says were edited or erased since."""
        return {place: event for place, event in events.items() if event.version >= self.edits.get(place, 0)}

    def take_copy(self, copy: WindowCopy) -> dict[int, Event] | None:
        """Return the events of a copy of the window that are current; cache the newest.

        Returns None if the events read from the log do not reach back to the copy.

        Raises:
            ForeignCopy: The log has another event at the place of the copy.
        """
        nonce = self.nonces.get(copy.place)
        if copy.place > self.state.place or self.complete_from > copy.place + 1 or not nonce:
            return None
        if nonce != copy.nonce:
            raise ForeignCopy(copy.place)
        found = self.current_of(copy.events)
        newest = dict(sorted(found.items())[-REMEMBERED:])
        pinned = {place: found[place] for place in self.state.pinned if place in found}
        self.events = {**pinned, **newest, **self.events}
        self.copied_since = min(copy.read_since, self.copied_since or copy.read_since)
        return found

    def copy(self) -> LogSnapshot:
        return replace(
            self,
            events=dict(self.events),
            ids=dict(self.ids),
            edits=dict(self.edits),
            nonces=dict(self.nonces),
        )

    def follows(self, earlier: LogSnapshot) -> None:
        """Reuse ids of an earlier state of the same log, if it reaches this one."""
        if earlier.state.place + 1 >= self.since > earlier.since:
            self.ids, self.since = earlier.ids | self.ids, earlier.since


class ForeignCopy(Exception):
    """A copy of a window is of another course of its log, as after a restore."""


@dataclass(frozen=True, slots=True)
class WindowCopy:
    """Messages of a window, as a reader left them in a store of the short tier."""

    place: int
    """The newest place of the log when they were read."""
    nonce: str
    """The nonce of the event at this place."""
    version: int
    read_since: datetime
    """When the oldest of them was read from the log."""
    events: Mapping[int, Event]
    read: int = 0
    """The number of messages that the reader had, including those not in the copy."""


def is_cacheable(event: Event) -> bool:
    """Return whether the event may be cached: its message is final and not large."""
    message = event.draft.message
    large = event.draft.is_whole and event.draft.artifacts
    return message is None or (message.is_final and not large and size_of(message) <= REMEMBERED_SIZE)


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
