"""How often a call on a session asks the store: the table it is held to. A call more is
one that an agent waits for in every turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.policies.context import ContextRequest
from tests.unit.orchestrator.conversations.talking import assistant, begun, opened, user
from tests.unit.orchestrator.world import World

Call = Callable[[Conversation], Awaitable[object]]

CALLS: dict[str, tuple[Call, list[str]]] = {
    "append": (lambda s: s.append([user("more")]), ["log.append"]),
    "append five": (lambda s: s.append([user("more")] * 5), ["log.append"]),
    "append under an id": (lambda s: s.append([user("more", "u2")]), ["log.append"]),
    "a streamed answer goes on": (
        lambda s: s.append([assistant("good day to you", "a1")]),
        ["log.read", "log.read", "log.change", "log.append"],
    ),
    "update": (
        lambda s: s.update("u1", {"content": "else"}),
        ["log.read", "hold.read", "log.change", "log.append"],
    ),
    "exclude": (lambda s: s.exclude("u1", "manual"), ["log.read", "log.append"]),
    "clear": (lambda s: s.clear(), ["log.read", "log.append"]),
    "window": (lambda s: s.context(), ["session.read", "log.read"]),
    "the newest five": (lambda s: s.context(ContextRequest(last=5)), ["session.read", "log.read"]),
    "window under a budget": (lambda s: s.context(ContextRequest(4_000)), ["session.read", "log.read"]),
    "info": (lambda s: s.info(), ["session.read", "log.read"]),
    "history": (lambda s: s.history(HistoryQuery()), ["session.read", "history.read", "log.read"]),
}
"""What each asks where the handle has read the session before."""
AT_ONCE = ("window", "the newest five", "window under a budget", "info", "history")
"""Those whose calls are under way together: the time of one."""


async def _talk(world: World) -> Conversation:
    session = await begun(world.engine)
    await session.append([user("hello", "u1"), assistant("good day", "a1")])
    await session.context()
    return session


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_asks_the_store_as_often_as_the_table_says(world: World, name: str) -> None:
    call, asked = CALLS[name]
    session = await _talk(world)
    for store in world.stores:
        store.steps.clear()
    await call(session)
    assert world.mid.steps == asked
    assert world.short.steps == world.long.steps == []


@pytest.mark.parametrize("name", AT_ONCE)
async def test_the_log_is_asked_while_the_record_is(world: World, name: str) -> None:
    call, _ = CALLS[name]
    session = await _talk(world)
    the_other, both_are_under_way = asyncio.Event(), asyncio.Event()

    async def waits_for_the_other() -> None:
        await the_other.wait()
        both_are_under_way.set()

    async def has_come() -> None:
        the_other.set()

    world.mid.before |= {"session.read": waits_for_the_other, "log.read": has_come}
    async with asyncio.timeout(60):
        await call(session)
    assert both_are_under_way.is_set()


async def test_what_became_of_messages_is_asked_where_one_has_left_the_window_or_the_window_is_not_known(
    world: World,
) -> None:
    session = await _talk(world)
    other = await opened(await world.another_process())
    await session.exclude("u1", "manual")
    for handle, reads in ((session, ["log.read"]), (other, [])):
        world.mid.steps.clear()
        assert [item.excluded for item in (await handle.history(HistoryQuery())).items] == [
            None,
            "manual",
            None,
        ]
        assert world.mid.steps == ["session.read", "history.read", *reads, "history.marks"]
    world.mid.steps.clear()
    assert [item.excluded for item in (await session.history(HistoryQuery(first=3))).items] == [None]
    assert world.mid.steps == ["session.read", "history.read", "log.read"]


async def test_a_handle_that_is_opened_anew_in_the_same_process_asks_for_the_record_and_the_log_only(
    world: World,
) -> None:
    await _talk(world)
    world.mid.steps.clear()
    session = await opened(world.engine)
    await session.append([user("more")])
    assert world.mid.steps == ["session.read", "log.append"]


async def test_creating_a_session_is_one_call_and_so_is_a_list(world: World) -> None:
    world.mid.steps.clear()
    await begun(world.engine)
    assert world.mid.steps == ["session.create"]
    world.mid.steps.clear()
    await world.engine.conversations.sessions.list("acme", asked={}, limit=50)
    assert world.mid.steps == ["session.list"]
