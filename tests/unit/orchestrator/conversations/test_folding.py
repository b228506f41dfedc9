"""What a log comes to: each event says what is true after it, and whoever begins at a
base knows what he knows who has read it all.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory.domain.ids import new_id
from memory.domain.message import Message, Role
from memory.domain.time import micros
from memory.orchestrator.conversations.log.events import Draft, Event, EventType, event_of, record_of
from memory.orchestrator.conversations.log.folding import BASE_EVERY, State
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.ports.contract.cells import cells

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCOPE = "conversation:s1"
LIFE = new_id("acme", SCOPE, micros(NOW))


def said(text: str = "hello", role: Role = Role.USER, **data: Any) -> Draft:
    return Draft(EventType.MESSAGE, Message(role=role, content=text), data, nonce="n")


def log_of(*drafts: Draft, now: datetime = NOW, system: bool = True) -> tuple[State, list[Event]]:
    state, events = State.initial(system, NOW), []
    for draft in drafts:
        event = state.next(draft, tenant="acme", incarnation=LIFE, now=now, version=1)
        events.append(event)
        state = state.with_event(event)
    return state, events


def test_a_new_session_has_its_system_message_and_nothing_else() -> None:
    state = State.initial(True, NOW)
    assert (
        state.after.number,
        state.after.version,
        state.after.turn,
        state.after.compactions,
        list(state.window),
    ) == (1, 1, 0, 0, [])
    assert State.initial(False, NOW).after.number == 0


def test_messages_are_numbered_densely_and_turns_begin_with_a_user() -> None:
    _, events = log_of(said(), said(role=Role.ASSISTANT), said(in_history=False), said())
    assert [event.number for event in events] == [2, 3, None, 4]
    assert [event.after.number for event in events] == [2, 3, 3, 4]
    assert [event.after.version for event in events] == [2, 3, 4, 5]
    assert [event.after.turn for event in events] == [1, 1, 2, 3]


def test_what_leaves_the_window_counts_a_version_and_no_message() -> None:
    out = Draft(EventType.EXCLUDE, data={"place": 2, "reason": "manual"})
    clear = Draft(EventType.CLEAR, data={"left": [[2, 3]], "reason": "manual"})
    state, events = log_of(said(), said(), out, Draft(EventType.RESTORE, data={"place": 2}), clear)
    assert [event.after.version for event in events] == [2, 3, 4, 5, 6]
    assert (state.after.number, list(state.window)) == (3, [])


def test_a_compaction_is_a_message_in_the_place_of_others() -> None:
    summary = Message(role=Role.SYSTEM, content="they greeted each other")
    state, events = log_of(said(), said(), said(), Draft(EventType.COMPACTION, summary, {"left": [[2, 3]]}))
    assert list(state.window) == [4, 5]
    assert (state.after.number, state.after.compactions, state.after.last_compaction) == (
        5,
        1,
        events[-1].key.id,
    )


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(days=-400)], ids=["right clock", "clock set back"])
def test_the_order_of_places_is_the_order_of_creation_whatever_the_clock_says(ahead: timedelta) -> None:
    _, events = log_of(*[said() for _ in range(5)], now=NOW + ahead)
    created = [event.created_at for event in events]
    assert created == sorted(set(created))


def pinned(events: dict[int, Event], place: int) -> bool:
    said = events[place].draft.message if place in events else None
    return said is not None and said.role is Role.SYSTEM


def drawn(chance: random.Random, state: State, events: dict[int, Event]) -> Draft:
    back = chance.randint(2, max(2, state.place))
    window = list(state.window)
    if not window or chance.random() < 0.6:
        return said(role=chance.choice(list(Role)), in_history=chance.random() < 0.9)
    some = Places.of(chance.sample(window, chance.randint(1, len(window)))).to_json()
    return chance.choice(
        [
            Draft(EventType.EXCLUDE, data={"place": chance.choice(window), "reason": "manual"}),
            Draft(EventType.RESTORE, data={"place": back, "pinned": pinned(events, back)}),
            Draft(EventType.CLEAR, data={"left": some, "reason": "manual"}),
            Draft(EventType.ROLL_BACK, data={"left": some, "reason": "manual"}),
            Draft(EventType.COMPACTION, Message(role=Role.SYSTEM, content="so far"), {"left": some}),
            Draft(EventType.CHECKPOINT, data={"name": "here"}),
            Draft(EventType.CLOSED, data={"status": chance.choice(["ended", "archived"])}),
            Draft(EventType.RESUMED),
        ]
    )


@cells("seed", range(10), shared=True)
def test_who_begins_at_a_base_knows_what_he_knows_who_has_read_it_all(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same logs in every run
    state, events = State.initial(True, NOW), dict[int, Event]()
    for _ in range(3 * BASE_EVERY):
        event = state.next(drawn(chance, state, events), tenant="acme", incarnation=LIFE, now=NOW, version=1)
        record = record_of(event, of_session={"conversation_id": "s1"}, scope=SCOPE, generation=0)
        assert event_of(record) == event, "what was stored is read"
        events[event.place] = event
        state = state.with_event(event)
        base = event.after.base
        assert event.place - base < BASE_EVERY
        if (window := events[base].window if base in events else Places()) is not None:
            from_base = State(
                base,
                events[base].after if base in events else state.after,
                window,
                NOW,
                events[base].pinned if base in events else NOWHERE,
            )
            for place in range(base + 1, event.place + 1):
                from_base = from_base.with_event(events[place])
            assert (from_base.window, from_base.pinned, from_base.after) == (
                state.window,
                state.pinned,
                event.after,
            )
        assert list(state.pinned) == [place for place in state.window if pinned(events, place)]
