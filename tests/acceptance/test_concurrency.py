"""Many callers at once, over every placing of the tiers: every acknowledged change
counts once.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from memory import Entry, NotFound, Scope, TooMuchContention
from memory.facade.memory import Memory
from tests.acceptance.support import ORG, SESSION, USER, Clock, contents

SCOPES = pytest.mark.parametrize("scope", [USER, SESSION], ids=str)


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
