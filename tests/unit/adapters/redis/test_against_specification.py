"""The same random work on this store and on the one in memory, which is the specification: the same answers.

Ids are of every kind: of their record's partition, of another partition's making, and not this library's at all; scopes of a key change.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.redis.store import RedisStore
from memory.ports.collections import COLLECTIONS, ENTRIES, ENTRY_VERSIONS
from memory.ports.contract.support import HERE, T0, id_of, record
from memory.ports.query import And, Eq, Everywhere, Filter, Gt, Has, IsNull, Kind, Lt, Not, Or, Order, Query, Tenant, Where, within
from memory.ports.record import FieldValue, Key, Owed, Partition, Record, Role
from memory.ports.store import Store
from memory.ports.writes import Absent, Always, Annotate, Append, AtVersion, Delete, Newer, Purge, Put, RaiseGeneration, Release, When, Write
from tests.support import redis_servers
from tests.unit.adapters.redis.conftest import SERVERS

SCOPES = [HERE, Partition("acme", "user:bob"), Partition("acme", "org"), Partition("umbrella", "user:ann")]
ODD = ["", "*", "a{b}c", "x\x00y", "x\x01", "x", "é", "~78", "A" * 70, "\ud800"]
STEPS = (Owed("deliver", {"to": "long", "n": 1}), Owed("erase", {"deep": [1, {"x": None}]}))


def _ids() -> list[str]:
    return [id_of(n, SCOPES[n % 4]) for n in range(12)] + ODD


def _record(chance: random.Random) -> Record:
    fields: dict[str, FieldValue] = {
        "type": chance.choice(("fact", "event")),
        "tags": tuple(chance.sample(("a", "A", '"', "\n"), chance.randrange(3))),
    }
    if chance.random() < 0.5:
        fields["confidence"] = chance.choice((0.0, 0.5, 1.0))
    made = record(1, at=chance.choice(SCOPES), version=chance.randrange(1, 5), fields=fields, role=chance.choice(list(Role)))
    at = T0 + timedelta(seconds=chance.randrange(4))
    generation = chance.choice((None, None, None, 0, 1, 2))
    owed = tuple(chance.sample(STEPS, chance.randrange(3)))
    key = Key(made.key.tenant, chance.choice(_ids()))
    return replace(made, key=key, created_at=at, updated_at=at, owed=owed, generation=generation, tier=chance.choice(("short", "mid")))


def _when(chance: random.Random) -> When:
    return chance.choice(
        (Absent(), Newer(), Newer(), Always(), AtVersion(chance.randrange(1, 5), chance.choice((None, Role.HOME)), chance.choice((None, "mid"))))
    )


def _write(chance: random.Random) -> Write:
    made, version = _record(chance), chance.randrange(1, 6)
    kind = chance.randrange(10)
    if kind < 4:
        return Put(ENTRIES, made, _when(chance))
    if kind == 4:
        return Append(ENTRY_VERSIONS, made, "numbers", "stored_version")
    if kind == 5:
        when = chance.choice((Newer(), AtVersion(version)))
        return Delete(ENTRIES, made.key, version, when, made.owed, {"k": version}, T0)
    if kind == 6:
        return Release(ENTRIES, made.key, version, chance.choice(("mid", "long")), made.owed, T0)
    if kind == 7:
        changes: dict[str, Any] = chance.choice(({"tier": "x"}, {"role": Role.HOME}, {"accessed_at": T0}, {"discard_at": T0}, {"settle": STEPS[:1]}))
        return Annotate(ENTRIES, made.key, version, **changes)
    if kind == 8:
        return Purge(ENTRIES, made.key, version, chance.choice((None, Role.ARRIVING)))
    return RaiseGeneration(made.partition, chance.choice((None, 0, 1, 2))) if chance.random() < 0.3 else Put(ENTRIES, made, Newer())


async def _answers(store: Store) -> dict[str, object]:
    answers: dict[str, object] = {}
    wheres: dict[str, Where] = {"here": within(HERE), "acme": Tenant("acme"), "scopes": within(*SCOPES[:3]), "all": Everywhere()}
    filters: tuple[Filter | None, ...] = (None, None, Has("tags", "a"), Or((IsNull("confidence"), Gt("confidence", 0.2))), Eq("owing", True))
    orders = ((), (Order("created_at", True),), (Order("created_at"), Order("id")), (Order("type"), Order("confidence", True)), (Order("id", True),))
    for name, where in wheres.items():
        for part, order in zip(filters, orders, strict=True):
            query = Query(ENTRIES, where, part, order, roles=frozenset(Role))
            answers[f"{name} {part} {order}"] = (await store.query(query)).records
            answers[f"{name} {part} {order} count"] = (await store.count(query)).records
            answers[f"{name} {part} {order} pages"] = await _pages(store, replace(query, limit=7))
    graves: tuple[Filter | None, ...] = (None, And((Lt("discard_at", T0 + timedelta(days=1)), Not(Eq("owing", True)))), Eq("owing", True))
    for kinds in (frozenset({Kind.MARK}), frozenset({Kind.TOMBSTONE}), frozenset(Kind)):
        for grave in graves:
            query = Query(ENTRIES, Everywhere(), grave, kinds=kinds, limit=5)
            answers[f"{sorted(kinds)} {grave}"] = await _pages(store, query)
    answers["versions"] = (await store.query(Query(ENTRY_VERSIONS, Everywhere(), roles=frozenset(Role)))).records
    return answers


async def _pages(store: Store, query: Query) -> list[object]:
    pages: list[object] = []
    while True:
        page = await store.query(query)
        pages.append((page.records, page.cursor))
        if page.cursor is None:
            return pages
        query = replace(query, cursor=page.cursor)


@pytest.mark.parametrize("scheme", SERVERS)
@pytest.mark.parametrize("seed", range(3))
async def test_random_work_gives_the_same_answers(scheme: str, seed: int, prefix: str) -> None:
    chance = random.Random(seed)  # noqa: S311
    server = redis_servers.durable() if scheme == "redis" else redis_servers.cluster()
    specification, ours = InMemoryStore(), RedisStore(f"{scheme}://127.0.0.1:{server.port}", prefix=prefix)
    for store in (specification, ours):
        await store.open(COLLECTIONS)
    try:
        for _ in range(4):
            writes = [_write(chance) for _ in range(40)]
            expected, outcomes = await specification.apply(writes), await ours.apply(writes)
            for write, one, other in zip(writes, outcomes, expected, strict=True):
                assert one == other, write
            mine, theirs = await _answers(ours), await _answers(specification)
            for question, answer in theirs.items():
                assert mine[question] == answer, question
        query = Query(ENTRIES, Tenant("acme"), Eq("type", "fact"), roles=frozenset(Role))
        deleted = [await store.delete_matching(query, 50, T0, keep=("type",)) for store in (ours, specification)]
        assert deleted[0] == deleted[1]
        assert await _answers(ours) == await _answers(specification)
    finally:
        await ours.close()
        redis_servers.emptied(server.port)
