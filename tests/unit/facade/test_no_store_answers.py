"""A search that no store answers raises: an empty answer would look as if nothing were
known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memory import Memory
from memory.domain.errors import StoreUnavailable
from memory.facade.runtime.access import engine_of
from tests.support.three_stores import THREE_STORES, embed, take_down

SCOPES = ["user:ada", "session:s"]
READS: dict[str, Callable[[Memory], Awaitable[Any]]] = {
    "retrieve": lambda m: m.retrieve("user:ada"),
    "retrieve at a moment": lambda m: m.retrieve("user:ada", known_at=engine_of(m).placement.now()),
    "browse": lambda m: m.browse(),
    "search": lambda m: m.search("text", scope=SCOPES),
    "search by words": lambda m: m.search("text", scope=SCOPES, mode="lexical"),
    "search by meaning": lambda m: m.search("text", scope=SCOPES, mode="semantic"),
    "search with messages": lambda m: m.search("text", scope=SCOPES, messages=True),
    "search with paraphrases": lambda m: m.search("text", scope=SCOPES, expand=True),
    "search at a moment": lambda m: m.search("text", scope=SCOPES, known_at=engine_of(m).placement.now()),
    "search for nothing": lambda m: m.search(" ", scope=SCOPES),
}


async def _opened(config: Any) -> Memory:
    memory = await Memory(config, embedder=embed).open()
    await memory.write("text of the user", scope="user:ada")
    await memory.write("text of the session", scope="session:s")
    await memory.session("s", user="ada").append({"role": "user", "content": "text"})
    return memory


@pytest.mark.parametrize("config", ["memory://", THREE_STORES], ids=["one store", "three stores"])
async def test_a_read_that_no_store_answers_raises(config: Any) -> None:
    memory = await _opened(config)
    names = list(dict.fromkeys(leaf.name for leaf in engine_of(memory).topology.leaves))
    for name in names:
        take_down(memory, name)
    for read, call in READS.items():
        with pytest.raises(StoreUnavailable, match="down"):
            pytest.fail(f"{read} answered {await call(memory)}")
    await memory.close()


async def test_a_store_that_is_not_asked_is_no_answer() -> None:
    memory = await _opened(THREE_STORES)
    take_down(memory, "mid")
    assert (await memory.search("text", scope="user:ada")).degraded  # `long` answered
    take_down(memory, "long")
    for call in (memory.search("text", scope="user:ada"), memory.retrieve("user:ada")):
        with pytest.raises(StoreUnavailable, match=r"'mid'.*'long'"):
            await call
    assert (
        await memory.retrieve("user:ada", include_narrower=True, session_id="s")
    ).degraded  # `short` answered
    await memory.close()
