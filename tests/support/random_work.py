"""Random records and many questions: an adapter under test is to answer them as the store in memory does, which is the specification."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from memory.ports.collections import ENTRIES
from memory.ports.contract.support import HERE, key_of, record
from memory.ports.query import Eq, Gt, Has, IsNull, Near, Not, Or, Order, Query, Search, Tenant, Words, within
from memory.ports.record import FieldValue, Partition, Record, Role
from memory.ports.store import Store

SCOPES = [HERE, Partition("acme", "user:bob"), Partition("acme", "org")]
WORDS = "deploy deploys deployment café cafe naïve 東京 東 server O'Brien NEAR AND * ( x1 über straße connection connected".split()


def random_record(chance: random.Random, n: int) -> Record:
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


async def answers(store: Store, semantic: bool = True) -> list[object]:
    """What the store answers to many questions, scores included."""
    given: list[object] = []
    wheres = (within(HERE), within(*SCOPES), Tenant("acme"), within(Partition("acme", "nobody")))
    filters = (None, Has("tags", "a"), Not(Has("tags", "\n")), Or((IsNull("confidence"), Gt("confidence", 0.2))), Not(Eq("confidence", 0.5)))
    nearest = [Near(np.arange(1, 17, dtype="<f4").tobytes())] if semantic else []
    asked: list[Words | Near] = [Words("deploying café"), Words("O'Brien"), Words("東京 AND * ("), *nearest]
    for where in wheres:
        for part in filters:
            for roles in (frozenset({Role.HOME}), frozenset({Role.HOME, Role.REPLICA}), frozenset({Role.REPLICA})):
                for by in asked:
                    hits = await store.search(Search(ENTRIES, where, by, 7, part, roles))
                    given.append([(h.record, h.score) for h in hits])
                for order in ((), (Order("confidence", True), Order("type")), (Order("created_at", True),)):
                    given.append((await store.query(Query(ENTRIES, where, part, order, roles=roles))).records)
    return given
