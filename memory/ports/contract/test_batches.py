"""Batches: in order, one outcome for each write, and all or nothing with `together`.

One bad write never fails the others.
"""

from __future__ import annotations

import pytest

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import MORE_SAMPLES, PLAIN, SAMPLES
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    one,
    put,
    record,
    release,
)
from memory.ports.query import Near, Query, Search, within
from memory.ports.record import PendingStep, Role, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Newer, Purge, RaiseGeneration, Status, Write


@clause("apply.order", "get.order")
@pytest.mark.asyncio
async def test_an_empty_batch_and_an_empty_get_answer_nothing(store: Store) -> None:
    assert await store.apply([]) == []
    assert await store.get(SAMPLES, []) == []


@clause("get.order")
@pytest.mark.asyncio
async def test_answers_come_in_the_order_asked_also_for_repeated_and_missing_keys(store: Store) -> None:
    await apply_all(store, put(record(1)), put(record(2)))
    one_, two = await fetch_record(store, 1), await fetch_record(store, 2)

    got = await store.get(SAMPLES, [two.key, record(9).key, one_.key, two.key])

    assert got == [two, None, one_, two]


@clause("apply.order", "write.table")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_later_write_of_a_batch_sees_the_earlier_ones(store: Store) -> None:
    outcomes = await store.apply(
        [
            put(record(1, version=1), Absent()),
            put(record(1, version=2), Absent()),
            put(record(1, version=3), AtVersion(1)),
            delete(1, version=4),
            put(record(1, version=4), Newer()),
            put(record(1, version=5), AtVersion(4)),
        ]
    )
    assert [o.status for o in outcomes] == [
        "applied",
        "conflict",
        "applied",
        "applied",
        "conflict",
        "applied",
    ]
    assert [o.version for o in outcomes] == [1, 1, 3, 4, 4, 5]
    assert (await fetch_record(store)).version == 5


@clause("refused.record", "refused.by-name")
@pytest.mark.asyncio
async def test_a_vector_in_a_collection_without_vectors_is_rejected(store: Store) -> None:
    outcome = await one(store, put(record(vector=pack_vector([1.0])), collection=PLAIN))
    assert outcome.status is Status.REJECTED
    assert "vector" in outcome.reason


@clause("atomic.together")
@needs("atomic", "conditional")
@pytest.mark.asyncio
async def test_together_keeps_everything_when_everything_applies(store: Store) -> None:
    outcomes = await store.apply(
        [
            put(record(1), Absent()),
            put(record(1), Absent(), PLAIN),
            put(record(2), Absent(), MORE_SAMPLES),
            RaiseGeneration(HERE),
        ],
        together=True,
    )
    assert [o.status for o in outcomes] == ["applied"] * 4
    assert [
        await fetch_stored(store, n, collection=c) is not None
        for n, c in ((1, SAMPLES), (1, PLAIN), (2, MORE_SAMPLES))
    ] == [True] * 3


@clause("atomic.together")
@needs("atomic", "conditional")
@pytest.mark.asyncio
async def test_together_keeps_nothing_when_one_write_conflicts(store: Store) -> None:
    await apply_all(store, put(record(2)), put(record(4)), put(record(5)), put(record(6, role=Role.CACHED)))
    before = await store.get(SAMPLES, [record(n).key for n in range(1, 8)])

    outcomes = await store.apply(
        [
            put(record(1), Absent()),
            put(record(1), Absent(), MORE_SAMPLES),
            RaiseGeneration(HERE, 5),
            put(record(2, version=2), Absent()),
            put(record(3), Absent(), PLAIN),
            release(4),
            Annotate(SAMPLES, record(5).key, 1, tier="long"),
            Purge(SAMPLES, record(6).key, 1),
            delete(7),
        ],
        together=True,
    )

    assert [o.status for o in outcomes] == ["skipped"] * 3 + ["conflict"] + ["skipped"] * 5
    assert await store.get(SAMPLES, [record(n).key for n in range(1, 8)]) == before
    assert await fetch_stored(store, 1, collection=MORE_SAMPLES) is None
    assert await fetch_stored(store, 3, collection=PLAIN) is None
    assert (await one(store, RaiseGeneration(HERE, 0))).number == 0


@clause("atomic.together", "write.table")
@needs("atomic", "conditional")
@pytest.mark.asyncio
async def test_together_tells_every_write_that_is_in_the_way(store: Store) -> None:
    await apply_all(store, put(record(1, version=4)), put(record(2, version=5)))
    before = await store.get(SAMPLES, [record(n).key for n in range(1, 5)])

    writes: list[Write] = [
        put(record(3)),
        put(record(1), Absent()),
        delete(2, version=5),
        put(record(4), AtVersion(9)),
        delete(3, version=9),
    ]
    outcomes = await store.apply(writes, together=True)

    assert [(o.status, o.version) for o in outcomes[1:4]] == [
        ("conflict", 4),
        ("conflict", 5),
        ("conflict", None),
    ]
    assert [outcomes[0].status, outcomes[4].status] == ["skipped", "skipped"]
    assert await store.get(SAMPLES, [record(n).key for n in range(1, 5)]) == before


@clause("atomic.together")
@needs("atomic", "conditional")
@pytest.mark.asyncio
async def test_together_keeps_nothing_when_one_write_is_rejected(store: Store) -> None:
    outcomes = await store.apply(
        [put(record(1)), put(record(2, fields={"colour": "red"})), put(record(3))], together=True
    )

    assert [o.status for o in outcomes] == ["skipped", "rejected", "skipped"]
    assert await store.get(SAMPLES, [record(n).key for n in (1, 2, 3)]) == [None] * 3


@clause("atomic.together", "generation.binds")
@needs("atomic", "conditional")
@pytest.mark.asyncio
async def test_together_keeps_nothing_when_one_generation_was_erased(store: Store) -> None:
    await apply_all(store, RaiseGeneration(HERE))

    outcomes = await store.apply(
        [put(record(1)), put(record(2, generation=0)), put(record(3))], together=True
    )

    assert [o.status for o in outcomes] == ["skipped", "rejected", "skipped"]
    assert await store.get(SAMPLES, [record(n).key for n in (1, 2, 3)]) == [None] * 3


@clause("atomic.together", "apply.order")
@needs("atomic", "conditional")
@pytest.mark.asyncio
async def test_together_judges_later_writes_by_earlier_ones(store: Store) -> None:
    outcomes = await store.apply(
        [put(record(1, version=1), Absent()), put(record(1, version=2), AtVersion(1)), delete(1, version=3)],
        together=True,
    )

    assert [o.status for o in outcomes] == ["applied"] * 3
    assert await fetch_stored(store) == Tombstone(record(1).key, 3)


@clause("apply.repeatable")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_conditional_write_repeated_leaves_what_it_left_the_first_time(store: Store) -> None:
    writes: list[Write] = [
        put(record(1), Absent()),
        put(record(1, version=2), Newer()),
        delete(2, version=5),
        put(record(3), Absent(), MORE_SAMPLES),
    ]
    await apply_all(store, *writes)
    before = [
        await fetch_stored(store, 1),
        await fetch_stored(store, 2),
        await fetch_stored(store, 3, collection=MORE_SAMPLES),
    ]

    again = await store.apply(writes)

    assert [o.status for o in again] == ["conflict"] * 4
    assert [
        await fetch_stored(store, 1),
        await fetch_stored(store, 2),
        await fetch_stored(store, 3, collection=MORE_SAMPLES),
    ] == before


@clause("apply.repeatable")
@needs("conditional")
@pytest.mark.asyncio
async def test_bookkeeping_departures_and_generations_repeated_leave_what_they_left_the_first_time(
    store: Store,
) -> None:
    """Each is repeated in its own batch and alone. An access alone counts again."""
    step, other = PendingStep("k", "k", {"n": 1}), PendingStep("l", "l")
    await apply_all(
        store,
        *[put(record(n, owed=(step, other))) for n in range(1, 5)],
        put(record(5, role=Role.CACHED)),
        put(record(6, role=Role.ARRIVING)),
    )
    writes: list[Write] = [
        Annotate(SAMPLES, record(1).key, 1, tier="long", role=Role.REPLICA, settle=(step.id,)),
        release(2, owed=(step, other), discard_at=T0),
        Annotate(SAMPLES, record(2).key, 1, settle=(step.id,), discard_at=T0),
        delete(3, owed=(step, other), note={"digest": "d"}, discard_at=T0),
        Annotate(SAMPLES, record(3).key, 100, settle=(other.id,)),
        Purge(SAMPLES, record(5).key, 1),
        Purge(SAMPLES, record(6).key, 1, role_is=Role.ARRIVING),
        RaiseGeneration(HERE, 4),
        put(record(7, version=3)),
        put(record(8, version=3), Newer()),
    ]
    keys = [record(n).key for n in range(1, 9)]
    await apply_all(store, *writes)
    before = await store.get(SAMPLES, keys)
    await store.apply(writes)
    assert await store.get(SAMPLES, keys) == before
    for write in writes:
        await store.apply([write, write])
        assert await store.get(SAMPLES, keys) == before, write
    assert (await one(store, RaiseGeneration(HERE, 0))).number == 4


@clause("isolation.where", "apply.order")
@pytest.mark.asyncio
async def test_one_batch_may_write_to_several_collections_under_one_id(store: Store) -> None:
    await apply_all(
        store, put(record(body={"in": "samples"})), put(record(body={"in": "plain"}), collection=PLAIN)
    )

    assert dict((await fetch_record(store)).body) == {"in": "samples"}
    assert dict((await fetch_record(store, collection=PLAIN)).body) == {"in": "plain"}
    assert (await fetch_record(store)).key.id == id_of(1)


@clause("apply.order", "isolation.where")
@needs("conditional")
@pytest.mark.asyncio
async def test_one_key_in_several_collections_is_answered_for_each(store: Store) -> None:
    """The answers come in the order of the batch, for writes to several collections."""
    await apply_all(store, put(record(version=3)), put(record(version=7), collection=PLAIN))
    writes: list[Write] = [
        put(record(version=8), AtVersion(7), PLAIN),
        put(record(version=2), Absent(), MORE_SAMPLES),
        put(record(version=4), AtVersion(7)),
        put(record(version=4), AtVersion(3)),
        delete(version=9, collection=PLAIN),
        put(record(version=5), Absent(), MORE_SAMPLES),
        Annotate(SAMPLES, record().key, 4, tier="x"),
    ]
    outcomes = await store.apply(writes)
    assert [(o.status, o.version) for o in outcomes] == [
        ("applied", 8),
        ("applied", 2),
        ("conflict", 3),
        ("applied", 4),
        ("applied", 9),
        ("conflict", 2),
        ("applied", 4),
    ]
    assert [outcomes[n].stored is not None for n in (2, 5)] == [True] * 2


@clause("atomic.together")
@needs("atomic", "conditional")
@pytest.mark.asyncio
async def test_together_that_failed_leaves_no_trace_in_generations_or_indexes(store: Store) -> None:
    vector = pack_vector([1.0])
    await apply_all(store, put(record(1)), put(record(1), Absent(), MORE_SAMPLES))
    for last in (
        put(record(1, version=2), Absent()),
        put(record(3, fields={"colour": "red"})),
        put(record(3, generation=0)),
    ):
        outcomes = await store.apply(
            [
                put(record(5, texts={"content": "lantern"}, vector=vector)),
                put(record(6, texts={"content": "lantern"}), Absent(), MORE_SAMPLES),
                RaiseGeneration(HERE),
                last,
            ],
            together=True,
        )
        assert not any(o.applied for o in outcomes)
    assert (await one(store, RaiseGeneration(HERE, 0))).number == 0
    assert await fetch_stored(store, 6, collection=MORE_SAMPLES) is None
    assert (await store.count(Query(SAMPLES, within(HERE)))).records == 1
    if store.capabilities.lexical:
        assert await hit_ids(store, "lantern") == set()
    if store.capabilities.semantic:
        assert await store.search(Search(SAMPLES, within(HERE), Near(vector), 5)) == []
    assert (await store.audit()).problems == ()
