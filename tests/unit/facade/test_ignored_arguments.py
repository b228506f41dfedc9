"""An argument that a call cannot honour is refused by its name, never ignored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import InvalidInput, Memory, Scope

ADA = Scope.user("ada")


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory(tmp_path / "a.db", embedder="none") as opened:
        yield opened


OF_A_RANKING: dict[str, Any] = {
    "min_relevance": 0.5,
    "by": "words",
    "half_life": timedelta(days=3),
    "decay_floor": 0.2,
    "expand": True,
    "rerank": "two-stage",
}
"""Arguments of `search` that a blank query, which browses, cannot honour."""

OF_A_BROWSE: dict[str, Any] = {
    "limit": 5,
    "types": ["user"],
    "tags": ["a"],
    "only": {"tags": ["a"]},
    "since": 1_000_000_000,
    "session_id": "s",  # with `include_narrower` alone (A37)
    "include_narrower": True,
    "as_of": 4_000_000_000,
    "known_at": 4_000_000_000,
    "conversation_id": "s",
    "intent": False,  # and nothing is routed
    "age_decay": False,  # and nothing ages
    "explain": True,
    "messages": True,  # documented: messages are not browsed
}


async def test_a_blank_query_refuses_what_belongs_to_a_ranking(memory: Memory) -> None:
    from memory.facade.wanted import SearchOptions

    assert OF_A_RANKING.keys() | OF_A_BROWSE.keys() == SearchOptions.__annotations__.keys() | {"messages"}, "say whether a browse honours it"
    await memory.write("tea", scope=ADA)
    for name, value in OF_A_RANKING.items():
        with pytest.raises(InvalidInput, match=f"^{name}: does not go with a blank query"):
            await memory.search(" \n", scope=ADA, **{name: value})
        with pytest.raises(InvalidInput, match=f"^{name}: does not go with a blank query"):
            await memory.scoped(ADA).search("", **{name: value})
    for name, value in OF_A_BROWSE.items():
        await memory.search("", scope=ADA, **{name: value})


async def test_a_context_refuses_what_belongs_to_a_budget_or_a_recall(memory: Memory) -> None:
    session = memory.session("s", user="ada")
    await session.append({"role": "user", "content": "tea"})
    for name, value in {"slack": 0.5, "by": "turns", "min_relevance": 0.5}.items():
        with pytest.raises(InvalidInput, match=f"^{name}: "):
            await session.context(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"^min_relevance: does not go with a blank query"):
        await session.context(recall=" ", min_relevance=0.5)
    assert len((await session.context(1_000, slack=0.5, by="turns", recall="tea", min_relevance=0.5)).messages) == 1
