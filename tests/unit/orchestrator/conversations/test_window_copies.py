"""Copies of windows in the short tier: a process that has not read a session yet is
shown what stands at home, and reads less of it; whatever becomes of the copy.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from zlib import decompress

import pytest

from memory.domain.errors import NotFound, StoreUnavailable
from memory.domain.message import Message
from memory.orchestrator.conversations.conversation import EVERYTHING, Conversation
from memory.orchestrator.conversations.log import window_copies
from memory.orchestrator.conversations.log.events import place_key
from memory.orchestrator.conversations.log.log import LOOKED_AT
from memory.orchestrator.conversations.log.seen import NEWEST, REMEMBERED_FOR, REMEMBERED_SIZE
from memory.orchestrator.conversations.log.window_copies import KEPT_FOR, copy_key
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ARTIFACTS
from memory.orchestrator.storage.settings import EngineSettings
from memory.policies.context import ContextRequest
from memory.ports.query import Everywhere, Query
from memory.ports.record import Record, Role, Tombstone
from memory.ports.writes import Always, Put
from tests.support.depth import drawn
from tests.unit.orchestrator.conversations.talking import assistant, begun, opened, user
from tests.unit.orchestrator.world import TENANT, VOLATILE, World

COPIED, SAID = 8, 200
"""From how many messages on a window is copied, and how many there are: more than are
read to find the end of a log.
"""


def _world(**more: object) -> World:
    return World(settings=EngineSettings(copied_window=COPIED), **more)  # type: ignore[arg-type]


@pytest.fixture(params=["durable", "volatile"])
async def copying(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A world whose short store is a home of its own, or a cache."""
    async with _world(**({"short": VOLATILE} if request.param == "volatile" else {})) as world:
        yield world


async def _written(engine: Engine) -> None:
    await engine.conversations.sessions.copies.close()


async def _said(world: World, count: int = SAID) -> Conversation:
    session = await begun(world.engine)
    await session.append([user(f"text {n}", f"m{n}") for n in range(count)])
    await world.engine.conversations.sessions.catch_up()
    return session


async def _copied(world: World, count: int = SAID) -> Conversation:
    """A session that a reader has left a copy of."""
    session = await _said(world, count)
    await _first(world)
    assert isinstance(await _copy(world, session), Record)
    return session


async def _first(world: World, asked: ContextRequest = EVERYTHING) -> tuple[list[Message], int]:
    """What a process that has just begun is shown, and how many records it read at
    home. It leaves a copy.
    """
    engine = await world.another_process()
    session, before = await opened(engine), world.mid.rows_read
    shown = (await session.context(asked)).messages
    read = world.mid.rows_read - before
    await _written(engine)
    return shown, read


async def _copy(world: World, session: Conversation) -> object:
    return (await world.short.get(ARTIFACTS, [copy_key(session.log.life)]))[0]


async def _alone(world: World, asked: ContextRequest = EVERYTHING) -> list[Message]:
    """What is shown where nobody copies anything."""
    settings, world.settings = world.settings, EngineSettings(copied_window=0)
    try:
        return (await _first(world, asked))[0]
    finally:
        world.settings = settings


async def test_a_process_that_has_just_begun_reads_the_end_of_the_log_and_the_copy(copying: World) -> None:
    await _copied(copying)
    shown, read = await _first(copying)
    assert shown == await _alone(copying)
    assert len(shown) == SAID + 1
    assert read < NEWEST + COPIED + 5


async def test_what_came_behind_a_copy_is_read_at_home(copying: World) -> None:
    session = await _copied(copying)
    await session.append([assistant("an answer", "a1"), user("and a question", "u1")])
    await session.update("m3", {"content": "edited"})
    await session.exclude("m5", "not this")
    await session.pop(1)
    shown, read = await _first(copying)
    assert shown == await _alone(copying)
    texts = [message.text for message in shown]
    assert "edited" in texts
    assert "an answer" in texts
    assert not {"text 3", "text 5", "and a question"} & set(texts)
    assert read < NEWEST + COPIED + 15


async def test_a_copy_from_too_far_back_is_not_used_and_replaced(copying: World) -> None:
    session = await _copied(copying)
    await session.update("m3", {"content": "edited"})
    await session.append([user(f"more {n}") for n in range(2 * NEWEST)])
    before = await _copy(copying, session)
    assert isinstance(before, Record)
    shown, read = await _first(copying)
    assert shown == await _alone(copying)
    assert read > SAID
    after = await _copy(copying, session)
    assert isinstance(after, Record)
    assert after.version > before.version
    assert (await _first(copying))[1] < NEWEST + COPIED + 5


async def test_a_compacted_window_is_shown_whatever_the_copy_has(copying: World) -> None:
    session = await _copied(copying)
    await session.compact(lambda _: "so it began", keep_last=20, reason="manual")
    shown, _ = await _first(copying)
    assert shown == await _alone(copying)
    assert len(shown) == 22
    await session.clear()
    assert (await _first(copying))[0] == await _alone(copying)


@pytest.mark.parametrize(
    "asked",
    [
        ContextRequest(last=3),
        ContextRequest(last=150),
        ContextRequest(budget=900),
        ContextRequest(layered=True),
    ],
    ids=["last 3", "last 150", "budget", "layered"],
)
async def test_a_part_of_the_window_is_the_same_with_a_copy(copying: World, asked: ContextRequest) -> None:
    await _copied(copying)
    assert (await _first(copying, asked))[0] == await _alone(copying, asked)


async def test_a_process_that_has_appended_first_reads_the_copy_too(copying: World) -> None:
    await _copied(copying)
    session = await opened(await copying.another_process())
    await session.append([user("one more", "u1")])
    before = copying.mid.rows_read
    shown = (await session.context()).messages
    assert copying.mid.rows_read - before < NEWEST
    assert shown == await _alone(copying)


async def test_large_messages_and_unfinished_ones_are_in_no_copy(copying: World) -> None:
    session = await _said(copying)
    large, half = "x" * (REMEMBERED_SIZE + 1), user("half", "half", is_final=False)
    await session.append([user(large, "large"), user("y" * 70_000, "huge"), half])
    for _ in range(2):
        assert (await _first(copying))[0] == await _alone(copying)
    copy = await _copy(copying, session)
    assert isinstance(copy, Record)
    data = decompress(bytes(copy.fields["data"]))  # type: ignore[arg-type]
    assert b"text 7" in data
    assert not any(text in data for text in (b"xxx", b"yyy", b"half"))


async def test_a_copy_has_the_newest_messages_that_fit(
    copying: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_copies, "MOST_CHARACTERS", 5_000)
    session = await _copied(copying)
    copy = await _copy(copying, session)
    assert isinstance(copy, Record)
    data = decompress(bytes(copy.fields["data"]))  # type: ignore[arg-type]
    assert f"text {SAID - 1}".encode() in data
    assert b'"text 1"' not in data
    for _ in range(2):
        assert (await _first(copying))[0] == await _alone(copying)
    assert await _copy(copying, session) == copy, "it is not written again and again"


async def test_a_small_window_is_not_copied() -> None:
    async with World() as world:
        session = await _said(world, 60)
        await _first(world)
        assert await _copy(world, session) is None
        assert "copies.read" not in world.short.steps


async def test_where_one_store_has_both_there_is_no_copy() -> None:
    async with _world().in_one_store("mid", "short") as world:
        session = await _said(world)
        await _first(world)
        assert await _copy(world, session) is None


# -- what becomes of a copy ----------------------------------------------------------------


@pytest.mark.parametrize("fate", ["lost", "damaged", "another generation", "another form", "another life"])
async def test_a_copy_that_cannot_be_used_changes_nothing(copying: World, fate: str) -> None:
    session = await _copied(copying)
    copy = await _copy(copying, session)
    assert isinstance(copy, Record)
    key = copy.key
    if fate == "lost":
        copying.short.state.place("artifacts", key, None)
    elif fate == "damaged":
        copying.short.state.damage("artifacts", key)
    else:
        other = {
            "another generation": replace(copy, generation=(copy.generation or 0) + 1),
            "another form": replace(copy, body={**copy.body, "format": 0}),
            "another life": replace(copy, body={**copy.body, "nonce": "0" * 16}),
        }[fate]
        (put,) = await copying.short.apply([Put(ARTIFACTS, other, Always())])
        assert put.applied
    shown, read = await _first(copying)
    assert shown == await _alone(copying)
    assert read > SAID
    if fate not in ("damaged", "another form"):
        await session.append([user("more")])
        assert (await _first(copying))[0] == await _alone(copying)


@pytest.mark.parametrize("how", ["down", "silent"])
async def test_a_short_store_that_does_not_answer_fails_no_read(
    copying: World, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_copies, "PATIENCE", 0.01)
    session = await _copied(copying)
    await session.append([user("more")])
    setattr(copying.short, how, True)
    engine = copying.another_engine()
    copying.short.down = copying.short.silent = False
    await engine.open()
    setattr(copying.short, how, True)
    fresh = await opened(engine)
    context = await fresh.context()
    assert (len(context.messages), context.degraded) == (SAID + 2, [])
    asked = len(copying.short.steps)
    assert len((await (await opened(engine)).context()).messages) == SAID + 2
    assert len(copying.short.steps) == asked, "it is not asked again at once"
    copying.heal()


async def test_a_copy_expires_and_is_removed(copying: World) -> None:
    session = await _copied(copying)
    copying.clock.advance(KEPT_FOR * 0.9)
    assert (await _first(copying))[1] < SAID
    await copying.engine.maintain()
    assert isinstance(await _copy(copying, session), Record)
    copying.clock.advance(KEPT_FOR * 0.2)
    settings, copying.settings = copying.settings, EngineSettings(copied_window=10**6)
    shown, read = await _first(copying)
    copying.settings = settings
    assert read > SAID
    assert len(shown) == SAID + 1
    await copying.engine.maintain()
    assert await _copy(copying, session) is None


async def test_a_copy_of_a_copy_is_not_younger(copying: World) -> None:
    """Processes that never read the window at home do not keep an old text alive."""
    session = await _copied(copying)
    first = await _copy(copying, session)
    assert isinstance(first, Record)
    copying.clock.advance(timedelta(minutes=30))
    await session.append([user(f"more {n}") for n in range(COPIED)])
    await _first(copying)
    second = await _copy(copying, session)
    assert isinstance(second, Record)
    assert second.version > first.version
    assert (second.cached_at, second.expires_at) == (first.cached_at, first.expires_at)


async def test_a_copy_of_a_log_that_was_set_back_is_removed(copying: World) -> None:
    session = await _said(copying)
    backup = copying.mid.state.snapshot()
    await session.append([user("lost", "lost")])
    await _first(copying)
    assert isinstance(await _copy(copying, session), Record)
    copying.mid.state.restore(backup)
    assert (await _first(copying))[0] == await _alone(copying)
    other = await opened(await copying.another_process())
    await other.append([user("another")])
    shown, _ = await _first(copying)
    assert shown == await _alone(copying)
    assert "lost" not in [message.text for message in shown]


async def test_a_volatile_store_that_restarts_from_its_disk_serves_no_copy_of_before() -> None:
    async with _world(short=VOLATILE) as world:
        session = await _copied(world)
        before = world.short.state.snapshot()
        world.short.state.restart(keep=False)
        world.short.state.restore(before)
        assert isinstance(await _copy(world, session), Record)
        shown, read = await _first(world)
        assert (shown, read > SAID) == (await _alone(world), True)


async def test_an_edit_whose_event_is_damaged_is_not_hidden_by_a_copy(copying: World) -> None:
    session = await _copied(copying)
    await session.update("m3", {"content": "edited"})
    life, told = session.log.life, (await session.log.load()).state.place
    copying.mid.state.damage("messages", place_key(life.tenant, life.incarnation, told))
    await session.append([user("more")])
    shown, _ = await _first(copying)
    assert shown == await _alone(copying)
    assert "edited" in [message.text for message in shown]


@pytest.mark.parametrize("many", [False, True], ids=["told to the reader", "told too far back"])
async def test_what_was_edited_while_it_was_read_is_not_copied(copying: World, many: bool) -> None:
    """The reader's rows are older than the state that it ends with."""
    reader = await _said(copying)
    await reader.context()
    copying.clock.advance(REMEMBERED_FOR)
    other = await opened(await copying.another_process()) if many else reader
    if many:
        await other.append([user(f"before {n}") for n in range(LOOKED_AT)])

    async def edit() -> None:
        await other.update("m3", {"content": "edited"})
        await other.append([user(f"after {n}") for n in range(2 * NEWEST)])

    copying.mid.after["log.read"] = edit
    await reader.context()
    await _written(copying.engine)
    assert not copying.mid.after
    shown, _ = await _first(copying)
    assert shown == await _alone(copying)
    assert "edited" in [message.text for message in shown]


# -- erasing -------------------------------------------------------------------------------


async def _texts_in_short(world: World) -> bytes:
    """All that the short store holds of sessions, copies unpacked."""
    page = await world.short.query(Query(ARTIFACTS, Everywhere(), roles=frozenset(Role), limit=100))
    rows = [row for row in page.records if isinstance(row, Record)]
    return b"".join(decompress(bytes(row.fields["data"])) for row in rows)  # type: ignore[arg-type]


async def test_an_erased_message_is_in_no_copy(copying: World) -> None:
    session = await _copied(copying)
    assert b"text 7" in await _texts_in_short(copying)
    assert await copying.engine.conversations.redaction.erase(session.log, "m7")
    assert b'"text 7"' not in await _texts_in_short(copying)
    shown, _ = await _first(copying)
    assert shown == await _alone(copying)
    await session.append([user("more")])
    await _first(copying)
    assert b'"text 8"' in await _texts_in_short(copying)
    assert b'"text 7"' not in await _texts_in_short(copying)


async def test_a_copy_that_was_read_before_an_erasure_comes_too_late(copying: World) -> None:
    session = await _said(copying)

    async def erase() -> None:
        await copying.engine.conversations.redaction.erase(session.log, "m7")

    copying.short.before["copies.write"] = erase
    shown, _ = await _first(copying)
    assert "text 7" in [message.text for message in shown]
    assert isinstance(await _copy(copying, session), Tombstone)


async def test_a_copy_that_was_read_before_the_deletion_of_its_session_comes_too_late(copying: World) -> None:
    session = await _said(copying)

    async def delete() -> None:
        assert await copying.engine.conversations.sessions.delete(TENANT, "s1")

    copying.short.before["copies.write"] = delete
    await _first(copying)
    assert not isinstance(await _copy(copying, session), Record)
    with pytest.raises(NotFound):
        await opened(await copying.another_process())


async def test_an_erasure_is_not_done_before_the_copy_is_gone(copying: World) -> None:
    session = await _copied(copying)
    copying.short.down = True
    with pytest.raises(StoreUnavailable, match="not yet all of its copies"):
        await copying.engine.conversations.redaction.erase(session.log, "m7")
    copying.heal()
    assert b'"text 7"' in await _texts_in_short(copying)
    await copying.engine.maintain()
    assert b'"text 7"' not in await _texts_in_short(copying)


@pytest.mark.parametrize("how", ["session", "user", "tenant"])
async def test_the_copy_goes_with_its_session(copying: World, how: str) -> None:
    engine = copying.engine
    session = await engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
    await session.append([user(f"text {n}") for n in range(SAID)])
    await engine.conversations.sessions.catch_up()
    await _first(copying)
    assert isinstance(await _copy(copying, session), Record)
    if how == "session":
        await engine.conversations.sessions.delete(TENANT, "s1")
    elif how == "user":
        await engine.conversations.redaction.erase_user(TENANT, "ada")
    else:
        await engine.tenants.erase(TENANT)
    assert not isinstance(await _copy(copying, session), Record)
    assert await _texts_in_short(copying) == b""


# -- any history ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(drawn(6, 2)))
async def test_a_window_is_what_stands_at_home_after_any_history(copying: World, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same histories in every run
    session, said = await _said(copying, 30), 30
    for number in range(40):
        handle = session if chance.random() < 0.5 else await opened(await copying.another_process())
        known = f"m{chance.randrange(said)}"
        match chance.choice(
            ("say", "say", "update", "exclude", "restore", "pop", "erase", "clear", "compact")
        ):
            case "say":
                new = [user(f"text {n}", f"m{n}") for n in range(said, said + chance.randint(1, 12))]
                await handle.append(new)
                said += len(new)
            case "update":
                with suppress(NotFound):
                    await handle.update(known, {"content": f"edited in {number}"})
            case "exclude":
                await handle.exclude(known, "why")
            case "restore":
                await handle.restore(known)
            case "pop":
                await handle.pop(1)
            case "erase":
                await copying.engine.conversations.redaction.erase(handle.log, known)
            case "clear" if chance.random() < 0.2:
                await handle.clear()
            case "compact" if chance.random() < 0.3:
                await handle.compact(lambda _: "so far", keep_last=10, reason="manual")
            case _:
                pass
        if chance.random() < 0.5:
            asked = chance.choice(
                (EVERYTHING, EVERYTHING, ContextRequest(last=9), ContextRequest(budget=300))
            )
            shown, _ = await _first(copying, asked)
            assert shown == await _alone(copying, asked), (number, asked)
