"""What a deletion holds of records that may be large: few of them at once, on any store
that goes through them in portions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from types import ModuleType
from typing import Any

import pytest

from memory.ports.collections import LARGE_AT_ONCE
from memory.ports.contract.collections import PLAIN, SAMPLES
from memory.ports.contract.support import HERE, apply_all, put, record
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Query, within
from memory.ports.store import Store


async def few_that_may_be_large_are_held_at_once(
    store: Store, reading: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`reading` is the module that goes through what is to be deleted. Of what has no
    bytes many are held: each portion costs its round trips.
    """
    held: list[int] = []

    async def watched(portion: Iterable[Any]) -> AsyncIterator[Any]:
        assert isinstance(portion, Collection)
        held.append(len(portion))
        async for one in iterate_cooperatively(portion):
            yield one

    await apply_all(store, *[put(record(n, fields={"type": "x", "seal": b"x" * 1000})) for n in range(20)])
    await apply_all(store, *[put(record(n), collection=PLAIN) for n in range(20)])
    monkeypatch.setattr(reading, "iterate_cooperatively", watched)
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 100) == 20
    assert max(held) <= LARGE_AT_ONCE
    held.clear()
    assert await store.delete_matching(Query(PLAIN, within(HERE)), 100) == 20
    assert max(held) == 20
