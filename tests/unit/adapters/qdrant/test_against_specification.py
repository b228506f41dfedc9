"""The same random work on this store and on the one in memory, which is the specification."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.qdrant.store import QdrantStore
from memory.ports.collections import COLLECTIONS, ENTRIES
from memory.ports.contract.support import ELSEWHERE, FOREIGN, HERE, T0, key_of, put, record
from memory.ports.query import (
    And,
    Eq,
    Everywhere,
    Filter,
    Ge,
    Gt,
    Has,
    In,
    IsNull,
    Kind,
    Le,
    Lt,
    Near,
    Not,
    Or,
    Order,
    Query,
    Search,
    Tenant,
    Where,
    Words,
    within,
)
from memory.ports.record import FieldValue, Owed, Record, Role, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Delete, Newer, Purge, RaiseGeneration, Release, When, Write

WORDS = "deploy deploys deployment café naïve 東京 server O'Brien NEAR connected connection".split()
TEXTS = ["", "a", "A", "ab", "é", "\uffff", "\U0001f600", "a b"]
NUMBERS = [0.0, -0.0, 0.1 + 0.2, 0.3, 1.0, 2.0**53, 2.5, -1e308]
VERSIONS = [1, 2, 3, 2**53, 2**53 + 1, 2**62]
MOMENTS = [T0, T0 + timedelta(microseconds=1), T0 - timedelta(days=400), T0.replace(year=9999), T0.replace(year=1)]
PLACES = [HERE, ELSEWHERE, FOREIGN]
WHERES: list[Where] = [within(HERE), within(HERE, ELSEWHERE), Tenant("acme"), Tenant("nobody"), Everywhere()]
ORDERED = ("type", "confidence", "valid_from", "version", "created_at", "expires_at", "id", "owing", "tier", "conversation_id")


def _record(chance: random.Random) -> Record:
    fields: dict[str, FieldValue] = {}
    if chance.random() < 0.8:
        fields["type"] = chance.choice(TEXTS)
    if chance.random() < 0.7:
        fields["tags"] = tuple(chance.sample(TEXTS, chance.randrange(3)))
    if chance.random() < 0.7:
        fields["confidence"] = chance.choice(NUMBERS)
    if chance.random() < 0.5:
        fields["valid_from"] = chance.choice(MOMENTS)
    return record(
        chance.randrange(60),
        chance.choice(PLACES),
        version=chance.choice(VERSIONS),
        fields=fields,
        texts={part: " ".join(chance.choices(WORDS, k=chance.randrange(1, 9))) for part in chance.sample(("title", "content", "tags"), 2)},
        vector=pack_vector([chance.gauss(0, 1) for _ in range(8)]) if chance.random() < 0.7 else None,
        created_at=chance.choice(MOMENTS),
        expires_at=chance.choice([None, T0, T0 + timedelta(seconds=chance.randrange(3))]),
        owed=(Owed("deliver"),) if chance.random() < 0.2 else (),
        role=chance.choice([Role.HOME] * 6 + [Role.REPLICA, Role.CACHED]),
        tier=chance.choice(["", "mid"]),
    )


def _write(chance: random.Random) -> Write:
    at, n, version = chance.choice(PLACES), chance.randrange(60), chance.choice(VERSIONS)
    conditions: list[When] = [Newer(), Absent(), AtVersion(version)]
    writes: list[Write] = [
        put(_record(chance), chance.choice(conditions)),
        put(_record(chance), Newer()),
        put(_record(chance)),
        Delete(ENTRIES, key_of(n, at), version, Newer(), (Owed("erase"),), {"k": [1]}, T0),
        Release(ENTRIES, key_of(n, at), version, "long", discard_at=T0),
        Annotate(ENTRIES, key_of(n, at), version, tier="long", settle=(Owed("deliver"),), accessed_at=T0),
        Purge(ENTRIES, key_of(n, at), version),
        RaiseGeneration(at, chance.choice([0, 0, 0, None])),
    ]
    return chance.choices(writes, weights=[4, 4, 4, 2, 1, 2, 1, 1])[0]


def _filter(chance: random.Random, depth: int = 0) -> Filter:
    if depth < 3 and chance.random() < 0.4:
        parts = tuple(_filter(chance, depth + 1) for _ in range(chance.randrange(3)))
        nested: list[Filter] = [And(parts), Or(parts), Not(_filter(chance, depth + 1))]
        return chance.choice(nested)
    field, values = chance.choice(
        [
            ("type", TEXTS),
            ("confidence", NUMBERS),
            ("version", [*VERSIONS, 2.5]),
            ("valid_from", MOMENTS),
            ("expires_at", MOMENTS),
            ("id", [key_of(5).id]),
        ]
    )
    value: FieldValue = chance.choice(values)  # type: ignore[arg-type]
    kinds: list[Filter] = [
        *[kind(field, value) for kind in (Eq, Lt, Le, Gt, Ge)],
        In(field, tuple(chance.choices(values, k=2))),  # type: ignore[arg-type]
        IsNull(chance.choice([field, "tags"])),
        Has("tags", chance.choice(TEXTS)),
        Eq("owing", chance.random() < 0.5),
    ]
    return chance.choice(kinds)


async def _pages(store: Store, query: Query) -> list[tuple[object, ...]]:
    """Every page; cursors too, which are the same on every store."""
    pages: list[tuple[object, ...]] = []
    while True:
        page = await store.query(query)
        pages.append((page.records, page.cursor, page.corrupt))
        if page.cursor is None:
            return pages
        query = replace(query, cursor=page.cursor)


@pytest.mark.parametrize("seed", range(5))
async def test_random_work_gives_the_same_answers(either: QdrantStore, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    specification = InMemoryStore()
    await specification.open(COLLECTIONS)
    for _ in range(4):
        writes = [_write(chance) for _ in range(60)]
        assert await either.apply(writes) == await specification.apply(writes)
        for _ in range(15):
            part = chance.choice([None, _filter(chance)])
            order = tuple(Order(f, chance.random() < 0.5) for f in chance.sample(ORDERED, chance.randrange(4)))
            limit = chance.choice([None, 3, 10, 30])
            query = Query(ENTRIES, chance.choice(WHERES), part, order, limit, roles=frozenset(chance.sample(list(Role), 2)) | {Role.HOME})
            assert await _pages(either, query) == await _pages(specification, query), query
            assert (await either.count(query)).records == (await specification.count(query)).records, query
        for kinds in ({Kind.TOMBSTONE}, {Kind.MARK}, set(Kind)):
            everything = Query(ENTRIES, Everywhere(), kinds=frozenset(kinds), limit=7)
            assert await _pages(either, everything) == await _pages(specification, everything)
    erased = Query(ENTRIES, within(HERE), _filter(chance), roles=frozenset(Role))
    assert await either.delete_matching(erased, 7, T0, ("type",)) == await specification.delete_matching(erased, 7, T0, ("type",))
    keys = [key_of(n, at) for n in range(60) for at in PLACES]
    assert await either.get(ENTRIES, keys) == await specification.get(ENTRIES, keys)


@pytest.mark.parametrize("seed", range(2))
async def test_searches_find_the_same_records(either: QdrantStore, seed: int) -> None:
    """By meaning with the same scores; by words the same records, each with the specification's order wherever lengths are equal."""
    chance = random.Random(seed)  # noqa: S311
    specification = InMemoryStore()
    await specification.open(COLLECTIONS)
    writes = [put(_record(chance), Newer()) for _ in range(120)]
    assert await either.apply(writes) == await specification.apply(writes)
    for _ in range(40):
        where, part, roles = chance.choice(WHERES), chance.choice([None, _filter(chance)]), frozenset({Role.HOME, chance.choice(list(Role))})
        near = Search(ENTRIES, where, Near(pack_vector([chance.gauss(0, 1) for _ in range(8)])), chance.choice([1, 5, 200]), part, roles)
        ours, theirs = await either.search(near), await specification.search(near)
        assert [h.record for h in ours] == [h.record for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-5)
        by_words = Search(ENTRIES, where, Words(" ".join(chance.choices(WORDS, k=2))), 500, part, roles)
        ours, theirs = await either.search(by_words), await specification.search(by_words)
        assert {h.record.key for h in ours} == {h.record.key for h in theirs}
        headers = await either.search(replace(by_words, whole=False))
        assert [(h.record.key, h.record.version, h.score) for h in headers] == [(h.record.key, h.record.version, h.score) for h in ours]
