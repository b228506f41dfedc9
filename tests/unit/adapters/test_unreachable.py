"""A server that is not there: each adapter says in words what failed."""

from __future__ import annotations

import pytest

from memory.domain.errors import StoreUnavailable
from memory.facade.memory import Memory
from memory.ports.contract.cells import cells

REFUSED = {
    "redis": ("redis://127.0.0.1:1", "the connection was refused"),
    "cluster": ("redis+cluster://127.0.0.1:1", "the connection was refused"),
    "sentinel": ("redis+sentinel://127.0.0.1:1/service", "no sentinel can be reached"),
    "postgresql": ("postgresql://user:hidden@127.0.0.1:1/memory", "the connection was refused"),
    "mysql": ("mysql://user:hidden@127.0.0.1:1/memory", "the connection was refused"),
    "mongodb": ("mongodb://127.0.0.1:1/memory?timeout=1&connect_timeout=1", "the connection was refused"),
    "qdrant": ("qdrant://127.0.0.1:1", "the connection was refused"),
}


@cells("kind", REFUSED, shared=True)
async def test_a_refused_connection_is_told_in_words(kind: str) -> None:
    url, reason = REFUSED[kind]
    store = {"stores": {"s": {"url": url}}, "embedder": "none"}
    with pytest.raises(StoreUnavailable, match=reason) as refused:
        async with Memory({**store, "tiers": {"short": "s", "mid": "s", "long": "s"}}):
            pass
    assert "hidden" not in str(refused.value)
