"""An append whose answer is lost is made once, also without ids, however often its
caller repeats it.
"""

from __future__ import annotations

import pytest

from memory.domain.errors import StoreUnavailable
from memory.orchestrator.conversations.conversation import Conversation
from tests.unit.orchestrator.conversations.talking import answer, begun, calling, opened, told, user
from tests.unit.orchestrator.world import World


async def _texts(session: Conversation) -> list[str]:
    return [message.text for message in (await session.context()).messages][1:]


async def test_an_answer_that_is_lost_once_is_no_error(world: World) -> None:
    session = await begun(world.engine)

    async def loses() -> None:
        raise StoreUnavailable("mid", "the answer was lost")

    world.mid.after["log.append"] = loses
    (stored,) = await session.append([user("hello")])
    assert await told(session) == ["system", stored.id]


@pytest.mark.parametrize("lost", ["the answer", "the call"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("meanwhile", [False, True], ids=["alone", "others write meanwhile"])
async def test_a_repeat_of_what_may_be_there_is_not_said_twice(
    world: World, lost: str, batch: int, meanwhile: bool
) -> None:
    session = await begun(world.engine)
    other = await opened(await world.another_process())
    said = [user(f"more {n}") for n in range(batch)]
    for _ in range(2):
        (world.mid.fails_after if lost == "the answer" else world.mid.fails_before).add("log.append")
        for _ in range(1 if lost == "the answer" else 2):
            with pytest.raises(StoreUnavailable):
                await session.append(said)
        world.heal()
        if meanwhile:
            await other.append([user("by another")])
            await session.context()
        stored = await session.append(said)
        assert [message.text for message in stored] == [message.text for message in said]
    expected = [message.text for message in said] * 2 + ["by another"] * 2 * meanwhile
    for handle in (session, other):
        assert sorted(await _texts(handle)) == sorted(expected)


async def test_the_same_that_is_said_twice_on_purpose_is_there_twice(world: World) -> None:
    session = await begun(world.engine)
    world.mid.fails_after.add("log.append")
    with pytest.raises(StoreUnavailable):
        await session.append([user("yes")])
    world.heal()
    for _ in range(3):
        await session.append([user("yes")])
    assert await _texts(session) == ["yes"] * 3


async def test_something_else_that_is_said_next_is_no_repeat(world: World) -> None:
    session = await begun(world.engine)
    world.mid.fails_after.add("log.append")
    with pytest.raises(StoreUnavailable):
        await session.append([user("yes")])
    world.heal()
    await session.append([user("no")])
    assert await _texts(session) == ["yes", "no"]


async def test_what_was_undone_meanwhile_is_done_again(world: World) -> None:
    session, other = await begun(world.engine), await opened(await world.another_process())
    await session.append([user("hello", "u1")])
    world.mid.fails_after.add("log.append")
    with pytest.raises(StoreUnavailable):
        await session.exclude("u1", "manual")
    world.heal()
    assert await other.restore("u1")
    await session.context()
    assert await session.exclude("u1", "manual")
    assert await _texts(other) == []


async def test_a_late_answer_to_a_call_is_said_once_and_what_was_made_up_for_it_goes(world: World) -> None:
    session = await begun(world.engine)
    await session.append([calling("c1", message_id="a1"), user("go on", "u1")])
    await session.repair_tool_calls()
    world.mid.fails_after.add("log.append")
    with pytest.raises(StoreUnavailable):
        await session.append([answer("c1", "found after all")])
    world.heal()
    await session.context()
    await session.append([answer("c1", "found after all")])
    assert await _texts(session) == ["", "found after all", "go on"]
    assert (await session.context()).invalid == []
