"""The same random work on this store and on the one in memory, which is the specification: the same answers, scores included."""

from __future__ import annotations

import random

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.collections import COLLECTIONS, ENTRIES
from memory.ports.contract.support import T0, key_of, put
from memory.ports.writes import Delete, Newer
from tests.support.random_work import answers, random_record


@pytest.mark.parametrize("seed", range(3))
async def test_random_work_gives_the_sameanswers(store: SqliteStore, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    specification = InMemoryStore()
    await specification.open(COLLECTIONS)
    for _ in range(4):
        writes = [
            Delete(ENTRIES, key_of(chance.randrange(80)), chance.randrange(2, 6), Newer(), discard_at=T0)
            if chance.random() < 0.15
            else put(random_record(chance, chance.randrange(80)), Newer())
            for _ in range(60)
        ]
        assert await store.apply(writes) == await specification.apply(writes)
        ours, theirs = await answers(store), await answers(specification)
        for mine, other in zip(ours, theirs, strict=True):
            assert mine == other
