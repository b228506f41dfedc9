"""Generations: a write from before an erasure is refused from every client."""

from __future__ import annotations

import pytest

from memory.ports.collections import Collection
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    ELSEWHERE,
    FOREIGN,
    HERE,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    key_of,
    one,
    put,
    record,
)
from memory.ports.query import Query, within
from memory.ports.record import Partition, Role
from memory.ports.store import Store
from memory.ports.writes import (
    Absent,
    Always,
    AtVersion,
    Newer,
    Purge,
    RaiseGeneration,
    Release,
    Status,
    When,
)


async def _current(store: Store, at: Partition = HERE) -> int | None:
    return (await apply_all(store, RaiseGeneration(at, 0)))[0].number


@clause("generation.counts")
@pytest.mark.asyncio
async def test_generations_start_at_nought_and_reading_one_does_not_raise_it(store: Store) -> None:
    assert [await _current(store), await _current(store)] == [0, 0]


@clause("generation.counts")
@pytest.mark.asyncio
async def test_a_generation_is_raised_by_one_or_to_a_number_and_never_falls(store: Store) -> None:
    raised = await apply_all(
        store,
        RaiseGeneration(HERE),
        RaiseGeneration(HERE),
        RaiseGeneration(HERE, 7),
        RaiseGeneration(HERE, 3),
        RaiseGeneration(HERE),
    )
    assert [o.number for o in raised] == [1, 2, 7, 7, 8]
    assert await _current(store) == 8


@clause("generation.counts")
@pytest.mark.asyncio
async def test_a_generation_is_the_partitions_own(store: Store) -> None:
    await apply_all(store, RaiseGeneration(HERE, 4))
    assert [await _current(store, p) for p in (ELSEWHERE, FOREIGN, Partition("acme", "user:ann "))] == [
        0,
        0,
        0,
    ]


@clause("generation.counts", "generation.binds", since=2)
@needs("conditional")
@pytest.mark.asyncio
async def test_a_generation_stays_when_the_last_that_stood_in_its_partition_goes(store: Store) -> None:
    """Only `forget_partitions` forgets an empty partition, however it was emptied."""
    places = [Partition("acme", f"user:{n}") for n in range(5)]
    keys = [key_of(1, at) for at in places]
    roles = (Role.CACHED, Role.ARRIVING, Role.HOME, Role.HOME, Role.HOME)
    await apply_all(store, *[RaiseGeneration(at, 3) for at in places])
    await apply_all(store, *[put(record(1, at, role=role)) for at, role in zip(places, roles, strict=True)])
    await apply_all(store, Purge(SAMPLES, keys[0], 1), Purge(SAMPLES, keys[1], 1, Role.ARRIVING))
    await apply_all(store, delete(1, 2, places[2]), Purge(SAMPLES, keys[2], 2))
    await apply_all(store, Release(SAMPLES, keys[3], 1, "long"), Purge(SAMPLES, keys[3], 1))
    assert await store.delete_matching(Query(SAMPLES, within(places[4])), 2) == 1
    await apply_all(store, Purge(SAMPLES, keys[4], 2))
    assert await store.get(SAMPLES, keys) == [None] * 5
    assert [await _current(store, at) for at in places] == [3] * 5
    late = [await one(store, put(record(1, at, generation=2))) for at in places]
    assert [outcome.reason for outcome in late] == ["generation"] * 5


@clause("generation.stamps")
@pytest.mark.asyncio
async def test_a_fresh_record_takes_the_current_generation(store: Store) -> None:
    first = (await apply_all(store, put(record(1))))[0]
    await apply_all(store, RaiseGeneration(HERE, 4))
    second = (await apply_all(store, put(record(2))))[0]

    assert (first.generation, second.generation) == (0, 4)
    assert ((await fetch_record(store, 1)).generation, (await fetch_record(store, 2)).generation) == (0, 4)


@clause("generation.stamps")
@pytest.mark.asyncio
async def test_a_record_keeps_the_generation_it_brings(store: Store) -> None:
    await apply_all(store, RaiseGeneration(HERE, 4))
    outcome = (await apply_all(store, put(record(generation=4))))[0]
    assert (outcome.generation, (await fetch_record(store)).generation) == (4, 4)


@clause("generation.binds")
@pytest.mark.asyncio
@cells("collection", DECLARED, ids=lambda c: c.name)
async def test_a_record_of_an_erased_generation_is_rejected_in_every_collection(
    store: Store, collection: Collection
) -> None:
    await apply_all(store, RaiseGeneration(HERE, 2))

    outcome = await one(store, put(record(generation=1), Always(), collection))

    assert (outcome.status, outcome.reason) == (Status.REJECTED, "generation")
    assert await fetch_stored(store, collection=collection) is None


@clause("generation.binds")
@needs("conditional")
@pytest.mark.asyncio
@cells("when", [Absent(), AtVersion(1), Newer(), Always()], ids=lambda w: type(w).__name__)
async def test_an_erased_generation_is_rejected_whatever_the_condition(store: Store, when: When) -> None:
    if not isinstance(when, Absent):
        await apply_all(store, put(record(version=1, fields={"type": "kept"})))
    before = await fetch_stored(store)
    await apply_all(store, RaiseGeneration(HERE))

    outcome = await one(store, put(record(version=2, generation=0), when))

    assert (outcome.status, outcome.reason) == (Status.REJECTED, "generation")
    assert await fetch_stored(store) == before


@clause("generation.binds", "apply.order")
@pytest.mark.asyncio
async def test_a_write_sees_a_generation_raised_earlier_in_its_batch(store: Store) -> None:
    outcomes = await store.apply(
        [put(record(1, generation=0)), RaiseGeneration(HERE), put(record(2, generation=0)), put(record(3))]
    )

    assert [o.status for o in outcomes] == ["applied", "applied", "rejected", "applied"]
    assert (await fetch_record(store, 3)).generation == 1
    outcomes = await store.apply([put(record(4)), put(record(5, generation=0)), put(record(6, generation=1))])
    assert [o.status for o in outcomes] == ["applied", "rejected", "applied"], (
        "each by its own generation, whatever the first brings"
    )


@clause("generation.stamps")
@pytest.mark.asyncio
async def test_what_was_stored_before_is_not_touched_by_a_raised_generation(store: Store) -> None:
    await apply_all(store, put(record(1)))
    before = await fetch_record(store, 1)
    await apply_all(store, RaiseGeneration(HERE))
    assert await fetch_record(store, 1) == before
