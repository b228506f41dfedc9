"""The history of a session: its messages by number, each with its state."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.domain.ids import is_id
from memory.domain.message import Message
from memory.domain.session import HistoryItem, HistoryPage
from memory.orchestrator.conversations.log.events import (
    BEHIND_ERASED,
    ERASED,
    LEAVES,
    LEAVING,
    Event,
    EventType,
)
from memory.orchestrator.conversations.log.folding import back_by, late_by, left_by
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.sessions import system_of
from memory.orchestrator.storage.collections import MESSAGES
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.ports.concurrency import both_at_once
from memory.ports.query import (
    And,
    Condition,
    Eq,
    Ge,
    Gt,
    In,
    IsNull,
    Le,
    Lt,
    Not,
    Or,
    Order,
    Query,
    all_of,
    within,
)
from memory.ports.record import Key, Record


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """A query for messages of a history.

    It selects by ids, numbers and roles, and by the compaction that took them out of
    the window.
    """

    ids: Sequence[str] | None = None
    first: int | None = None
    last: int | None = None
    roles: Sequence[str] = ()
    summaries: bool = True
    archived_by: str | None = None
    descending: bool = False
    limit: int = 100
    offset: int = 0
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class WindowExit:
    """The reason why a message is not in the window."""

    excluded: str | None = None
    archived_by: str | None = None
    is_by_hand: bool = False
    """Whether a caller took it out by an exclude, clear, roll-back or erasure.

    Otherwise it was a cut or a replacement.
    """
    cut_by: int | None = None
    """The place of the first compaction, cut or replacement that took it out.

    It stays set if the message has returned since.
    """


_IN_IT = WindowExit()
BEHIND_SYSTEM, ONLY_SYSTEM = "behind-system", "only-system"
"""Cursors of pages that end at the system message, which is in no log.

After the first comes all of the log; after the second only the system message.
"""


class History:
    """Pages of one log."""

    def __init__(self, placement: Placement, log: Log) -> None:
        self._placement = placement
        self._log = log

    async def page(
        self, asked: HistoryQuery, record: Coroutine[Any, Any, Record]
    ) -> tuple[Record, HistoryPage]:
        """Return the session's record and a page of its history, read together.

        The system message has number 1.
        """
        told, ((events, cursor), window) = await both_at_once(record, self._read(asked))
        first = self._system_item(asked, system_of(told))
        leads = first is not None and self._leads(asked)
        shown = await self._log.whole(events[max(0, asked.offset - leads) :])
        left = [event for event in shown if event.place not in window]
        gone = dict(zip([event.place for event in left], await self.window_exits(left), strict=True))
        items = [item_of(event, gone.get(event.place, _IN_IT)) for event in shown]
        if first is not None and leads and asked.offset == 0:
            items.insert(0, first)
        elif first is not None and asked.descending and cursor is None:
            if len(events) >= asked.offset + asked.limit:
                cursor = ONLY_SYSTEM
            elif len(events) >= asked.offset:
                items.append(first)
        return told, HistoryPage(items, cursor)

    async def _read(self, asked: HistoryQuery) -> tuple[tuple[list[Event], str | None], Places]:
        return await both_at_once(self._events(asked), self._window())

    async def _window(self) -> Places:
        """Return the places of the window, if this process has seen the log before.

        This reads only the newer events.
        """
        return NOWHERE if self._log.snapshot is None else (await self._log.load()).state.window

    async def _events(self, asked: HistoryQuery) -> tuple[list[Event], str | None]:
        """Return the messages of a page, and the cursor of the next page.

        They include those before the page's offset.
        """
        conditions = await self._conditions(asked)
        if conditions is None or asked.cursor == ONLY_SYSTEM:
            return [], None
        order = (Order("created_at", descending=asked.descending),)
        wanted = asked.offset + asked.limit - self._leads(asked)
        events: list[Event] = []
        cursor, more = None if asked.cursor == BEHIND_SYSTEM else asked.cursor, True
        while more:
            query = Query(
                MESSAGES,
                within(self._log.life.partition),
                conditions,
                order,
                min(max(1, wanted - len(events)), 1_000),
                cursor=cursor,
            )
            page = await self._placement.page("history.read", self._log.store, query)
            events += self._log.events_of(page.records)
            cursor = page.cursor
            more = cursor is not None and len(events) < wanted
        if not wanted and events:
            events, cursor = [], BEHIND_SYSTEM
        return events, cursor

    def _leads(self, asked: HistoryQuery) -> bool:
        """Return whether the system message comes first."""
        return (
            self._log.life.has_system
            and _names_system(asked)
            and not asked.descending
            and asked.cursor is None
        )

    def _system_item(self, asked: HistoryQuery, system: Message | None) -> HistoryItem | None:
        """Return the system message as an item, if the query selects it."""
        at = self._log.life.created_at
        return None if system is None or not _names_system(asked) else HistoryItem(system, 1, 0, at, at)

    async def _conditions(self, asked: HistoryQuery) -> Condition | None:
        """Return the condition on the log's records; None if none can match."""
        parts: list[Condition] = [
            Eq("conversation_id", self._log.life.session_id),
            Not(IsNull("number_in_conversation")),
        ]
        if not asked.summaries:
            parts.append(Eq("event", EventType.MESSAGE.value))
        if asked.first is not None:
            parts.append(Ge("number_in_conversation", asked.first))
        if asked.last is not None:
            parts.append(Le("number_in_conversation", asked.last))
        if asked.roles:
            parts.append(In("message_role", tuple(asked.roles)))
        if asked.ids is not None:
            without_id = Or(
                (IsNull("message_id"), And((Ge("message_id", ERASED), Lt("message_id", BEHIND_ERASED))))
            )
            unnamed = And((without_id, In("id", tuple(filter(is_id, asked.ids)))))
            parts.append(Or((In("message_id", tuple(asked.ids)), unnamed)))
        if asked.archived_by is not None:
            compaction = await self._log.find(asked.archived_by, redacted=True)
            if compaction is None or compaction.type is not EventType.COMPACTION:
                return None
            ranges = (await self._still_left_by(compaction)).ranges
            if not ranges:
                return None
            parts.append(Or(tuple([And((Ge("place", low), Le("place", high))) for low, high in ranges])))
        return all_of(*parts)

    async def _still_left_by(self, compaction: Event) -> Places:
        """Return the places that it took out, without those of later roll-backs."""
        left, later = left_by(compaction.draft), Gt("place", compaction.place)
        rolled_back = Eq("event", EventType.ROLL_BACK.value)
        async for event in self._log.events_where("history.marks", rolled_back, later):
            left = left.without(back_by(event.draft)).without(late_by(event.draft))
        return left

    async def window_exits(self, events: Sequence[Event]) -> list[WindowExit]:
        """Return the state of each of these messages."""
        found = await window_exits_of(self._placement, [(self._log, events)])
        return [found[event.key] for event in events]


def _names_system(asked: HistoryQuery) -> bool:
    """Return whether the query selects the system message."""
    if asked.archived_by is not None or (asked.first or 1) > 1 or (asked.last is not None and asked.last < 1):
        return False
    return (asked.ids is None or "system" in asked.ids) and (not asked.roles or "system" in asked.roles)


async def window_exits_of(
    placement: Placement, logs: Sequence[tuple[Log, Sequence[Event]]]
) -> dict[Key, WindowExit]:
    """Return the states of messages of several logs, by their keys.

    One query reads the later events of all logs.
    """
    found = {
        log.life.session_id: (log, {event.place: _IN_IT for event in events})
        for log, events in logs
        if events
    }
    if not found:
        return {}
    names = tuple([event.value for event in LEAVING])
    behind = [
        And((Eq("conversation_id", of), In("event", names), Gt("place", min(places))))
        for of, (_, places) in found.items()
    ]
    asked: Condition = behind[0] if len(behind) == 1 else Or(tuple(behind))
    log = logs[0][0]
    query = Query(
        MESSAGES,
        within(*[log.life.partition for log, _ in found.values()]),
        asked,
        (Order("created_at"),),
        placement.settings.page,
    )
    async for page in placement.pages("history.marks", log.store, query):
        for record in page.records:
            if isinstance(record, Record):
                of, places = found[str(record.fields["conversation_id"])]
                for event in of.events_of([record]):
                    _mark(places, event)
    return {event.key: found[log.life.session_id][1][event.place] for log, events in logs for event in events}


def _mark(found: dict[int, WindowExit], event: Event) -> None:
    """Update the states by an event."""
    data: Mapping[str, Any] = event.draft.data
    if event.type is EventType.RESTORE:
        if data["place"] in found:
            found[data["place"]] = WindowExit(cut_by=found[data["place"]].cut_by)
        return
    left, back = left_by(event.draft).with_all(late_by(event.draft)), back_by(event.draft)
    cut = (
        Places.from_json(data.get(LEAVES, ()))
        if event.type in (EventType.REPLACE, EventType.COMPACTION)
        else NOWHERE
    )
    for place, before in found.items():
        if place in back:
            found[place] = WindowExit(cut_by=before.cut_by)
        elif place in left:
            cut_by = event.place if before.cut_by is None and place in cut else before.cut_by
            if event.type is EventType.COMPACTION:
                found[place] = WindowExit(archived_by=event.key.id, cut_by=cut_by)
            else:
                by_hand = event.type is not EventType.REPLACE
                found[place] = WindowExit(
                    excluded=str(data.get("reason", "manual")), is_by_hand=by_hand, cut_by=cut_by
                )


def item_of(event: Event, gone: WindowExit) -> HistoryItem:
    message = event.message
    assert message is not None  # noqa: S101 - only messages are in a history
    return HistoryItem(
        message,
        event.number or 0,
        event.after.turn,
        event.created_at,
        event.updated_at,
        event.type is EventType.COMPACTION,
        gone.excluded,
        gone.archived_by,
        event.is_redacted,
    )
