"""A sentence at the end of a long text is found by meaning, as long as the text says
it, wherever the tiers are.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from memory import Scope
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.collections import ENTRY_PASSAGES
from tests.acceptance.support import OTHER_USER, SESSION, USER, Clock
from tests.support.long_texts import ABOUT, astray, long_text, rows

KITTEN = "Ada adopted a small kitten from the shelter."
QUESTION = "which pet cat lives with her"
"""Has no word of that but `her`, which no text has either."""
SHORT = ("The meeting is on Friday", "It rained all week in the hills")


async def _found(memory: Memory, scope: Scope, **asked: Any) -> list[str]:
    return [hit.entry.id for hit in await memory.search(QUESTION, scope=scope, **asked)]


async def _others(memory: Memory, scope: Scope) -> None:
    await memory.write_many(
        [{"content": content, "scope": scope} for content in (*map(long_text, ABOUT), *SHORT)]
    )


async def _passages(memory: Memory) -> int:
    return sum([len(await rows(leaf, ENTRY_PASSAGES)) for leaf in engine_of(memory).topology.leaves])


@pytest.mark.parametrize("scope", [USER, SESSION])
async def test_a_sentence_at_the_end_of_a_long_text_is_found_while_it_is_said(
    config: dict[str, Any], clock: Clock, scope: Scope
) -> None:
    async with Memory(config | {"embedder": "wordllama"}, clock=clock) as memory:
        await _others(memory, scope)
        told = await memory.write(long_text("money", KITTEN), scope=scope, tags=["diary"])
        hits = await memory.search(QUESTION, scope=scope, explain=True)
        assert hits[0].entry.id == told.id
        part = hits[0].explanation["part"]
        assert part["number"] == part["of"]
        assert KITTEN in told.content[slice(*part["characters"])]
        assert await astray(engine_of(memory)) == []

        await memory.update(told.id, tags=["diary", "old"])
        assert (await _found(memory, scope, mode="semantic"))[0] == told.id
        await memory.admin.move([told.id], "long")
        assert (await _found(memory, scope))[0] == told.id
        assert await astray(engine_of(memory)) == []

        await memory.update(told.id, content=long_text("money"))
        assert (await _found(memory, scope))[:1] != [told.id]
        assert await astray(engine_of(memory)) == []
        await memory.update(told.id, content=KITTEN)
        assert (await _found(memory, scope))[0] == told.id
        assert await astray(engine_of(memory)) == []


async def test_filters_validity_and_expiry_hold_for_what_a_part_is_found_by(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config | {"embedder": "wordllama"}, clock=clock) as memory:
        await _others(memory, USER)
        told = await memory.write(
            long_text("plants", KITTEN), scope=USER, tags=["diary"], type="learning", metadata={"of": "ada"}
        )
        assert (await _found(memory, USER, filter={"tags": ["diary"], "types": ["learning"]})) == [told.id]
        assert await _found(memory, USER, filter={"metadata": {"of": "ada"}}) == [told.id]
        assert told.id not in await _found(memory, USER, filter={"types": ["project"]})
        assert told.id not in await _found(memory, USER, filter={"metadata": {"of": "bob"}})
        assert told.id not in await _found(memory, OTHER_USER)
        async with memory.for_tenant("another") as other:
            assert await _found(other, USER) == []
        before = clock.advance()
        clock.advance()
        await memory.entries.invalidate(told.id)
        assert told.id not in await _found(memory, USER)
        assert (await _found(memory, USER, as_of=before))[0] == told.id
        soon = await memory.write(
            long_text("trains", KITTEN), scope=USER, expires_at=clock.moment + timedelta(hours=1)
        )
        assert (await _found(memory, USER))[0] == soon.id
        clock.advance(timedelta(hours=2))
        assert soon.id not in await _found(memory, USER)


async def test_nothing_is_left_of_the_parts_of_what_was_deleted_or_erased(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config | {"embedder": "wordllama"}, clock=clock) as memory:
        kept = await memory.write(long_text("plants"), scope=OTHER_USER)
        its = await _passages(memory)
        assert its > 40
        one = await memory.write(long_text("money", KITTEN), scope=SESSION)
        copy = await memory.promote(one.id, USER)
        assert (await _found(memory, USER))[0] == copy.id
        assert await astray(engine_of(memory)) == []
        await memory.delete(one.id)
        assert (await _found(memory, USER))[0] == copy.id
        assert await _passages(memory) < 3 * its
        await memory.admin.erase(USER)
        assert await _passages(memory) == its
        await memory.delete(kept.id)
        assert await _passages(memory) == 0
        await memory.admin.sweep()
        assert await engine_of(memory).maintenance.count_pending() == 0
