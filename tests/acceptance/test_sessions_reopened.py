"""A session whose process, short tier, files or record went: what was said comes back
as it was, or is said to be lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory import Memory, NotFound
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.collections import SESSIONS
from memory.orchestrator.storage.session_keys import session_key
from memory.ports.writes import Delete, Newer
from tests.acceptance.support import Clock
from tests.acceptance.talking import SYSTEM, history, summary, user, window


def _as_another_process(memory: Memory) -> None:
    """From now on nothing is remembered of any session."""
    sessions = engine_of(memory).conversations.sessions
    sessions._logs.clear()
    sessions._told.clear()


def spoil(folder: Path, pattern: str, damage: str) -> int:
    """Blank these files, or take them away; how many there were."""
    files = [*folder.rglob(pattern)]
    for file in files:
        file.write_text("") if damage == "blank" else file.unlink()
    return len(files)


@pytest.mark.behaviour("B74", "B75", "AC-B21")
async def test_a_window_that_nobody_remembers_is_as_it_was(memory: Memory) -> None:
    """In its order, with its version and its last compaction, and without what was
    archived or excluded.
    """
    session = memory.session("s1", system=SYSTEM)
    await session.append([user(f"m{n}", f"m{n}") for n in range(1, 6)])
    made = await session.compact(summary("sum1"), keep_last=1)
    await session.append([user("m6", "m6"), user("m7", "m7")])
    await session.exclude("m6")
    before = await session.info()
    assert await window(session) == ["system", "sum1", "m5", "m7"]
    _as_another_process(memory)
    again = memory.session("s1", create=False)
    assert await window(again) == ["system", "sum1", "m5", "m7"]
    after = await again.info()
    assert (after.version, after.last_compaction_id) == (before.version, made.id)
    assert after.last_compaction_id == before.last_compaction_id


@pytest.mark.behaviour("B18", "B77")
async def test_what_is_done_with_a_session_needs_one_and_is_told_by_its_record(
    memory: Memory, clock: Clock
) -> None:
    nobody = memory.session("nobody", create=False)
    for call in (
        nobody.append(user("u1", "u1")),
        nobody.context(),
        nobody.clear(),
        nobody.compactions(),
        nobody.tasks.save("t1"),
    ):
        with pytest.raises(NotFound, match="session not found: nobody"):
            await call
    assert (await memory.sessions.list()).sessions == []
    session = memory.session("s1")
    created = await session.info()
    clock.advance()
    await session.append(user("u1", "u1"))
    told = await session.info()
    assert told.created_at == created.created_at
    assert told.updated_at > created.updated_at
    assert await session.compactions() == []


@pytest.mark.behaviour("B78")
async def test_what_was_said_in_a_session_whose_record_is_gone_is_no_session(memory: Memory) -> None:
    await memory.session("s1").append(user("a lost word", "u1"))
    await memory.session("s2").append(user("another word", "u1"))
    store, key = engine_of(memory).topology.archive, session_key(memory.tenant, "s1")
    (outcome,) = await store.apply([Delete(SESSIONS, key, version=2**62, when=Newer())])
    assert outcome.applied
    _as_another_process(memory)
    assert [info.id for info in (await memory.sessions.list()).sessions] == ["s2"]
    assert await memory.sessions.get("s1") is None
    with pytest.raises(NotFound):
        await memory.session("s1", create=False).context()
    assert [found.session_id for found in await memory.search_messages("word")] == ["s2"]


@pytest.mark.backend("sqlite")
@pytest.mark.behaviour("B80", "AC-B33")
async def test_with_the_short_tier_wiped_every_session_has_its_window(tmp_path: Path, clock: Clock) -> None:
    placed = {
        "short": f"sqlite:///{tmp_path / 'short.db'}",
        "mid": f"sqlite:///{tmp_path / 'mid.db'}",
        "long": f"sqlite:///{tmp_path / 'mid.db'}",
    }
    config = {"tiers": placed, "embedder": "none"}
    async with Memory(config, clock=clock) as memory:
        for name in ("s1", "s2"):
            session = memory.session(name, system=SYSTEM)
            await session.append([user(f"m{n}", f"m{n}") for n in range(3)])
            await session.compact(summary("sum1"), keep_last=1)
    spoil(tmp_path, "short.db*", "gone")
    async with Memory(config, clock=clock) as memory:
        assert [info.id for info in (await memory.sessions.list(by="created", order="oldest")).sessions] == [
            "s1",
            "s2",
        ]
        for name in ("s1", "s2"):
            session = memory.session(name, create=False)
            assert await window(session) == ["system", "sum1", "m2"]
            assert await history(session) == ["system", "m0", "m1", "m2", "sum1"]


@pytest.mark.backend("file")
@pytest.mark.behaviour("AC-B23")
@pytest.mark.parametrize("damage", ["blank", "gone"])
@pytest.mark.parametrize("edited", [True, False], ids=["edited", "not edited"])
async def test_of_a_file_that_is_blank_or_gone_window_and_history_say_the_same(
    tmp_path: Path, clock: Clock, damage: str, edited: bool
) -> None:
    """A message that was edited comes back as it was before; one that was not is lost
    to both, and its place and number are not given again.
    """
    config: dict[str, Any] = {
        "tiers": dict.fromkeys(("short", "mid", "long"), f"file://{tmp_path / 'files'}"),
        "embedder": "none",
    }
    async with Memory(config, clock=clock) as memory:
        session = memory.session("s1", system=SYSTEM)
        for n in (1, 2, 3):
            await session.append(user(f"user-{n}", f"user-{n}"))
        if edited:
            await session.update("user-2", content="edited")
        name = (await session._conversation()).log.key(3)
    assert spoil(tmp_path, f"{name}.json", damage) == 1
    there = ["system", "user-1", *["user-2"] * edited, "user-3"]
    async with Memory(config, clock=clock) as memory:
        session = memory.session("s1", create=False)
        assert await window(session) == await history(session) == there
        assert (await session.info()).gaps == ([(3, 3)] if damage == "gone" and not edited else [])
        await session.append(user("user-4", "user-4"))
        assert await window(session) == await history(session) == [*there, "user-4"]
        assert all(message.text in (SYSTEM, message.id) for message in (await session.context()).messages)
    assert spoil(tmp_path, "*.corrupt-*", "gone") == (damage == "blank"), (
        "what was damaged is kept for people"
    )
