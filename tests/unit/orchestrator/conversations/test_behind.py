"""Nothing is refused, or said to be done already, by what a process remembers of a log:
others may have changed it since.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from memory.domain.errors import Conflict
from memory.orchestrator.conversations.conversation import Conversation
from tests.unit.orchestrator.conversations.talking import answer, begun, calling, marks, opened, user, window
from tests.unit.orchestrator.world import World

Done = Callable[[Conversation], Awaitable[object]]


async def _two(world: World) -> tuple[Conversation, Conversation]:
    """The session as two processes have it, which both know what was said."""
    ours = await begun(world.engine)
    await ours.append([user("one", "u1"), user("two", "u2")])
    theirs = await opened(await world.another_process())
    await theirs.context()
    return ours, theirs


@pytest.mark.parametrize("seen", [True, False], ids=["who saw it end", "who was away all the time"])
async def test_a_session_that_another_process_resumed_is_appended_to(world: World, seen: bool) -> None:
    ours, theirs = await _two(world)
    await ours.close("ended")
    if seen:
        await theirs.context()
    await ours.resume()
    await theirs.append([user("three", "u3")])
    assert await window(ours) == ["system", "u1", "u2", "u3"]


async def test_a_session_that_has_ended_refuses_what_is_said_by_who_does_not_know(world: World) -> None:
    ours, theirs = await _two(world)
    await ours.close("ended")
    with pytest.raises(Conflict, match="is ended"):
        await theirs.append([user("three", "u3")])


async def test_a_message_that_is_there_can_be_told_again_after_the_end_also_by_who_has_not_seen_it(
    world: World,
) -> None:
    ours, theirs = await _two(world)
    await ours.append([user("three", "u3")])
    await ours.close("ended")
    await theirs.append([user("three, in other words", "u3")])
    assert [message.text for message in (await ours.context()).messages][-1] == "three, in other words"


@pytest.mark.parametrize(
    ("first", "undone", "again"),
    [
        (lambda s: s.close("ended"), lambda s: s.resume(), lambda s: s.close("ended")),
        (lambda s: s.exclude("u1", "manual"), lambda s: s.restore("u1"), lambda s: s.exclude("u1", "manual")),
    ],
    ids=["ended", "excluded"],
)
async def test_what_another_process_undid_is_done_again(
    world: World, first: Done, undone: Done, again: Done
) -> None:
    ours, theirs = await _two(world)
    assert await first(theirs)
    assert await undone(ours)
    assert await again(theirs)
    assert not await again(ours), "it has been"


@pytest.mark.parametrize(
    ("first", "undone"),
    [
        (lambda s: s.close("ended"), lambda s: s.resume()),
        (lambda s: s.exclude("u1", "manual"), lambda s: s.restore("u1")),
    ],
    ids=["resumed", "restored"],
)
async def test_what_another_process_did_is_undone_by_who_has_not_seen_it(
    world: World, first: Done, undone: Done
) -> None:
    ours, theirs = await _two(world)
    assert await first(ours)
    assert await undone(theirs)
    assert not await undone(theirs)


@pytest.mark.parametrize("known", [True, False], ids=["the call is known", "it is another's too"])
async def test_a_late_result_takes_the_place_of_one_that_another_process_has_made_up_meanwhile(
    world: World, known: bool
) -> None:
    ours, theirs = await _two(world)
    await ours.append([calling("c1", message_id="a1")])
    if known:
        await theirs.context()
    await ours.repair_tool_calls()
    await theirs.append([answer("c1", "late", "r1")])
    for handle in (ours, theirs, await opened(await world.another_process())):
        assert await window(handle) == ["system", "u1", "u2", "a1", "r1"]
    assert (await marks(ours))["interrupted:c1"] == "invalid_response"
