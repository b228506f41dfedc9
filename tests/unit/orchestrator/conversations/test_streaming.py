"""A message whose text arrives in pieces is one message, written now and then, final at
its end.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from memory.domain.errors import Conflict, NotFound
from memory.domain.message import Message, Role
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.window.streaming import WRITTEN_EVERY, StreamedMessage
from memory.orchestrator.storage.collections import MESSAGES
from memory.ports.writes import Delete, Newer
from tests.unit.orchestrator.conversations.talking import assistant, begun, opened, told, user, window
from tests.unit.orchestrator.world import World

LATER = WRITTEN_EVERY + timedelta(seconds=0.01)


def streamed(world: World, session: Conversation) -> StreamedMessage:
    return StreamedMessage(session, world.engine.placement, Role.ASSISTANT, "a1")


async def stands(world: World) -> Message | None:
    """What another process reads."""
    messages = (await (await opened(world.engine)).context()).messages
    return next((message for message in messages if message.id == "a1"), None)


async def told_of(world: World) -> tuple[str, bool] | None:
    message = await stands(world)
    return None if message is None else (message.text, message.is_final)


async def test_pieces_are_one_message_written_now_and_then_and_at_the_end(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user("why?", "u1")])
    out = streamed(world, session)
    await out.write("Be")
    assert await told_of(world) == ("Be", False)
    world.mid.steps.clear()
    await out.write("ca")
    await out.write("use")
    assert world.mid.steps == [], "what comes soon after waits"
    assert await told_of(world) == ("Be", False)
    world.clock.advance(LATER)
    world.mid.steps.clear()
    await out.write(" it")
    assert world.mid.steps.count("log.change") == 1
    assert "log.read" not in world.mid.steps, "a piece is one trip"
    assert await told_of(world) == ("Because it", False)
    await out.write(" is.")
    done = await out.finish({"finish_reason": "stop"})
    assert done is not None
    assert (done.text, done.is_final, done.finish_reason) == ("Because it is.", True, "stop")
    assert await stands(world) == done
    assert await told(session) == ["system", "u1", "a1"]
    assert (await session.info()).message_count == 3


async def test_a_clock_that_was_set_back_holds_no_piece_back(world: World) -> None:
    session = await begun(world.engine)
    out = streamed(world, session)
    await out.write("a")
    world.clock.advance(-timedelta(hours=1))
    await out.write("b")
    assert await told_of(world) == ("ab", False)


async def test_where_nothing_was_said_there_is_no_message(world: World) -> None:
    session = await begun(world.engine)
    out = streamed(world, session)
    await out.write("")
    assert await out.finish({}) is None
    assert await told(session) == ["system"]


async def test_a_call_without_text_is_a_message(world: World) -> None:
    session = await begun(world.engine)
    done = await streamed(world, session).finish(
        {"tool_calls": assistant("", tool_calls=[{"id": "c1", "name": "look"}]).tool_calls}
    )
    assert done is not None
    assert [call.id for call in done.tool_calls] == ["c1"]


async def test_another_message_between_the_pieces_doubles_nothing(world: World) -> None:
    session, other = await begun(world.engine), await opened(await world.another_process())
    out = streamed(world, session)
    await out.write("one")
    await other.append([user("wait", "u1")])
    await out.write(" two")
    await out.finish({})
    assert await window(session) == ["system", "a1", "u1"] == await told(session)
    assert await told_of(world) == ("one two", True)


async def test_what_others_changed_of_it_meanwhile_stays(world: World) -> None:
    session, other = await begun(world.engine), await opened(await world.another_process())
    out = streamed(world, session)
    await out.write("one")
    await other.update("a1", {"metadata": {"liked": True}})
    await out.write(" two")
    done = await out.finish({})
    assert done is not None
    assert (done.text, done.metadata, done.is_final) == ("one two", {"liked": True}, True)


@pytest.mark.parametrize("step", ["log.append", "log.change"])
@pytest.mark.parametrize("when", ["fails_before", "fails_after"])
async def test_a_store_that_fails_costs_no_piece_and_doubles_none(world: World, step: str, when: str) -> None:
    session = await begun(world.engine)
    out = streamed(world, session)
    getattr(world.mid, when).add(step)
    for piece in ("one", " two", " three"):
        await out.write(piece)
        world.clock.advance(LATER)
    world.mid.heal()
    await out.write(" four")
    done = await out.finish({})
    assert done is not None
    assert done.text == "one two three four"
    assert await told(session) == ["system", "a1"]
    assert await told_of(world) == ("one two three four", True)


async def test_an_end_whose_answer_was_lost_can_be_repeated(world: World) -> None:
    session = await begun(world.engine)
    out = streamed(world, session)
    await out.write("one")
    world.mid.fails_after.add("log.change")
    with pytest.raises(Exception, match="fails after"):
        await out.finish({})
    world.mid.heal()
    assert await out.finish({}) == await stands(world)
    assert await told_of(world) == ("one", True)


async def test_a_compaction_leaves_what_is_still_being_said(world: World) -> None:
    session = await begun(world.engine)
    out = streamed(world, session)
    await session.append([user("u1", "u1")])
    await out.write("half")
    await session.append([user("u2", "u2"), assistant("a2", "a2")])
    compaction = await session.compact(
        lambda _: Message(id="sum", role="system", content="so far"), keep_last=1, reason="manual"
    )
    assert compaction.archived_ids == ["u1", "u2"]
    assert await window(session) == ["system", "sum", "a1", "a2"]
    await out.write(" whole")
    await out.finish({})
    assert await told_of(world) == ("half whole", True)
    again = await session.compact(lambda _: "so far", keep_last=1, reason="manual")
    assert again.archived_ids == ["sum", "a1"]


async def test_the_end_of_a_session_takes_it_as_it_stands(world: World) -> None:
    session, other = await begun(world.engine), await opened(await world.another_process())
    out = streamed(world, session)
    await out.write("half")
    await other.close("ended")
    assert await told_of(world) == ("half", True)
    world.clock.advance(LATER)
    with pytest.raises(Conflict, match="finished meanwhile; this piece is dropped"):
        await out.write(" and more")
    assert await told_of(world) == ("half", True)


async def test_of_an_end_that_was_cut_off_the_next_one_takes_it_as_it_stands(world: World) -> None:
    session = await begun(world.engine)
    await streamed(world, session).write("half")
    world.mid.fails_before.add("log.change")
    with pytest.raises(Exception, match="fails before"):
        await session.close("ended")
    world.mid.heal()
    assert await session.close("ended") is False
    assert await told_of(world) == ("half", True)


async def test_nothing_is_said_in_a_session_that_has_ended(world: World) -> None:
    session = await begun(world.engine)
    await session.close("ended")
    with pytest.raises(Conflict, match="resume it first"):
        await streamed(world, session).write("hello")


async def test_of_two_who_say_the_same_message_the_later_has_it(world: World) -> None:
    """A process that was taken for dead wakes up: its piece is dropped."""
    session, other = await begun(world.engine), await opened(await world.another_process())
    frozen, fresh = streamed(world, session), streamed(world, other)
    await frozen.write("The answer is")
    await fresh.write("It is 42")
    world.clock.advance(LATER)
    with pytest.raises(Conflict, match="changed by another writer meanwhile"):
        await frozen.write(" 41")
    await fresh.finish({})
    with pytest.raises(Conflict, match="finished meanwhile"):
        await frozen.finish({})
    assert await told_of(world) == ("It is 42", True)
    assert await told(other) == ["system", "a1"]


async def test_a_message_that_was_erased_does_not_come_back(world: World) -> None:
    session = await begun(world.engine)
    out = streamed(world, session)
    await out.write("secret")
    (event,) = (await session._log.at([2])).values()
    await world.mid.apply([Delete(MESSAGES, event.key, event.version + 1, Newer())])
    world.clock.advance(LATER)
    with pytest.raises(NotFound, match="a1"):
        await out.write("s")
    assert await stands(world) is None
