"""Long texts by meaning on stores of every kind; `tests/acceptance/test_long_texts.py`
has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.collections import ENTRY_PASSAGES
from tests.support.backends import marks_of
from tests.support.depth import beyond
from tests.support.long_texts import ABOUT, astray, long_text, rows
from tests.support.placings import BESIDE_EDGE, ORDINARY, forget

KITTEN, QUESTION = "Ada adopted a small kitten from the shelter.", "which pet cat lives with her"
EVERYONES = {"default"}
"""Where everyone's run does it."""
USER, SESSION = "user:ada", "session:s1"


@pytest.fixture(
    params=[
        pytest.param(
            placing,
            id=placing.name,
            marks=[*marks_of(*placing.backends), *beyond(placing.name, EVERYONES, {"redis-postgres-edge"})],
        )
        for placing in (*ORDINARY, *BESIDE_EDGE)
    ]
)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    yield request.param.config(tmp_path)
    forget(tmp_path)


async def test_a_sentence_at_the_end_is_found_where_it_was_written_and_where_it_went(
    config: dict[str, Any],
) -> None:
    async with Memory(config) as memory:
        for scope in (USER, SESSION):
            await memory.write_many(
                [{"content": text, "scope": scope} for text in (*map(long_text, ABOUT), "It rained all week")]
            )
            told = await memory.write(long_text("money", KITTEN), scope=scope)
            assert (await memory.search(QUESTION, scope=scope))[0].entry.id == told.id
            await memory.admin.move([told.id], "long")
            assert (await memory.search(QUESTION, scope=scope))[0].entry.id == told.id
            await memory.update(told.id, content=long_text("trains"))
            assert (await memory.search(QUESTION, scope=scope))[0].entry.id != told.id
            await memory.update(told.id, content=long_text("trains", KITTEN))
            assert (await memory.search(QUESTION, scope=scope, mode="semantic"))[0].entry.id == told.id
            await memory.admin.sweep()
            assert await astray(engine_of(memory)) == []
            await memory.delete(told.id)
            await memory.admin.sweep()
            assert await astray(engine_of(memory)) == []
        await memory.admin.erase(USER)
        await memory.admin.erase(SESSION)
        assert [
            row for leaf in engine_of(memory).topology.leaves for row in await rows(leaf, ENTRY_PASSAGES)
        ] == []
