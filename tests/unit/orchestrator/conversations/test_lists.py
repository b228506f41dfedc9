"""What lists tell of sessions: the record of each follows its log."""

from __future__ import annotations

from datetime import timedelta

import pytest

from memory.domain.session import SessionInfo
from memory.orchestrator.conversations import sessions
from memory.orchestrator.conversations.sessions import FOLLOWS_WITHIN
from memory.orchestrator.engine import Engine
from tests.unit.orchestrator.conversations.talking import assistant, begun, opened, user
from tests.unit.orchestrator.world import TENANT, World


async def listed(engine: Engine) -> dict[str, SessionInfo]:
    page = await engine.conversations.sessions.list(TENANT, asked={}, limit=100)
    return {info.id: info for info in page.sessions}


async def test_a_list_of_the_process_that_wrote_is_exact_and_in_the_order_of_use(world: World) -> None:
    talks = [await begun(world.engine, f"s{n}") for n in range(3)]
    for number in (2, 0, 1):
        await talks[number].append([user(f"hello {number}", "u1"), assistant("hello", "a1")])
    found = await listed(world.engine)
    assert list(found) == ["s1", "s0", "s2"]
    assert {info.message_count for info in found.values()} == {3}


async def test_a_process_that_ends_leaves_no_session_behind_its_log(world: World) -> None:
    other = await world.another_process()
    await (await begun(other)).append([user("hello", "u1")])
    assert (await listed(world.engine))["s1"].message_count == 1, (
        "it is told for the next list there, or when it ends"
    )
    await other.close()
    assert (await listed(await world.another_process()))["s1"].message_count == 2


async def test_a_sweep_tells_what_this_process_has_to_tell(world: World) -> None:
    await (await begun(world.engine)).append([user("hello", "u1")])
    await world.engine.maintenance.sweep()
    assert (await listed(await world.another_process()))["s1"].message_count == 2


async def test_a_store_that_takes_nothing_keeps_no_list_from_being_read(world: World) -> None:
    await (await begun(world.engine)).append([user("hello", "u1")])
    world.mid.fails_before.add("session.follow")
    assert (await listed(world.engine))["s1"].message_count == 1
    world.mid.heal()
    assert (await listed(world.engine))["s1"].message_count == 2


async def test_a_session_that_was_deleted_meanwhile_keeps_no_list_from_being_read(world: World) -> None:
    await (await begun(world.engine)).append([user("hello", "u1")])
    for name in ("s2", "s3"):
        await (await begun(world.engine, name)).append([user("hello", "u1")])
    await (await world.another_process()).conversations.sessions.delete(TENANT, "s2")
    found = await listed(world.engine)
    assert {name: info.message_count for name, info in found.items()} == {"s1": 2, "s3": 2}


async def test_the_preview_is_how_the_user_s_first_message_begins(world: World) -> None:
    session = await begun(world.engine)
    await session.append([assistant("How can I help?", "a1")])
    assert (await listed(world.engine))["s1"].preview is None
    await session.append([user("Where\n does  " + "Ada " * 100, "u1"), user("and Bob?", "u2")])
    preview = (await listed(world.engine))["s1"].preview
    assert preview is not None
    assert preview.startswith("Where does Ada Ada")
    assert preview.endswith("Ada…")
    assert len(preview) <= 120
    assert (await session.info()).preview == preview
    await session.compact(lambda _: "so far", keep_last=0, reason="manual")
    assert (await listed(world.engine))["s1"].preview == preview, (
        "how it began, whatever the window holds now"
    )


async def test_a_preview_says_what_the_message_says_now(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user("my password is hunter2", "u1")])
    for number in range(200):
        await session.append([assistant(f"a{number}")])
    await listed(world.engine)
    other = await world.another_process()
    await (await opened(other)).update("u1", {"content": "my password is secret"})
    assert (await listed(other))["s1"].preview == "my password is secret"


async def test_lists_cost_a_burst_no_more_than_one_write_in_a_while(world: World) -> None:
    session = await begun(world.engine)
    world.clock.advance(FOLLOWS_WITHIN)
    world.mid.steps.clear()
    for number in range(20):
        await session.append([user(f"u{number}", f"u{number}")])
    assert world.mid.steps.count("session.follow") == 1
    world.clock.advance(FOLLOWS_WITHIN + timedelta(seconds=1))
    await session.append([user("later", "later")])
    assert world.mid.steps.count("session.follow") == 2


async def test_of_more_sessions_than_are_remembered_the_last_used_are_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_BEHIND", 2)
    talks = [await begun(world.engine, f"s{n}") for n in range(3)]
    for number in (0, 1, 2, 0):
        await talks[number].append([user("hello")])
    found = await listed(world.engine)
    assert {name: info.message_count for name, info in found.items()} == {"s0": 3, "s1": 1, "s2": 2}


async def test_a_fork_is_listed_with_all_that_it_begins_with(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user("hello", "u1"), assistant("hello", "a1")])
    draft, messages = await session.as_of(None)
    forked = await world.engine.conversations.create(TENANT, draft)
    await forked.begin(messages)
    found = (await listed(world.engine))[forked.id]
    assert (found.message_count, found.preview) == (3, "hello")


async def test_a_record_that_tells_of_more_is_not_set_back_by_who_has_seen_less(world: World) -> None:
    """Of how a session begins this process has not told yet when the session ends."""
    session = await begun(world.engine)
    await session.append([user("hello", "u1")])
    other = await world.another_process()
    theirs = await opened(other)
    await theirs.append([assistant("hello", "a1")])
    await theirs.close("ended")
    await listed(other)
    found = (await listed(world.engine))["s1"]
    assert (found.status, found.message_count, found.preview) == ("ended", 3, "hello")
