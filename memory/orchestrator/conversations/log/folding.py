"""The fold of a log: its window and totals, event by event.

These functions are pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from memory.domain.message import Role
from memory.orchestrator.conversations.log.events import (
    EDITS,
    FIRST_PLACE,
    LEAVES,
    LEAVING,
    OF_ONE,
    SPOKEN,
    STATE,
    Draft,
    Event,
    EventType,
    LogTotals,
    place_key,
)
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.policies.window import is_pinned

BASE_EVERY = 64
"""Places after which an event carries the whole window again.

This limits how many events are read to know the window.
"""
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class State:
    """The state of a log up to a place."""

    place: int
    after: LogTotals
    window: Places
    """The places of the messages that a model receives, without the system message."""
    created_at: datetime
    """The creation time of the newest event.

    The next event's is later, so that events sort by creation in the order of their
    places.
    """
    pinned: Places = NOWHERE
    """The places of the window that are shown regardless of the budget.

    These are summaries and messages with a system role.
    """

    @classmethod
    def initial(cls, has_system: bool, created_at: datetime) -> State:
        """Return the state before the first event."""
        return cls(FIRST_PLACE - 1, LogTotals(number=int(has_system), version=1), Places(), created_at)

    def next(self, draft: Draft, *, tenant: str, incarnation: str, now: datetime, version: int) -> Event:
        """Return the event that this draft becomes at the next place."""
        place = self.place + 1
        window = window_after(self.window, place, draft)
        pinned = pinned_after(self.pinned, window, place, draft)
        after, said = self.after, draft.message
        carries = place % BASE_EVERY == 0 or draft.type in LEAVING - OF_ONE
        key = place_key(tenant, incarnation, place)
        compacts = draft.type is EventType.COMPACTION
        if said is not None and said.id is None:
            draft = replace(draft, message=said.model_copy(update={"id": key.id}))
        return Event(
            key,
            place,
            draft,
            replace(
                after,
                number=after.number + draft.counts,
                version=after.version + (window != self.window or EDITS in draft.data),
                turn=after.turn
                + (said is not None and said.role is Role.USER and draft.type is EventType.MESSAGE),
                compactions=after.compactions + compacts,
                last_compaction=key.id if compacts else after.last_compaction,
                status=_status_after(after.status, draft),
                base=place if carries else after.base,
                tokens=after.tokens + (draft.tokens or 0),
                exited_until=place
                if draft.type is EventType.CLOSED and LEAVES in draft.data
                else after.exited_until,
                state_place=place if STATE in draft.data else after.state_place,
                state_version=max(version, after.state_version + 1)
                if STATE in draft.data
                else after.state_version,
            ),
            max(self.created_at + _TICK, now),
            now,
            version,
            window if carries else None,
            pinned if carries else NOWHERE,
            owed=draft.owed,
        )

    def with_event(self, event: Event) -> State:
        """Return the state after this event, which must be the next one."""
        if event.window is not None:
            return State(event.place, event.after, event.window, event.created_at, event.pinned)
        window = window_after(self.window, event.place, event.draft)
        return State(
            event.place,
            event.after,
            window,
            event.created_at,
            pinned_after(self.pinned, window, event.place, event.draft),
        )

    def past(self, place: int) -> State:
        """Return the state after a place whose event cannot be read.

        Only the place is known to be taken. The event may be a message, so its number
        is not given again.
        """
        return replace(
            self,
            place=place,
            after=replace(self.after, number=self.after.number + 1),
            created_at=self.created_at + _TICK,
        )


def window_after(window: Places, place: int, draft: Draft) -> Places:
    """Return the window after this draft is stored at the place."""
    data: Any = draft.data
    match draft.type:
        case EventType.MESSAGE:
            return window.with_one(place)
        case EventType.EXCLUDE | EventType.ERASED:
            return window.without(left_by(draft))
        case EventType.RESTORE:
            return window.with_one(data["place"])
        case EventType.CLEAR | EventType.REPLACE:
            return window.without(left_by(draft))
        case EventType.ROLL_BACK:
            return window.without(left_by(draft)).with_all(back_by(draft))
        case EventType.COMPACTION:
            return window.without(left_by(draft)).with_one(place)
        case _:
            return window


def pinned_after(pinned: Places, window: Places, place: int, draft: Draft) -> Places:
    """Return the pinned places after this draft is stored at the place."""
    data: Any = draft.data
    if draft.type is EventType.COMPACTION or (
        draft.type is EventType.MESSAGE and draft.message is not None and is_pinned(draft.message)
    ):
        pinned = pinned.with_one(place)
    elif draft.type is EventType.RESTORE and data.get("pinned"):
        pinned = pinned.with_one(data["place"])
    elif draft.type is EventType.ROLL_BACK:
        pinned = pinned.with_all(Places.from_json(data.get("pinned", ())))
    return pinned.both(window) if draft.type in LEAVING else pinned


def left_by(draft: Draft) -> Places:
    """Return the places of the messages that this takes out of the window."""
    data: Any = draft.data
    if draft.type in (EventType.EXCLUDE, EventType.ERASED):
        return Places.of([data["place"]])
    return Places.from_json(data["left"]) if draft.type in LEAVING and "left" in data else Places()


def back_by(draft: Draft) -> Places:
    """Return the places of the messages that a roll-back returns to the window.

    Later compactions had taken them out.
    """
    data: Any = draft.data
    return Places.from_json(data.get("back", ())) if draft.type is EventType.ROLL_BACK else NOWHERE


def late_by(draft: Draft) -> Places:
    """Return the places of later messages that a roll-back takes back.

    Later compactions had taken them out of the window already.
    """
    data: Any = draft.data
    return Places.from_json(data.get("late", ())) if draft.type is EventType.ROLL_BACK else NOWHERE


def _status_after(status: str, draft: Draft) -> str:
    if draft.type is EventType.CLOSED:
        return str(draft.data["status"])
    return "active" if draft.type is EventType.RESUMED else status


def is_spoken(event: Event) -> bool:
    """Return whether the event is a message."""
    return event.type in SPOKEN
