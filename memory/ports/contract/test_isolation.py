"""Tenants and scopes never meet, however alike or hostile their names."""

from __future__ import annotations

import pytest

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import MORE_SAMPLES, PLAIN, SAMPLES
from memory.ports.contract.hostile_names import FAMILIES, partitions
from memory.ports.contract.support import (
    HERE,
    apply_all,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
    ways,
)
from memory.ports.query import MAX_LIMIT, Count, Eq, Everywhere, Near, Not, Query, Search, Tenant, within
from memory.ports.record import Key, Partition, PendingStep, Record, Role, pack_vector
from memory.ports.store import Store
from memory.ports.writes import (
    Absent,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Purge,
    RaiseGeneration,
    Release,
    Status,
    Write,
)

TENANTS, SCOPES = partitions("tenants"), partitions("scopes")


def _sample_records(places: list[Partition]) -> list[Record]:
    return [
        record(
            n,
            p,
            body={"of": [p.tenant, p.scope]},
            texts={"content": "shared word"},
            vector=pack_vector([1.0]),
        )
        for n, p in enumerate(places)
    ]


@clause("isolation.where")
@pytest.mark.asyncio
@cells("family", FAMILIES)
async def test_a_partition_sees_its_own_records_and_no_others(store: Store, family: str) -> None:
    records = _sample_records(partitions(family))
    await apply_all(store, *[put(r) for r in records])
    for r in records:
        assert await query_ids(store, within(r.partition)) == [r.key.id]
        assert (await store.count(Query(SAMPLES, within(r.partition)))).records == 1
        stored = (await store.get(SAMPLES, [r.key]))[0]
        assert isinstance(stored, Record)
        assert (stored.key, stored.scope, dict(stored.body)) == (r.key, r.scope, dict(r.body))


@clause("isolation.where")
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_a_tenant_sees_its_own_scopes_and_no_other_tenants(store: Store) -> None:
    await apply_all(
        store,
        *[put(r) for r in [*_sample_records(TENANTS), *(record(500 + n, p) for n, p in enumerate(SCOPES))]],
    )
    for partition in TENANTS:
        expected = {r.key.id for r in _sample_records(TENANTS) if r.partition == partition}
        if partition.tenant == "acme":
            expected |= {record(500 + n, p).key.id for n, p in enumerate(SCOPES)}
        assert set(await query_ids(store, Tenant(partition.tenant))) == expected


@clause("isolation.where")
@needs("lexical")
@pytest.mark.asyncio
@cells("family", FAMILIES)
async def test_search_by_words_stays_in_its_partition(store: Store, family: str) -> None:
    records = _sample_records(partitions(family))
    await apply_all(store, *[put(r) for r in records])
    for r in records:
        assert await hit_ids(store, "shared word", within(r.partition)) == {r.key.id}


@clause("isolation.where")
@needs("semantic")
@pytest.mark.asyncio
@cells("family", FAMILIES)
async def test_search_by_meaning_stays_in_its_partition(store: Store, family: str) -> None:
    records = _sample_records(partitions(family))
    await apply_all(store, *[put(r) for r in records])
    for r in records:
        hits = await store.search(Search(SAMPLES, within(r.partition), Near(pack_vector([1.0])), 50))
        assert [hit.head.key.id for hit in hits] == [r.key.id]


@clause("isolation.where")
@needs("filter")
@pytest.mark.asyncio
async def test_no_filter_reaches_out_of_the_asked_partition(store: Store) -> None:
    mine, others = (
        record(1, TENANTS[0]),
        [record(n, p) for n, p in enumerate([*TENANTS[1:], *SCOPES[1:]], start=2)],
    )
    await apply_all(store, *[put(r) for r in [mine, *others]])
    for part in (Not(Eq("id", id_of(99))), Eq("scope", mine.scope), Not(Eq("scope", mine.scope))):
        assert set(await query_ids(store, within(mine.partition), part)) <= {mine.key.id}


@clause("names.apart")
@needs("conditional")
@pytest.mark.asyncio
async def test_an_id_under_another_tenant_finds_nothing_and_no_write_reaches_the_record(store: Store) -> None:
    mine = record(owed=(PendingStep("k", "k"),), role=Role.ARRIVING)
    await apply_all(store, put(mine, Absent()))
    before = await store.get(SAMPLES, [mine.key])
    for tenant in ("ACME", "umbrella", "acme "):
        foreign = Key(tenant, mine.key.id)
        assert await store.get(SAMPLES, [foreign]) == [None]
        writes: list[Write] = [
            Annotate(SAMPLES, foreign, 1, tier="x"),
            Release(SAMPLES, foreign, 1, "mid"),
            Delete(SAMPLES, foreign, 50, AtVersion(1)),
        ]
        assert {o.status for o in await store.apply(writes)} == {Status.CONFLICT}
        await apply_all(
            store,
            Purge(SAMPLES, foreign, 1, Role.ARRIVING),
            Delete(SAMPLES, foreign, 50, Newer()),
            RaiseGeneration(Partition(tenant, mine.scope)),
        )
        assert await store.get(SAMPLES, [mine.key]) == before


@clause("isolation.where", "query.all")
@pytest.mark.asyncio
async def test_several_partitions_are_asked_together_each_record_once(store: Store) -> None:
    records = _sample_records(SCOPES)
    await apply_all(store, *[put(r) for r in records])
    for some in (records[i : i + 7] for i in range(0, len(records), 7)):
        partitions = [r.partition for r in some]
        assert set(await query_ids(store, within(*partitions, partitions[0]))) == {r.key.id for r in some}
        assert (await store.count(Query(SAMPLES, within(*partitions, partitions[0])))).records == len(some)


@clause("erase.matches", "names.apart")
@pytest.mark.asyncio
async def test_erasing_one_partition_leaves_its_twins(store: Store) -> None:
    records = _sample_records(SCOPES)
    await apply_all(store, *[put(r) for r in records])

    assert await store.delete_matching(Query(SAMPLES, within(records[0].partition)), 50) == 1

    assert [isinstance(s, Record) for s in await store.get(SAMPLES, [r.key for r in records])] == [False] + [
        True
    ] * (len(records) - 1)


@clause("generation.counts", "names.apart")
@pytest.mark.asyncio
async def test_a_generation_does_not_reach_twins(store: Store) -> None:
    await apply_all(store, RaiseGeneration(SCOPES[0], 5))
    assert {(await one(store, RaiseGeneration(p, 0))).number for p in [*SCOPES[1:], *TENANTS[1:]]} == {0}


@clause("everywhere.all")
@needs("tenant_wide")
@pytest.mark.asyncio
async def test_everywhere_sees_every_tenant(store: Store) -> None:
    records = _sample_records(TENANTS)
    await apply_all(store, *[put(r) for r in records])
    page = await store.query(Query(SAMPLES, Everywhere(), limit=MAX_LIMIT))
    assert {r.key for r in page.records} == {r.key for r in records}
    assert (await store.count(Query(SAMPLES, Everywhere()))).records == len(records)


@clause("isolation.where", "count.exact")
@pytest.mark.asyncio
async def test_a_partition_without_records_is_empty(store: Store) -> None:
    await apply_all(store, put(record()))
    nobody = within(Partition("acme", "nobody"))
    assert await query_ids(store, nobody) == []
    assert await store.count(Query(SAMPLES, nobody)) == Count(0, 0)
    assert await store.delete_matching(Query(SAMPLES, nobody), 50) == 0


@clause("isolation.where")
@pytest.mark.asyncio
async def test_collections_are_searched_and_asked_apart(store: Store) -> None:
    """The same ids, words and vectors in two collections of one partition."""
    both = (SAMPLES, MORE_SAMPLES)
    for collection, numbers in zip(both, (range(6), range(3, 9)), strict=True):
        await apply_all(
            store,
            *[
                put(record(n, texts={"content": "lantern"}, vector=pack_vector([1.0])), collection=collection)
                for n in numbers
            ],
        )
    for collection, numbers in zip(both, (range(6), range(3, 9)), strict=True):
        expected, everything = [id_of(n) for n in numbers], Query(collection, within(HERE), limit=MAX_LIMIT)
        assert await query_ids(store, collection=collection) == expected
        assert (await store.count(everything)).records == 6
        assert [s is not None for s in await store.get(collection, [key_of(n) for n in range(9)])] == [
            n in numbers for n in range(9)
        ]
        for by in ways(store, "lantern", 1.0):
            assert [
                h.head.key.id for h in await store.search(Search(collection, within(HERE), by, 50))
            ] == expected
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50) == 6
    assert await query_ids(store, collection=MORE_SAMPLES) == [id_of(n) for n in range(3, 9)]
    assert (await store.count(Query(PLAIN, within(HERE)))).records == 0
    await apply_all(store, put(record(1), collection=PLAIN))
    assert (await store.count(Query(SAMPLES, within(HERE)))).records == 0
