"""The same random work on this store and on the one in memory, which is the specification: the same answers, scores included."""

from __future__ import annotations

import random

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.sql.postgresql import searching
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.ports.collections import COLLECTIONS, ENTRIES
from memory.ports.contract.support import HERE, T0, done, key_of, put, record
from memory.ports.query import Eq, Ge, Gt, In, Le, Lt, Not, Query, Search, Words, within
from memory.ports.writes import Delete, Newer
from tests.support.random_work import answers, random_record
from tests.unit.adapters.sql.postgresql.conftest import BOTH


@pytest.mark.parametrize("server", BOTH, indirect=True)
@pytest.mark.parametrize("seed", range(2))
async def test_random_work_gives_the_sameanswers(store: PostgresStore, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    claims = store.capabilities
    specification = InMemoryStore()
    await specification.open(COLLECTIONS)
    for _ in range(3):
        writes = [
            Delete(ENTRIES, key_of(chance.randrange(80)), chance.randrange(2, 6), Newer(), discard_at=T0)
            if chance.random() < 0.15
            else put(random_record(chance, chance.randrange(80)), Newer())
            for _ in range(60)
        ]
        assert await store.apply(writes) == await specification.apply(writes)
        for mine, other in zip(await answers(store, claims.semantic), await answers(specification, claims.semantic), strict=True):
            assert mine == other


@pytest.mark.parametrize("server", BOTH[:1], indirect=True)
async def test_a_search_over_more_partitions_than_the_index_is_asked_for_finds_the_same(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(3)  # noqa: S311
    await done(store, *[put(random_record(chance, n)) for n in range(60)])
    before = await answers(store, semantic=False)
    monkeypatch.setattr(searching, "MOST_LEXEMES", 0)
    assert await answers(store, semantic=False) == before


async def _numbers_of(store: InMemoryStore | PostgresStore, part: object) -> list[str]:
    return [r.key.id for r in (await store.query(Query(ENTRIES, within(HERE), part))).records]  # type: ignore[arg-type]


@pytest.mark.parametrize("server", BOTH[:1], indirect=True)
async def test_numbers_of_any_kind_compare_exactly(store: PostgresStore) -> None:
    specification = InMemoryStore()
    await specification.open(COLLECTIONS)
    reals = (-1e308, -1.5, 0.0, 0.1, 2.0**53, 2.0**53 + 2, 1e308)
    versions = (1, 2, 2**53, 2**53 + 1, 2**63 - 1)
    for client in (store, specification):
        await done(client, *[put(record(n, fields={"confidence": real}, version=versions[n % 5])) for n, real in enumerate(reals)])
    asked = (0, 1, -2, 2**53, 2**53 + 1, 10**400, -(10**400), 0.1, 1.5, float("inf"), float("-inf"), float("nan"), 2.0**53, True)
    for field in ("confidence", "version"):
        for value in asked:
            for part in (Eq, Lt, Le, Gt, Ge):
                for whole in (part(field, value), Not(part(field, value))):
                    assert await _numbers_of(store, whole) == await _numbers_of(specification, whole), whole
        assert await _numbers_of(store, In(field, asked)) == await _numbers_of(specification, In(field, asked))


@pytest.mark.parametrize("server", BOTH[:1], indirect=True)
async def test_a_long_question_finds_and_scores_as_a_short_one_does(store: PostgresStore) -> None:
    specification = InMemoryStore()
    await specification.open(COLLECTIONS)
    for client in (store, specification):
        await done(client, *[put(record(n, texts={"content": f"word{n} shared lantern"})) for n in range(40)])
    by = Words(" ".join(f"word{n}" for n in range(30)) + " shared")
    search = Search(ENTRIES, within(HERE), by, 50)
    ours, theirs = await store.search(search), await specification.search(search)
    assert [h.record.key for h in ours] == [h.record.key for h in theirs]
    assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], rel=1e-12)
