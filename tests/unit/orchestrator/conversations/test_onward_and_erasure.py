"""What goes onward while a message is erased, or its session deleted: nothing is kept
of what is gone, and nothing else goes with it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.engine import Engine
from memory.policies.entry_query import EntryQuery
from memory.policies.window_exit import ExitedMessages
from tests.unit.orchestrator.conversations.talking import list_derived, opened, process_of, user
from tests.unit.orchestrator.world import DAY, TENANT, USER, World


def of_all(leaving: ExitedMessages) -> list[str]:
    """One entry of all that is told, the summary too."""
    told = [*leaving.messages, *([] if leaving.summary is None else [leaving.summary])]
    return [" ".join(message.text for message in told)]


def of_each(leaving: ExitedMessages) -> list[str]:
    return [message.text for message in leaving.messages]


def words(messages: list[Any]) -> str:
    return " ".join(message.text for message in messages)


async def said(engine: Engine, *texts: str) -> Conversation:
    session = await engine.conversations.open(TENANT, SessionDraft("s1", user="ada"), create=True)
    await session.append([user(text, text) for text in texts])
    return session


async def erase(engine: Engine, message_id: str) -> None:
    assert await engine.conversations.redaction.erase((await opened(engine)).log, message_id)


async def swept(world: World, callback: Any = of_all) -> Engine:
    engine = await process_of(world, callback)
    world.clock.advance(DAY)
    await engine.maintenance.sweep()
    await engine.conversations.window_exit.drain()
    assert await engine.maintenance.count_pending() == 0
    return engine


async def test_the_rest_of_a_compaction_goes_onward_when_one_of_its_messages_was_erased_first(
    world: World,
) -> None:
    waiting = await process_of(world, "elsewhere")
    session = await said(waiting, "tea", "secret", "milk")
    await session.compact(words, keep_last=0, reason="manual")
    await erase(waiting, "secret")
    await swept(world)
    assert await list_derived(world) == ["tea milk"]


async def test_what_was_being_stored_of_an_erased_message_goes_and_is_made_anew_without_it(
    world: World,
) -> None:
    engine, other = await process_of(world, of_each), await process_of(world, None)
    session = await said(engine, "secret", "tea", "milk")
    await session.close("ended")
    world.mid.before["onward.home"] = lambda: erase(
        other, "secret"
    )  # the answer is written down, and none of its entries stands yet
    await session.handle_window_exit()
    await swept(world, of_each)
    assert await list_derived(world) == ["milk", "tea"]


async def test_who_dies_before_it_has_looked_again_leaves_that_to_a_sweep(world: World) -> None:
    engine, other = await process_of(world, of_each), await process_of(world, None)
    session = await said(engine, "secret", "tea")
    await session.close("ended")

    async def erased_and_dead() -> None:
        await erase(other, "secret")
        world.mid.fails_before |= {"log.read", "session.read", "owed.settle"}

    world.mid.before["onward.home"] = erased_and_dead
    await session.handle_window_exit()
    world.heal()
    await swept(world, of_each)
    assert await list_derived(world) == ["tea"]


async def test_an_answer_that_was_given_without_the_erased_message_is_not_asked_for_again(
    world: World,
) -> None:
    asked: list[list[str]] = []

    def noted(leaving: ExitedMessages) -> list[str]:
        asked.append(of_each(leaving))
        return asked[-1]

    engine, other = await process_of(world, noted), await process_of(world, None)
    session = await said(engine, "secret", "tea")
    await session.close("ended")
    await session.exclude("secret", "manual")
    world.mid.before["onward.home"] = lambda: erase(other, "secret")
    await session.handle_window_exit()
    await swept(world, noted)
    assert (await list_derived(world), asked) == (["tea"], [["tea"]])


async def test_what_was_made_of_a_summary_goes_with_each_message_that_the_summary_stands_for(
    world: World,
) -> None:
    """The end has let the message leave; the summary that stands for it later says it
    again.
    """
    engine = await process_of(world, of_all)
    session = await said(engine, "secret")
    await session.close("ended")
    await session.resume()
    await session.append([user("tea", "tea")])
    await session.compact(words, keep_last=0, reason="manual")
    await session.handle_window_exit()
    assert await list_derived(world) == ["secret", "tea secret tea"]
    await erase(engine, "secret")
    assert await list_derived(world) == []


async def test_what_an_end_has_taught_stays_when_a_message_of_an_earlier_summary_is_erased(
    world: World,
) -> None:
    engine = await process_of(world, of_all)
    session = await said(engine, "secret")
    await session.compact(words, keep_last=0, reason="manual")
    await session.append([user("tea", "tea")])
    await session.close("ended")
    await session.handle_window_exit()
    assert await list_derived(world) == ["secret secret", "tea"]
    (made,) = [
        entry for entry in await engine.browser.browse(EntryQuery(TENANT, (USER,))) if entry.content == "tea"
    ]
    sources = await engine.conversations.window_exit.derived.messages_of(
        await engine.entries.live_record(TENANT, made.id)
    )
    assert [item.message.text for item in sources] == ["tea"]
    await erase(engine, "secret")
    assert await list_derived(world) == ["tea"]


async def test_a_deletion_that_comes_to_take_a_later_life_of_the_session_unlearns_that(world: World) -> None:
    """It was begun in the former life, and slept for long: that life was deleted by
    another, and the next one has list_derived something.
    """
    engine, sleeping = await process_of(world, of_all), await process_of(world, None)
    await said(engine, "old")

    async def meanwhile() -> None:
        await engine.conversations.sessions.delete(TENANT, "s1")
        session = await said(engine, "new")
        await session.close("ended")
        await session.handle_window_exit()
        assert await list_derived(world) == ["new"]

    world.mid.before["erase.begin"] = meanwhile
    assert await sleeping.conversations.sessions.delete(TENANT, "s1")
    assert await sleeping.conversations.find(TENANT, "s1") is None
    await swept(world)
    assert await list_derived(world) == []


async def test_who_asks_for_a_session_while_it_is_asked_beside_a_sweep_disturbs_nobody(world: World) -> None:
    answer = asyncio.Event()

    async def slow(leaving: ExitedMessages) -> list[str]:
        await answer.wait()
        return of_each(leaving)

    engine = await process_of(world, slow)
    session = await said(engine, "tea")
    await session.close("ended")
    await engine.maintenance.sweep()
    await asyncio.sleep(0.01)
    assert (await session.handle_window_exit()).entries == []
    answer.set()
    await engine.conversations.window_exit.drain()
    asking = engine.conversations.window_exit._asking
    assert asking is not None
    assert asking.exception() is None
    assert await list_derived(world) == ["tea"]
