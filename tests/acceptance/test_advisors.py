"""Cases of searches with advice, wherever the tiers are."""

from __future__ import annotations

from typing import Any

import pytest

from memory import Memory
from memory.ports.advisor import Prompt
from tests.acceptance.support import USER, Clock, contents


def reversing(prompt: Prompt) -> str:
    """The ids that it was shown, the last first."""
    return ", ".join(
        line.partition("]")[0] for line in reversed(prompt.user.splitlines()) if line.startswith("[id=")
    )


async def with_tea(memory: Memory) -> None:
    for n in range(12):
        await memory.write(" ".join(["tea"] * (12 - n) + ["filler"] * n), scope=USER)


@pytest.mark.parametrize(
    ("reply", "queries", "note"),
    [
        ("1. first\n- second\n\nab\nwhat is it?\nthird", ("first", "second"), None),
        ("ERR", (), "(query expansion advisor unavailable — searching original only)"),
    ],
    ids=["paraphrases", "ERR"],
)
@pytest.mark.behaviour("AC-D35", "D87", "D89", "D90")
async def test_a_question_is_searched_for_in_two_other_wordings_or_alone(
    config: dict[str, Any], clock: Clock, reply: str, queries: tuple[str, ...], note: str | None
) -> None:
    async with Memory(config, clock=clock, advisor=lambda _: reply) as memory:
        for text in ("what it was", "first of all", "second to none", "third time lucky"):
            await memory.write(text, scope=USER)
        plain = contents(hit.entry for hit in await memory.search("what is it?", scope=USER))
        found = await memory.search("what is it?", scope=USER, expand=True)
        assert found.expansion is not None
        assert (found.expansion.queries, found.expansion.note) == (queries, note)
        assert set(contents(hit.entry for hit in found)) == {
            *plain,
            *(["first of all", "second to none"] if queries else []),
        }
        assert found.degraded == (() if note is None else (note,))


@pytest.mark.behaviour("AC-D37", "D97")
async def test_the_second_stage_orders_the_first_eight_and_leaves_the_rest(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config, clock=clock, advisor=reversing) as memory:
        await with_tea(memory)
        plain = contents(hit.entry for hit in await memory.search("tea", scope=USER, limit=12))
        found = contents(
            hit.entry for hit in await memory.search("tea", scope=USER, limit=12, rerank="two-stage")
        )
        first = plain[::-1]
        assert len(first) == 12
        assert found == [*first[:8][::-1], *first[8:]]
