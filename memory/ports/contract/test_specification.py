"""The same random work on this store and on the specification, the store in memory.

The outcomes, records, pages and hits are equal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from importlib.metadata import entry_points

import pytest
import pytest_asyncio

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.harness import STEMMING, Harness
from memory.ports.contract.histories import upward
from memory.ports.contract.random_work import IDS, PLACES, RandomWork
from memory.ports.contract.support import T0, everything_of
from memory.ports.heads import head_of
from memory.ports.query import Everywhere, Hit, Page, Query, Search, within
from memory.ports.record import Key, Record, Role
from memory.ports.store import Store
from memory.ports.writes import Outcome, Write

SEEDS = range(3)
KEYS = [Key(tenant, id_) for tenant in sorted({place.tenant for place in PLACES}) for id_ in IDS]


@pytest_asyncio.fixture
async def specification() -> AsyncIterator[Store]:
    """Provide the store in memory, found by its scheme like any other."""
    (point,) = entry_points(group="memory.adapters", name="memory")
    made: Store = point.load().build("specification", "memory://", {})
    await made.open(DECLARED)
    yield made
    await made.close()


async def _apply_in_batches(store: Store, writes: Sequence[Write], size: int) -> list[Outcome]:
    return [
        outcome
        for start in range(0, len(writes), size)
        for outcome in await store.apply(writes[start : start + size])
    ]


async def _work(harness: Harness, work: RandomWork, store: Store, specification: Store, count: int) -> None:
    """Apply the same writes to both, and compare the outcomes."""
    writes = [work.write() if harness.revives else upward(work.write()) for _ in range(count)]
    size = min(store.capabilities.max_batch or count, work.chance.choice((1, 7, count)))
    ours, theirs = (
        await _apply_in_batches(store, writes, size),
        await _apply_in_batches(specification, writes, size),
    )
    for write, mine, other in zip(writes, ours, theirs, strict=True):
        assert mine == other, write


async def _pages(store: Store, query: Query) -> list[Page]:
    """Return every page.

    For one tenant, pages and cursors are the same on every store. Where records of
    several tenants tie, stores may split pages anywhere.
    """
    pages: list[Page] = []
    while True:
        pages.append(await store.query(query))
        if pages[-1].cursor is None:
            break
        query = replace(query, cursor=pages[-1].cursor)
    if isinstance(query.where, Everywhere):
        return [
            Page(
                tuple(r for page in pages for r in page.records),
                None,
                tuple(k for page in pages for k in page.corrupt),
            )
        ]
    return pages


@clause("specification")
@pytest.mark.asyncio
@pytest.mark.parametrize("seed", SEEDS)
async def test_random_work_has_the_outcomes_and_answers_of_the_specification(
    harness: Harness, store: Store, specification: Store, seed: int
) -> None:
    work = RandomWork(seed, store.capabilities)
    for _ in range(4):
        await _work(harness, work, store, specification, 60)
        for collection in (SAMPLES, MORE_SAMPLES):
            assert await store.get(collection, KEYS) == await specification.get(collection, KEYS)
        for _ in range(15):
            query = work.query()
            assert await _pages(store, query) == await _pages(specification, query), query
            assert (await store.count(query)).records == (await specification.count(query)).records, query
        if store.capabilities.tenant_wide:
            for query in work.tombstones():
                assert await _pages(store, query) == await _pages(specification, query), query
    for place in PLACES:
        erased = Query(SAMPLES, within(place), work.maybe_filter(), roles=frozenset(Role))
        answers = [
            await one.delete_matching(erased, 7, T0, frozenset({"deliver"})) for one in (store, specification)
        ]
        assert answers[0] == answers[1], erased
    assert await store.get(SAMPLES, KEYS) == await specification.get(SAMPLES, KEYS)


async def _searchable(harness: Harness, work: RandomWork, store: Store, specification: Store) -> None:
    """Write records in two parts with a search between, so some are indexed anew."""
    for _ in range(2):
        await _work(harness, work, store, specification, 100)
        if store.capabilities.lexical:
            await store.search(work.by_words(5))


@clause("specification", "lexical.ranks")
@needs("lexical")
@pytest.mark.asyncio
@pytest.mark.parametrize("seed", SEEDS)
async def test_words_find_the_records_that_the_specification_finds(
    harness: Harness, store: Store, specification: Store, seed: int
) -> None:
    """All of them are found, even of little weight, and best first.

    The scores are equal too if the harness says so.
    """
    work = RandomWork(100 + seed, store.capabilities)
    await _searchable(harness, work, store, specification)
    for _ in range(30 if harness.stemming is STEMMING else 0):
        search = work.by_words(1_000)
        ours, theirs = await store.search(search), await specification.search(search)
        assert {h.head.key for h in ours} == {h.head.key for h in theirs}, search
        assert [h.score for h in ours] == sorted([h.score for h in ours], reverse=True), search
        if harness.exact_scores:
            wanted = {h.head.key: h.score for h in theirs}
            assert {h.head.key: h.score for h in ours} == pytest.approx(wanted, rel=1e-12), search
            assert await store.search(replace(search, limit=7)) == ours[:7], search
        selecting = replace(search, select=everything_of(SAMPLES))
        assert {h.head.key: h.head for h in await store.search(selecting)} == {
            h.head.key: h.head for h in await specification.search(selecting)
        }, search


@clause("specification", "semantic.nearest")
@needs("semantic")
@pytest.mark.asyncio
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_nearest_are_those_of_the_specification_with_the_same_cosines(
    harness: Harness, store: Store, specification: Store, seed: int
) -> None:
    """That holds for an exact search; an approximate one finds its share of them."""
    work = RandomWork(200 + seed, store.capabilities)
    await _searchable(harness, work, store, specification)
    for _ in range(30):
        search = work.by_meaning()
        ours, theirs = await store.search(search), await specification.search(search)
        if harness.recall == 1.0:
            _same_hits(search, ours, theirs)
        shared = {h.head.key for h in ours} & {h.head.key for h in theirs}
        assert len(shared) >= harness.recall * len(theirs) - 1, search
        select = everything_of(SAMPLES)
        records = [r for r in await store.get(SAMPLES, [h.head.key for h in ours]) if isinstance(r, Record)]
        assert [h.head for h in await store.search(replace(search, select=select))] == [
            head_of(SAMPLES, r, select) for r in records
        ]


def _same_hits(search: Search, ours: Sequence[Hit], theirs: Sequence[Hit]) -> None:
    assert [h.head for h in ours] == [h.head for h in theirs], search
    assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-5), search
