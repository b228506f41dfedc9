"""The same random work on this store and on the one in memory, which is the specification: the same answers, scores included."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.sql.store import SqlStore
from memory.ports.collections import COLLECTIONS, ENTRIES
from memory.ports.contract.support import HERE, T0, key_of, put, record
from memory.ports.query import Eq, Gt, Has, IsNull, Near, Not, Or, Order, Query, Search, Tenant, Words, within
from memory.ports.record import FieldValue, Partition, Record, Role
from memory.ports.store import Store
from memory.ports.writes import Delete, Newer

SCOPES = [HERE, Partition("acme", "user:bob"), Partition("acme", "org")]
WORDS = "deploy deploys deployment café cafe naïve 東京 東 server O'Brien NEAR AND * ( x1 über straße connection connected".split()


def _random_record(chance: random.Random, n: int) -> Record:
    fields: dict[str, FieldValue] = {
        "type": chance.choice(("fact", "event")),
        "tags": tuple(chance.sample(("a", "A", "a b", '"', "\\", ",", "\n"), chance.randrange(4))),
    }
    if chance.random() < 0.5:
        fields["confidence"] = chance.choice((0.0, 0.5, 1.0))
    texts = {part: " ".join(chance.choices(WORDS, k=chance.randrange(1, 12))) for part in chance.sample(("title", "content", "tags"), 2)}
    vector = np.array([chance.gauss(0, 1) for _ in range(16)], "<f4").tobytes() if chance.random() < 0.8 else None
    role = Role.REPLICA if chance.random() < 0.1 else Role.HOME
    made = record(n, at=chance.choice(SCOPES), version=chance.randrange(1, 4), fields=fields, texts=texts, vector=vector, role=role)
    return replace(made, key=key_of(n))


async def _answers(store: Store, semantic: bool = True) -> list[object]:
    answers: list[object] = []
    wheres = (within(HERE), within(*SCOPES), Tenant("acme"), within(Partition("acme", "nobody")))
    filters = (None, Has("tags", "a"), Not(Has("tags", "\n")), Or((IsNull("confidence"), Gt("confidence", 0.2))), Not(Eq("confidence", 0.5)))
    nearest = [Near(np.arange(1, 17, dtype="<f4").tobytes())] if semantic else []
    asked: list[Words | Near] = [Words("deploying café"), Words("O'Brien"), Words("東京 AND * ("), *nearest]
    for where in wheres:
        for part in filters:
            for roles in (frozenset({Role.HOME}), frozenset({Role.HOME, Role.REPLICA}), frozenset({Role.REPLICA})):
                for by in asked:
                    hits = await store.search(Search(ENTRIES, where, by, 7, part, roles))
                    answers.append([(h.record, h.score) for h in hits])
                for order in ((), (Order("confidence", True), Order("type")), (Order("created_at", True),)):
                    answers.append((await store.query(Query(ENTRIES, where, part, order, roles=roles))).records)
    return answers


@pytest.mark.parametrize("seed", range(3))
async def test_random_work_gives_the_same_answers(store: SqlStore, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    specification = InMemoryStore()
    await specification.open(COLLECTIONS)
    for _ in range(4):
        writes = [
            Delete(ENTRIES, key_of(chance.randrange(80)), chance.randrange(2, 6), Newer(), discard_at=T0)
            if chance.random() < 0.15
            else put(_random_record(chance, chance.randrange(80)), Newer())
            for _ in range(60)
        ]
        assert await store.apply(writes) == await specification.apply(writes)
        ours, theirs = await _answers(store), await _answers(specification)
        for mine, other in zip(ours, theirs, strict=True):
            assert mine == other
