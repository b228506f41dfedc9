"""What the contract's comparison with the store in memory does not reach: ways of
searching and comparing that are PostgreSQL's own.
"""

from __future__ import annotations

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.adapters.sql.postgresql.thresholds import Thresholds
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.random_work import RandomWork
from memory.ports.contract.support import HERE, apply_all, put, record
from memory.ports.query import MAX_LIMIT, Eq, Ge, Gt, In, Le, Lt, Not, Query, Search, Words, within
from memory.ports.record import FieldValue
from tests.support.postgres_servers import Postgres
from tests.unit.adapters.sql.postgresql.conftest import BOTH


@pytest.mark.parametrize("server", BOTH[:1], indirect=True)
async def test_a_search_over_more_partitions_than_the_index_is_asked_for_finds_the_same(
    server: Postgres, schema: str, store: PostgresStore
) -> None:
    work = RandomWork(3, store.capabilities)
    await store.apply([put(work.record()) for _ in range(100)])
    searches = [work.by_words(7) for _ in range(40)]
    before = [await store.search(search) for search in searches]
    assert any(before)
    unasked = PostgresStore(server.url(schema), thresholds=Thresholds(lexemes_asked=0))
    await unasked.open(DECLARED)
    assert [await unasked.search(search) for search in searches] == before
    await unasked.close()


async def _numbers_of(store: InMemoryStore | PostgresStore, part: object) -> list[str]:
    return [
        r.key.id
        for r in (await store.query(Query(SAMPLES, within(HERE), part, limit=MAX_LIMIT))).records  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("server", BOTH[:1], indirect=True)
async def test_numbers_of_any_kind_compare_exactly(store: PostgresStore) -> None:
    specification = InMemoryStore()
    await specification.open(DECLARED)
    reals = (-1e308, -1.5, 0.0, 0.1, 2.0**53, 2.0**53 + 2, 1e308)
    versions = (1, 2, 2**53, 2**53 + 1, 2**63 - 1)
    for client in (store, specification):
        await apply_all(
            client,
            *[
                put(record(n, fields={"confidence": real}, version=versions[n % 5]))
                for n, real in enumerate(reals)
            ],
        )
    asked: dict[str, tuple[FieldValue, ...]] = {
        "confidence": (0, 1, -2, 2**53, 0.1, 1.5, 2.0**53, -1e308, 1e308),
        "version": (1, 2, 2**53, 2**53 + 1, 2**63 - 1),
    }
    for field, values in asked.items():
        for value in values:
            for part in (Eq, Lt, Le, Gt, Ge):
                for whole in (part(field, value), Not(part(field, value))):
                    assert await _numbers_of(store, whole) == await _numbers_of(specification, whole), whole
        assert await _numbers_of(store, In(field, values)) == await _numbers_of(
            specification, In(field, values)
        )


@pytest.mark.parametrize("server", BOTH[:1], indirect=True)
async def test_a_long_question_finds_and_scores_as_a_short_one_does(store: PostgresStore) -> None:
    specification = InMemoryStore()
    await specification.open(DECLARED)
    for client in (store, specification):
        await apply_all(
            client, *[put(record(n, texts={"content": f"word{n} shared lantern"})) for n in range(40)]
        )
    by = Words(" ".join(f"word{n}" for n in range(30)) + " shared")
    search = Search(SAMPLES, within(HERE), by, 50)
    ours, theirs = await store.search(search), await specification.search(search)
    assert [h.head.key for h in ours] == [h.head.key for h in theirs]
    assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], rel=1e-12)
