"""Many callers at once, over every placing of the tiers: every acknowledged change
counts once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from memory import Entry, NotFound, Scope, TooMuchContention
from memory.facade.memory import Memory
from tests.acceptance.support import ORG, SCOPES, SESSION, USER, Clock, contents


@pytest.mark.behaviour("A48", "D34")
@SCOPES
async def test_edits_at_once_are_all_in_the_entry_and_in_its_history(memory: Memory, scope: Scope) -> None:
    entry = await memory.write("counted", scope=scope)
    await asyncio.gather(*(memory.update(entry.id, metadata={f"k{n}": n}) for n in range(12)))
    read = await memory.get(entry.id)
    assert read is not None
    assert read.metadata == {f"k{n}": n for n in range(12)}
    history = await memory.entries.history(entry.id)
    assert [len(version.metadata) for version in history] == list(range(13))


@pytest.mark.behaviour("A48", "D34")
async def test_two_hundred_edits_at_once_are_all_in_the_entry(config: dict[str, Any], clock: Clock) -> None:
    """However slow the machine: who has too little time is told so, see below."""
    async with Memory(config | {"durations": {"deadline": "5m"}}, clock=clock) as memory:
        entry = await memory.write("counted", scope=USER)
        edited = await asyncio.gather(*(memory.update(entry.id, metadata={f"k{n}": n}) for n in range(200)))
        read = await memory.get(entry.id)
        assert read is not None
        assert read.metadata == {f"k{n}": n for n in range(200)}
        assert len({e.version for e in edited}) == 200


@pytest.mark.behaviour("A48", "D34")
async def test_edits_that_get_no_turn_in_time_are_told_so_and_are_not_in_the_entry(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config | {"durations": {"deadline": timedelta(milliseconds=5)}}, clock=clock) as memory:
        entry = await memory.write("counted", scope=USER)
        edits = (memory.update(entry.id, metadata={f"k{n}": n}) for n in range(200))
        outcomes = await asyncio.gather(*edits, return_exceptions=True)
        made = {f"k{n}": n for n, outcome in enumerate(outcomes) if isinstance(outcome, Entry)}
        told = [outcome for outcome in outcomes if isinstance(outcome, TooMuchContention)]
        assert len(made) + len(told) == 200
        assert made
        assert all(error.entry_id == entry.id and "store" not in str(error) for error in told)
        read = await memory.get(entry.id)
        assert read is not None
        assert read.metadata == made
        assert len(await memory.entries.history(entry.id)) == len(made) + 1


@pytest.mark.behaviour("A72")
async def test_promotions_at_once_make_one_entry(memory: Memory) -> None:
    source = await memory.write("once", scope=SESSION)
    promoted = await asyncio.gather(*(memory.promote(source.id, to=USER) for _ in range(20)))
    assert {entry.id for entry in promoted} == {promoted[0].id}
    assert await memory.retrieve(USER) == [promoted[0]]


@pytest.mark.behaviour("A55", "D29")
async def test_of_deletions_at_once_one_finds_the_entry(memory: Memory) -> None:
    entry = await memory.write("gone", scope=USER)
    outcomes = await asyncio.gather(*(memory.delete(entry.id) for _ in range(10)))
    assert sorted(map(bool, outcomes)) == [False] * 9 + [True]


@pytest.mark.behaviour("D25")
async def test_of_invalidations_at_once_one_finds_the_entry_active(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("ended", scope=USER)
    clock.advance()
    outcomes = await asyncio.gather(*(memory.entries.invalidate(entry.id) for _ in range(10)))
    assert sorted(map(bool, outcomes)) == [False] * 9 + [True]


@pytest.mark.parametrize("of_entries", [False, True], ids=["messages", "messages-and-entries"])
async def test_of_deletions_of_a_session_at_once_one_finds_it(memory: Memory, of_entries: bool) -> None:
    session = await memory.sessions.create("s1")
    await session.append({"role": "user", "content": "hello"})
    if of_entries:
        await memory.write_many([{"content": f"note {n}", "scope": "session:s1"} for n in range(3)])
    outcomes = await asyncio.gather(*(memory.sessions.delete("s1") for _ in range(4)), session.delete())
    assert sorted(outcomes) == [False] * 4 + [True]
    assert await memory.sessions.get("s1") is None
    assert await memory.retrieve("session:s1") == []
    assert not await memory.sessions.delete("s1")


async def test_of_deletions_of_the_entries_of_a_session_at_once_one_finds_them(memory: Memory) -> None:
    await memory.write("note", scope="session:s1")
    outcomes = await asyncio.gather(*(memory.sessions.delete("s1") for _ in range(5)))
    assert sorted(outcomes) == [False] * 4 + [True]


SAY_WHETHER: dict[str, Callable[[Memory, dict[str, str]], Awaitable[bool]]] = {
    "archive": lambda memory, made: memory.session("s1").archive(),
    "exclude": lambda memory, made: memory.session("s1").exclude("m1"),
    "restore": lambda memory, made: memory.session("s1").restore("m2"),
    "erase": lambda memory, made: memory.session("s1").erase("m3"),
    "tasks.delete": lambda memory, made: memory.session("s1").tasks.delete("t1"),
    "runs.delete": lambda memory, made: memory.session("s1").runs.delete("r1"),
    "artifacts.delete": lambda memory, made: memory.artifacts.delete(made["artifact"]),
    "scratchpads.clear": lambda memory, made: memory.scratchpads.clear("ada"),
    "relations.unrelate": lambda memory, made: memory.relations.unrelate(made["relation"]),
    "documents.delete": lambda memory, made: memory.documents.delete(USER, "d1"),
    "resume": lambda memory, made: memory.session("s1").resume(),
}
"""Calls that return whether they have done something, in an order in which each can."""


async def test_of_each_call_at_once_one_returns_that_it_has_done_something(memory: Memory) -> None:
    session = await memory.sessions.create("s1")
    await session.append([{"role": "user", "content": f"hello {n}", "id": f"m{n}"} for n in range(5)])
    await session.exclude("m2")
    await session.tasks.save("t1")
    await session.runs.save("r1", child_id="c1")
    await memory.scratchpads.append("draft", agent="ada")
    one, two = await memory.write_many([{"content": f"fact {n}", "scope": USER} for n in range(2)])
    await memory.documents.put(USER, "d1", {"n": 1})
    made = {
        "artifact": (await memory.artifacts.put("s1", "a.txt", b"data")).id,
        "relation": (await memory.relations.relate(one.id, "supports", two.id)).id,
    }
    for name, call in SAY_WHETHER.items():
        outcomes = await asyncio.gather(*(call(memory, made) for _ in range(5)))
        assert sorted(outcomes) == [False] * 4 + [True], name


@pytest.mark.behaviour("A56")
@SCOPES
async def test_what_was_acknowledged_before_an_erasure_is_gone_and_what_came_after_stays(
    memory: Memory, scope: Scope
) -> None:
    before = await memory.write_many([{"content": f"before {n}", "scope": scope} for n in range(5)])
    edits: list[Any] = [memory.update(entry.id, content="edited") for entry in before]
    outcomes = await asyncio.gather(memory.admin.erase(scope), *edits, return_exceptions=True)
    assert all(isinstance(o, int | Entry | NotFound) for o in outcomes)
    assert await memory.retrieve(scope) == []
    await memory.write("after", scope=scope)
    assert contents(await memory.retrieve(scope)) == ["after"]


@pytest.mark.behaviour("A93", "B86")
async def test_an_entry_is_in_every_answer_while_it_moves_and_changes(memory: Memory) -> None:
    entry = await memory.write("always there", scope=SESSION)

    async def moves() -> None:
        await memory.admin.move([entry.id], "mid")
        await memory.admin.move([entry.id], "long")

    async def edits() -> None:
        for n in range(6):
            await memory.update(entry.id, metadata={"n": n})

    async def reads() -> list[int]:
        return [
            len(await memory.retrieve(SESSION)) + (await memory.get(entry.id) is not None) for _ in range(12)
        ]

    seen = await asyncio.gather(reads(), moves(), edits(), reads())
    assert set(seen[0]) | set(seen[3]) == {2}
    read = await memory.get(entry.id)
    assert read is not None
    assert (read.tier, read.metadata) == ("long", {"n": 5})


@pytest.mark.behaviour("A84", "A72")
async def test_compactions_at_once_make_one_entry(memory: Memory) -> None:
    ids = [(await memory.write(f"part {n}", scope=USER)).id for n in range(3)]
    made = await asyncio.gather(*(memory.compact(ids, lambda entries: "whole") for _ in range(8)))
    assert {entry.id for entry in made} == {made[0].id}
    assert len(await memory.retrieve(USER)) == 4
    assert await memory.retrieve(ORG) == []
