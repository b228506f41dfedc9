"""A memory on three stores, of which some are down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory import Memory
from memory.domain.errors import StoreUnavailable
from memory.facade.runtime.access import engine_of

STORES = ("short", "mid", "long")
THREE_STORES: dict[str, Any] = {
    "stores": {name: {"url": "memory://"} for name in STORES},
    "tiers": {name: name for name in STORES},
    "durations": {"sweep_every": "0s"},
}


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0, 2.0] for _ in texts]


def take_down(memory: Memory, name: str) -> None:
    """From now on the store answers nothing."""

    async def nothing(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable(name, "down")

    store: Any = next(leaf for leaf in engine_of(memory).topology.leaves if leaf.name == name)
    for hook in (
        "_get",
        "_apply",
        "_query",
        "_count",
        "_search",
        "_candidates",
        "_delete_matching",
        "_check",
        "_audit",
        "_idle_partitions",
        "_forget_partitions",
    ):
        setattr(getattr(store, "inner", store), hook, nothing)
