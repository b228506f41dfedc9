"""The store of a log that does not answer, and one that was set back to an earlier
moment.
"""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.errors import NotFound, StoreUnavailable
from memory.domain.message import Message
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.log.seen import REMEMBERED_FOR, REMEMBERED_SIZE
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import MESSAGES
from memory.policies.context import ContextRequest
from memory.ports.record import Key
from tests.unit.orchestrator.conversations.talking import SYSTEM, begun, hits_of, opened, told, user, window
from tests.unit.orchestrator.world import TENANT, Flaky, World


async def shown(session: Conversation, **asked: Any) -> tuple[list[str], bool]:
    """The ids of what is shown, and whether it is said that the store did not answer."""
    context = await session.context(ContextRequest(**asked))
    assert all("store 'mid'" in said for said in context.degraded)
    return [str(message.id) for message in context.messages], bool(context.degraded)


async def opened_anew(engine: Engine) -> Conversation:
    return await engine.conversations.open(TENANT, SessionDraft("s1"), create=True)


# -- away ------------------------------------------------------------------------------


async def test_while_the_store_is_down_the_window_is_what_was_last_seen_and_says_so(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(f"m{n}", f"m{n}") for n in range(3)])
    await (await opened(await world.another_process())).append([user("by another", "m3")])
    everything = ["system", "m0", "m1", "m2", "m3"]
    assert await shown(session) == (everything, False)
    world.mid.down = True
    assert await shown(session) == (everything, True)
    assert await shown(await opened_anew(world.engine), last=2) == (["system", "m2", "m3"], True)
    history, said = session.history(HistoryQuery()), session.append([user("lost")])
    for call in (said, history, session.info(), hits_of(session, "m1", 5), session.exclude("m1", "manual")):
        with pytest.raises(StoreUnavailable):
            await call
    world.heal()
    assert await shown(session) == (everything, False)


async def test_what_was_said_here_just_before_the_store_went_down_is_shown(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user("first", "m1")])
    await session.update("m1", {"content": "changed"})
    await session.update("system", {"content": "You are brief."})
    world.mid.down = True
    context = await session.context()
    assert ([message.text for message in context.messages], len(context.degraded)) == (
        ["You are brief.", "changed"],
        1,
    )


async def test_what_was_last_seen_more_than_a_minute_ago_is_not_shown(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user("first", "m1")])
    world.clock.advance(REMEMBERED_FOR * 0.9)
    assert await shown(session) == (["system", "m1"], False)
    world.mid.down = True
    world.clock.advance(REMEMBERED_FOR * 0.9)
    assert await shown(session) == (["system", "m1"], True), (
        "it was seen within the minute, though what it says was read before"
    )
    world.heal()
    await session.append([user("second", "m2")])
    world.mid.down = True
    world.clock.advance(REMEMBERED_FOR * 0.9)
    assert await shown(session) == (["system", "m1", "m2"], True), "who appends sees that nobody else did"
    world.heal()
    assert await world.engine.conversations.find(TENANT, "s1")
    world.mid.down = True
    world.clock.advance(REMEMBERED_FOR * 0.2)
    with pytest.raises(StoreUnavailable):
        await session.context()
    world.clock.advance(REMEMBERED_FOR)
    with pytest.raises(StoreUnavailable):
        await opened_anew(world.engine)


async def test_what_is_not_at_hand_is_not_left_out_in_silence(world: World) -> None:
    """A large message is not remembered: what lies behind it is shown where that is all
    that is asked for.
    """
    session = await begun(world.engine)
    await session.append(
        [
            user("first", "m1"),
            user("x" * (REMEMBERED_SIZE + 1), "large"),
            *[user(f"n{n}", f"n{n}") for n in range(4)],
        ]
    )
    await session.context()
    world.mid.down = True
    assert await shown(session, last=2) == (["system", "n2", "n3"], True)
    for asked in ({}, {"last": 6}, {"last": 2, "layered": True}):
        with pytest.raises(StoreUnavailable):
            await shown(session, **asked)


async def test_a_process_that_has_not_read_the_session_shows_nothing_of_it(world: World) -> None:
    await (await begun(world.engine)).append([user("first", "m1")])
    other = await world.another_process()
    world.mid.down = True
    with pytest.raises(StoreUnavailable):
        await opened_anew(other)


async def test_a_session_deleted_here_is_not_shown_from_memory(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user("first", "m1")])
    await session.context()
    await world.engine.conversations.sessions.delete(TENANT, "s1")
    world.mid.down = True
    with pytest.raises(StoreUnavailable):
        await session.context()


async def test_a_session_that_has_expired_is_not_shown_from_memory(world: World) -> None:
    session = await world.engine.conversations.create(
        TENANT, SessionDraft("s1", SYSTEM, expires_at=REMEMBERED_FOR / 2)
    )
    await session.append([user("first", "m1")])
    world.mid.down = True
    assert await shown(session) == (["system", "m1"], True)
    world.clock.advance(REMEMBERED_FOR * 0.6)
    with pytest.raises(StoreUnavailable):
        await session.context()


# -- set back --------------------------------------------------------------------------


class Backup:
    """What a store held at a moment."""

    def __init__(self, store: Flaky) -> None:
        self._store, self._held = store, copy.deepcopy(vars(store.state))

    def bring_back(self) -> None:
        vars(self._store.state).update(copy.deepcopy(self._held))


def said(*names: str) -> list[Message]:
    return [user(name, name) for name in names]


async def test_a_handle_that_remembers_more_than_a_store_that_was_set_back_goes_on_from_what_that_has(
    world: World,
) -> None:
    session = await begun(world.engine)
    await session.append(said("m1", "m2"))
    backup = Backup(world.mid)
    await session.append(said("m3", "m4", "m5"))
    assert (await session.info()).gaps == []
    backup.bring_back()
    assert await window(session) == ["system", "m1", "m2"]
    info = await session.info()
    assert (info.gaps, info.message_count) == ([(4, 6)], 3)
    await session.append(said("m6"))
    for handle in (session, await opened(await world.another_process())):
        assert await window(handle) == await told(handle) == ["system", "m1", "m2", "m6"]
    assert (await session.info()).gaps == [(4, 6)], (
        "that something else stands at one of the places by now brings nothing back"
    )


async def test_one_whose_newest_place_another_has_taken_since_notices_that_too(world: World) -> None:
    session = await begun(world.engine)
    await session.append(said("m1"))
    backup = Backup(world.mid)
    await session.append(said("m2", "m3"))
    backup.bring_back()
    other = await opened(await world.another_process())
    await other.append(said("n2", "n3"))
    await session.context(ContextRequest(last=1))
    assert await window(session) == await window(other) == ["system", "m1", "n2", "n3"]
    await session.append(said("m4"))
    assert await window(other) == ["system", "m1", "n2", "n3", "m4"]
    assert (await session.info()).gaps == [(4, 4)]


async def test_a_gap_that_a_writer_left_which_did_not_look_is_told_by_whoever_reads_and_never_filled(
    world: World,
) -> None:
    session = await begun(world.engine)
    await session.append(said("m1"))
    backup = Backup(world.mid)
    stays = await opened(await world.another_process())
    assert await window(stays) == ["system", "m1"]
    await session.append(said("m2", "m3"))
    backup.bring_back()
    assert await window(stays) == ["system", "m1"]
    await session.append(said("m4"))  # at the place behind those that are gone
    fresh = await opened(await world.another_process())
    for handle in (stays, fresh):
        assert await window(handle) == ["system", "m1", "m4"]
        assert (await handle.info()).gaps == [(3, 4)]
    await stays.append(said("m5"))
    assert await told(fresh) == ["system", "m1", "m4", "m5"]
    assert (await fresh.info()).gaps == [(3, 4)]


async def test_what_cannot_be_read_is_no_gap(world: World) -> None:
    session = await begun(world.engine)
    await session.append(said("m1", "m2", "m3"))
    for place in (3, 4):
        world.mid.state.damage(MESSAGES.name, Key(TENANT, session.log.key(place)))
    await session.exclude("m1", "manual")
    assert (await session.info()).gaps == []
    assert (await (await opened(await world.another_process())).info()).gaps == []


@pytest.mark.parametrize(
    "later", [timedelta(0), timedelta(days=400)], ids=["at once", "when its tombstones are gone too"]
)
async def test_a_session_that_was_deleted_is_not_taken_for_one_whose_store_was_set_back(
    world: World, later: timedelta, caplog: pytest.LogCaptureFixture
) -> None:
    session = await begun(world.engine)
    await session.append(said("m1"))
    other = await world.another_process()
    await other.conversations.sessions.delete(TENANT, "s1")
    world.clock.advance(later)
    await other.maintenance.sweep()
    with pytest.raises(NotFound):
        await session.context()
    assert session.log.gaps.ranges == ()
    assert "set back" not in caplog.text
