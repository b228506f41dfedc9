"""Rare arguments and times.

Arguments are repeated, long, expired, annotated, or used by many calls at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta, timezone
from itertools import product

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, PLAIN, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    LATER,
    LONG_AGO,
    T0,
    apply_all,
    everything_of,
    fetch_mark,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
    release,
    search_hits,
    ways,
)
from memory.ports.query import And, Eq, Ge, Gt, IsNull, Not, Or, Query, Search, within
from memory.ports.query_evaluation import lets_through
from memory.ports.record import Partition, PendingStep, Role, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Annotate, Purge, RaiseGeneration

# -- questions -------------------------------------------------------------------------


@clause("isolation.where", "count.exact", "search.limit")
@pytest.mark.asyncio
async def test_a_partition_named_twice_is_asked_once(store: Store) -> None:
    vector = pack_vector([1.0, 0.0]) if store.capabilities.semantic else None
    await apply_all(
        store,
        put(record(1, texts={"content": "lantern"}, vector=vector)),
        put(record(2, ELSEWHERE, texts={"content": "lantern"}, vector=vector)),
    )
    twice = within(HERE, ELSEWHERE, HERE, HERE)
    assert await query_ids(store, twice) == sorted([id_of(1), id_of(2, ELSEWHERE)])
    assert (await store.count(Query(SAMPLES, twice))).records == 2
    for by in ways(store, "lantern", 1.0, 0.0):
        hits = await store.search(Search(SAMPLES, twice, by, 10))
        assert sorted(hit.head.key.id for hit in hits) == sorted([id_of(1), id_of(2, ELSEWHERE)])
    assert await store.delete_matching(Query(SAMPLES, twice), 50) == 2


@clause("isolation.where", "erase.all")
@pytest.mark.asyncio
async def test_many_partitions_are_asked_and_erased_together(store: Store) -> None:
    """The last named partition is the one with data."""
    await apply_all(store, put(record(1, texts={"content": "lantern"})), put(record(2, ELSEWHERE)))
    many = within(*[Partition("acme", f"user:{n}") for n in range(1_200)], HERE)
    assert await query_ids(store, many) == [id_of(1)]
    assert (await store.count(Query(SAMPLES, many))).records == 1
    if store.capabilities.lexical:
        assert await hit_ids(store, "lantern", many) == {id_of(1)}
    assert await store.delete_matching(Query(SAMPLES, many), 50) == 1
    assert isinstance(await fetch_stored(store, 1), Tombstone)
    await fetch_record(store, 2, ELSEWHERE)


@clause("query.roles")
@pytest.mark.asyncio
async def test_of_no_role_there_is_nothing(store: Store) -> None:
    vector = pack_vector([1.0, 0.0]) if store.capabilities.semantic else None
    await apply_all(
        store,
        *[
            put(record(n, role=role, texts={"content": "lantern"}, vector=vector))
            for n, role in enumerate(Role)
        ],
    )
    assert await query_ids(store, roles=frozenset()) == []
    assert (await store.count(Query(SAMPLES, within(HERE), roles=frozenset()))).records == 0
    for by in ways(store, "lantern", 1.0, 0.0):
        assert await store.search(Search(SAMPLES, within(HERE), by, 10, roles=frozenset())) == []
    assert await store.delete_matching(Query(SAMPLES, within(HERE), roles=frozenset()), 50) == 0
    assert (await store.count(Query(SAMPLES, within(HERE), roles=frozenset(Role)))).records == len(Role)


@clause("search.heads", "search.limit", "query.roles")
@needs("filter")
@pytest.mark.asyncio
async def test_hits_are_the_same_with_and_without_content_under_roles_filters_places_and_limits(
    store: Store,
) -> None:
    """The limit applies to the whole search over all partitions and roles."""
    semantic, places = store.capabilities.semantic, (HERE, ELSEWHERE)
    made = [
        record(
            10 * n + m,
            at,
            role=role,
            fields={"type": "ab"[m]},
            texts={"content": "lantern " * (1 + n + m)},
            vector=vector,
        )
        for k, at in enumerate(places)
        for n, role in enumerate(Role)
        for m in (0, 1)
        for vector in [pack_vector([1.0, n + m / 2 + k / 5]) if semantic else None]
    ]
    await apply_all(store, *map(put, made))
    for by, where, part in product(
        ways(store, "lantern", 1.0, 0.1),
        (within(HERE), within(*places)),
        (None, Eq("type", "b"), Not(Eq("type", "b"))),
    ):
        for roles in ({Role.HOME}, {Role.REPLICA}, {Role.ARRIVING, Role.CACHED}, set(Role)):
            wanted = {
                r.key
                for r in made
                if r.role in roles and r.partition in where.partitions and lets_through(part, r)
            }
            search = Search(SAMPLES, where, by, 50, part, frozenset(roles))
            every = [(hit.head.key, hit.head.role, hit.score) for hit in await store.search(search)]
            assert {key for key, _, _ in every} == wanted, search
            for limit in (1, 3, 50):
                for select in (frozenset[str](), everything_of(SAMPLES)):
                    hits = await store.search(replace(search, limit=limit, select=select))
                    assert [(hit.head.key, hit.head.role) for hit in hits] == [
                        (key, role) for key, role, _ in every[:limit]
                    ], search
                    assert [hit.score for hit in hits] == pytest.approx(
                        [score for _, _, score in every[:limit]]
                    ), search


@clause("query.pages", "query.all")
@pytest.mark.asyncio
async def test_a_cursor_continues_with_pages_of_another_size(store: Store) -> None:
    await apply_all(store, *[put(record(n)) for n in range(7)])
    page = await store.query(Query(SAMPLES, within(HERE), limit=3))
    rest = await store.query(Query(SAMPLES, within(HERE), cursor=page.cursor))
    assert [r.key.id for r in rest.records] == [id_of(n) for n in range(3, 7)]
    assert rest.cursor is None


@clause("erase.all", "count.exact")
@pytest.mark.asyncio
async def test_erasing_takes_no_notice_of_a_cursor(store: Store) -> None:
    await apply_all(store, *[put(record(n)) for n in range(6)])
    page = await store.query(Query(SAMPLES, within(HERE), limit=2))
    further = Query(SAMPLES, within(HERE), limit=2, cursor=page.cursor)
    assert (await store.count(further)).records == 6
    assert await store.delete_matching(further, 50) == 6


@clause("filter.holds")
@needs("filter")
@pytest.mark.asyncio
async def test_a_filter_of_many_parts_is_no_problem(store: Store) -> None:
    await apply_all(store, *[put(record(n, fields={"type": f"t{n}"})) for n in range(5)])
    names = [f"t{n}" for n in range(3, 500)]  # each as a part and its negation: exactly the allowed number
    any_of, none_of = (
        Or(tuple(Eq("type", name) for name in names)),
        And(tuple(Not(Eq("type", name)) for name in names)),
    )
    assert await query_ids(store, part=any_of) == [id_of(3), id_of(4)]
    assert await query_ids(store, part=none_of) == [id_of(0), id_of(1), id_of(2)]
    assert (await store.count(Query(SAMPLES, within(HERE), any_of))).records == 2
    assert await store.delete_matching(Query(SAMPLES, within(HERE), none_of), 50) == 3


@clause("lexical.words")
@needs("lexical")
@pytest.mark.asyncio
async def test_the_last_of_many_words_finds(store: Store) -> None:
    """That holds for a question and for a text."""
    long = " ".join(f"w{n % 4_000}" for n in range(20_000))
    await apply_all(
        store,
        put(record(1, texts={"content": "lantern"})),
        put(record(2, texts={"content": f"{long} harbour"})),
    )
    assert {hit.head.key.id for hit in await search_hits(store, "harbour")} == {id_of(2)}
    many = " ".join(f"word{n}" for n in range(400))
    assert {hit.head.key.id for hit in await search_hits(store, f"{many} lantern")} == {id_of(1)}


@clause("life.at-once")
@pytest.mark.asyncio
async def test_questions_at_once_are_answered_each_for_itself(store: Store) -> None:
    """Many different questions of each kind run at once."""
    texts = [f"lantern word{n}" for n in range(12)]
    semantic = store.capabilities.semantic
    places = [Partition("acme", f"user:{n}") for n in range(12)]
    for n, place in enumerate(places):
        vector = pack_vector([1.0, float(n)]) if semantic else None
        await apply_all(
            store, *[put(record(m, place, texts={"content": texts[n]}, vector=vector)) for m in range(n + 1)]
        )

    async def ask(n: int) -> None:
        here, ids = within(places[n]), {id_of(m, places[n]) for m in range(n + 1)}
        pages, count, stored = await asyncio.gather(
            store.query(Query(SAMPLES, here)),
            store.count(Query(SAMPLES, here)),
            store.get(SAMPLES, [key_of(0, places[n])]),
        )
        assert {r.key.id for r in pages.records} == ids
        assert count.records == n + 1
        assert [s is not None and s.key for s in stored] == [key_of(0, places[n])]
        for by in ways(store, texts[n], 1.0, float(n)):
            assert {hit.head.key.id for hit in await store.search(Search(SAMPLES, here, by, 50))} == ids

    await asyncio.gather(*(ask(n) for n in range(12)))


# -- past its time ---------------------------------------------------------------------


@clause("get.order", "count.exact", "erase.matches", "ttl.kinds")
@pytest.mark.asyncio
async def test_what_is_past_its_time_is_counted_found_and_erased_as_all_else(store: Store) -> None:
    """Readers hide expired records; erasure must reach them."""
    vector = pack_vector([1.0, 0.0]) if store.capabilities.semantic else None
    await apply_all(
        store,
        *[put(record(n, expires_at=LONG_AGO, texts={"content": "lantern"}, vector=vector)) for n in range(3)],
    )
    assert len(await query_ids(store)) == 3
    assert (await store.count(Query(SAMPLES, within(HERE)))).records == 3
    for by in ways(store, "lantern", 1.0, 0.0):
        for select in (frozenset[str](), everything_of(SAMPLES)):
            assert len(await store.search(Search(SAMPLES, within(HERE), by, 10, select=select))) == 3
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50) == 3
    assert [type(await fetch_stored(store, n)) for n in range(3)] == [Tombstone] * 3


# -- bookkeeping -----------------------------------------------------------------------


@clause("annotate.only", "apply.order")
@needs("conditional")
@pytest.mark.asyncio
async def test_equal_accesses_in_one_batch_are_each_counted(store: Store) -> None:
    await apply_all(store, put(record(1)), *[Annotate(SAMPLES, key_of(1), 1, accessed_at=T0)] * 5)
    assert (await fetch_record(store, 1)).accesses == 5


@clause("annotate.only")
@needs("conditional")
@pytest.mark.asyncio
@cells(
    "changes",
    [
        {"tier": "long"},
        {"accessed_at": LATER},
        {"role": Role.REPLICA},
        {"settle": ("k",)},
        {"role_is": Role.CACHED},
        {"discard_at": T0},
    ],
)
async def test_an_annotation_keeps_all_other_bookkeeping(store: Store, changes: dict[str, object]) -> None:
    books = record(
        1,
        role=Role.CACHED,
        owed=(PendingStep("k", "k"), PendingStep("l", "l")),
        previous=7,
        accesses=3,
        accessed_at=T0 - timedelta(days=1),
        cached_at=T0,
        epoch="run 4",
    )
    await apply_all(store, put(books))
    before = await fetch_record(store, 1)
    await apply_all(store, Annotate(SAMPLES, key_of(1), 1, **changes))  # type: ignore[arg-type]
    kept = {name: value for name, value in changes.items() if name in ("tier", "role", "accessed_at")}
    expected = replace(before, **kept)  # type: ignore[arg-type]
    if "accessed_at" in changes:
        expected = replace(expected, accesses=4)
    if "settle" in changes:
        expected = replace(expected, owed=(PendingStep("l", "l"),))
    assert await fetch_record(store, 1) == expected


@clause("annotate.only", "filter.holds")
@needs("conditional", "filter")
@pytest.mark.asyncio
async def test_filters_see_what_annotations_left(store: Store) -> None:
    await apply_all(store, put(record(1, owed=(PendingStep("k", "k"),), tier="short")), put(record(2)))
    await apply_all(store, Annotate(SAMPLES, key_of(1), 1, accessed_at=T0, tier="long", settle=("k",)))
    for part in (
        Gt("accesses", 0),
        Eq("accesses", 1),
        Ge("accessed_at", T0),
        Not(IsNull("accessed_at")),
        Eq("tier", "long"),
    ):
        assert await query_ids(store, part=part) == [id_of(1)], part
        assert (await store.count(Query(SAMPLES, within(HERE), part))).records == 1, part
    for part in (Eq("owing", True), Eq("tier", "short")):
        assert await query_ids(store, part=part) == [], part


@clause("annotate.only", "search.heads")
@needs("conditional")
@pytest.mark.asyncio
async def test_hits_without_content_show_the_tier_that_an_annotation_left(store: Store) -> None:
    vector = pack_vector([1.0, 0.0]) if store.capabilities.semantic else None
    await apply_all(
        store, put(record(1, texts={"content": "lantern"}, vector=vector, tier="short", role=Role.ARRIVING))
    )
    await apply_all(store, Annotate(SAMPLES, key_of(1), 1, tier="long", role=Role.HOME))
    for by in ways(store, "lantern", 1.0, 0.0):
        for select in (frozenset[str](), everything_of(SAMPLES)):
            hits = await store.search(Search(SAMPLES, within(HERE), by, 5, select=select))
            assert [(h.head.tier, h.head.role, h.head.version) for h in hits] == [("long", Role.HOME, 1)]


@clause("moments.utc")
@needs("conditional")
@pytest.mark.asyncio
async def test_moments_of_other_zones_in_bookkeeping_are_the_same_moments(store: Store) -> None:
    there = T0.astimezone(timezone(timedelta(hours=5, minutes=30)))
    await apply_all(
        store, put(record(1)), put(record(2)), release(2, discard_at=there), put(record(3)), release(3)
    )
    await apply_all(
        store,
        Annotate(SAMPLES, key_of(1), 1, accessed_at=there),
        Annotate(SAMPLES, key_of(3), 1, discard_at=there),
    )
    moments = [
        (await fetch_record(store, 1)).accessed_at,
        (await fetch_mark(store, 2)).discard_at,
        (await fetch_mark(store, 3)).discard_at,
    ]
    assert [m and m.isoformat() for m in moments] == [T0.isoformat()] * 3


@clause("purge.holds")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_cached_copy_is_purged_also_when_asked_for_by_its_role(store: Store) -> None:
    await apply_all(store, put(record(1, role=Role.CACHED)), put(record(2, role=Role.ARRIVING)))
    assert not (await one(store, Purge(SAMPLES, key_of(2), 1, role_is=Role.CACHED))).applied
    await apply_all(store, Purge(SAMPLES, key_of(1), 1, role_is=Role.CACHED))
    assert await fetch_stored(store, 1) is None
    await fetch_record(store, 2)


@clause("generation.counts", "generation.binds")
@pytest.mark.asyncio
async def test_large_generations_are_exact(store: Store) -> None:
    high = 2**53 - 1
    assert (await one(store, RaiseGeneration(HERE, high))).number == high
    assert (await one(store, RaiseGeneration(HERE, 0))).number == high
    assert not (await one(store, put(record(1, generation=high - 1)))).applied
    assert (await one(store, put(record(1)))).generation == high
    assert (await fetch_record(store, 1)).generation == high
    assert (await one(store, RaiseGeneration(HERE))).number == high + 1


# -- lives -----------------------------------------------------------------------------


@clause("life.close-keeps", "life.known")
@pytest.mark.asyncio
async def test_collections_that_a_store_is_not_opened_with_are_kept(harness: Harness, store: Store) -> None:
    await apply_all(
        store, put(record(1)), put(record(1), collection=MORE_SAMPLES), put(record(1), collection=PLAIN)
    )
    again = await harness.reopen(store)
    await again.open((SAMPLES,))
    kept = await fetch_stored(again, 1) is not None
    for call in (
        again.get(PLAIN, [key_of(1)]),
        again.query(Query(MORE_SAMPLES, within(HERE))),
        again.apply([put(record(2), collection=PLAIN)]),
    ):
        with pytest.raises(InvalidInput, match="not opened"):
            await call
    last = await harness.reopen(again)
    try:
        await last.open(DECLARED)
        assert kept or not last.capabilities.durable
        for collection in DECLARED:
            assert (await fetch_stored(last, 1, collection=collection) is not None) is kept, collection.name
    finally:
        await last.close()


@clause("life.close-keeps", "declared.fewer", "upkeep.idle", since=3)
@pytest.mark.asyncio
async def test_no_call_touches_collections_that_a_store_is_not_opened_with(
    harness: Harness, store: Store
) -> None:
    """An earlier release does not know all collections, and does its work."""
    there = Partition("acme", "session:there")
    await apply_all(
        store,
        RaiseGeneration(there, 3),
        put(record(1)),
        put(record(1), collection=MORE_SAMPLES),
        *[put(record(2, at, texts={}), collection=PLAIN) for at in (HERE, there)],
    )
    keys = [key_of(1), key_of(2), key_of(2, there)]
    before = [await store.get(collection, keys) for collection in (MORE_SAMPLES, PLAIN)]
    again = await harness.reopen(store)
    await again.open((SAMPLES,))
    kept = await fetch_stored(again, 1) is not None
    await apply_all(again, put(record(3)), put(record(1, ELSEWHERE)), RaiseGeneration(ELSEWHERE))
    await again.delete_matching(Query(SAMPLES, within(HERE)), 50)
    assert (await again.audit(repair=True)).problems == ()
    assert await again.vacuum() >= 0
    await again.forget_partitions([*await again.idle_partitions(), (there, 3)])
    last = await harness.reopen(again)
    try:
        await last.open(DECLARED)
        if kept:
            assert [await last.get(collection, keys) for collection in (MORE_SAMPLES, PLAIN)] == before
            assert (await one(last, RaiseGeneration(there, 0))).number == 3
            assert await query_ids(last, collection=PLAIN) == [id_of(2)]
    finally:
        await last.close()


@clause("durable.survives")
@needs("durable")
@pytest.mark.asyncio
@cells("last", ["erasure", "forgotten"])
async def test_erasures_words_and_what_was_forgotten_survive_a_death(
    harness: Harness, store: Store, last: str
) -> None:
    """Each was the last call before the death."""
    vector = pack_vector([1.0, 0.0]) if store.capabilities.semantic else None
    empty = Partition("acme", "session:empty")
    await apply_all(
        store,
        *[
            put(record(n, at, texts={"content": "lantern"}, vector=vector))
            for n, at in ((1, HERE), (2, ELSEWHERE))
        ],
    )
    await apply_all(store, RaiseGeneration(empty, 4))
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 50) == 1
    if last == "forgotten":
        assert await store.forget_partitions([(empty, 4)]) == 1
    store = await harness.restart(store)
    await store.open(DECLARED)
    for by in ways(store, "lantern", 1.0, 0.0):
        hits = await store.search(Search(SAMPLES, within(HERE, ELSEWHERE), by, 5))
        assert [hit.head.key.id for hit in hits] == [id_of(2, ELSEWHERE)]
    assert isinstance(await fetch_stored(store, 1), Tombstone)
    assert (await one(store, RaiseGeneration(empty, 0))).number == (0 if last == "forgotten" else 4)
    await store.close()
