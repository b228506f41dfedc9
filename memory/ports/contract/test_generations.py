"""Generations: what was written before an erasure is refused, whoever brings it."""

from __future__ import annotations

import pytest

from memory.ports.collections import Collection
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.judges import needs
from memory.ports.contract.support import ELSEWHERE, FOREIGN, HERE, done, found, live, one, put, record
from memory.ports.record import Partition
from memory.ports.store import Store
from memory.ports.writes import Absent, Always, AtVersion, Newer, RaiseGeneration, Status, When


async def _current(store: Store, at: Partition = HERE) -> int | None:
    return (await done(store, RaiseGeneration(at, 0)))[0].number


@clause("generation.counts")
@pytest.mark.asyncio
async def test_generations_start_at_nought_and_reading_one_does_not_raise_it(store: Store) -> None:
    assert [await _current(store), await _current(store)] == [0, 0]


@clause("generation.counts")
@pytest.mark.asyncio
async def test_a_generation_is_raised_by_one_or_to_a_number_and_never_falls(store: Store) -> None:
    raised = await done(
        store, RaiseGeneration(HERE), RaiseGeneration(HERE), RaiseGeneration(HERE, 7), RaiseGeneration(HERE, 3), RaiseGeneration(HERE)
    )
    assert [o.number for o in raised] == [1, 2, 7, 7, 8]
    assert await _current(store) == 8


@clause("generation.counts")
@pytest.mark.asyncio
async def test_a_generation_is_the_partitions_own(store: Store) -> None:
    await done(store, RaiseGeneration(HERE, 4))
    assert [await _current(store, p) for p in (ELSEWHERE, FOREIGN, Partition("acme", "user:ann "))] == [0, 0, 0]


@clause("generation.stamps")
@pytest.mark.asyncio
async def test_a_fresh_record_takes_the_current_generation(store: Store) -> None:
    first = (await done(store, put(record(1))))[0]
    await done(store, RaiseGeneration(HERE, 4))
    second = (await done(store, put(record(2))))[0]

    assert (first.generation, second.generation) == (0, 4)
    assert ((await live(store, 1)).generation, (await live(store, 2)).generation) == (0, 4)


@clause("generation.stamps")
@pytest.mark.asyncio
async def test_a_record_keeps_the_generation_it_brings(store: Store) -> None:
    await done(store, RaiseGeneration(HERE, 4))
    outcome = (await done(store, put(record(generation=4))))[0]
    assert (outcome.generation, (await live(store)).generation) == (4, 4)


@clause("generation.binds")
@pytest.mark.asyncio
@cells("collection", DECLARED, ids=lambda c: c.name)
async def test_a_record_of_an_erased_generation_is_rejected_in_every_collection(store: Store, collection: Collection) -> None:
    await done(store, RaiseGeneration(HERE, 2))

    outcome = await one(store, put(record(generation=1), Always(), collection))

    assert (outcome.status, outcome.reason) == (Status.REJECTED, "generation")
    assert await found(store, collection=collection) is None


@clause("generation.binds")
@needs("conditional")
@pytest.mark.asyncio
@cells("when", [Absent(), AtVersion(1), Newer(), Always()], ids=lambda w: type(w).__name__)
async def test_an_erased_generation_is_rejected_whatever_the_condition(store: Store, when: When) -> None:
    if not isinstance(when, Absent):
        await done(store, put(record(version=1, fields={"type": "kept"})))
    before = await found(store)
    await done(store, RaiseGeneration(HERE))

    outcome = await one(store, put(record(version=2, generation=0), when))

    assert (outcome.status, outcome.reason) == (Status.REJECTED, "generation")
    assert await found(store) == before


@clause("generation.binds", "apply.order")
@pytest.mark.asyncio
async def test_a_write_sees_a_generation_raised_earlier_in_its_batch(store: Store) -> None:
    outcomes = await store.apply([put(record(1, generation=0)), RaiseGeneration(HERE), put(record(2, generation=0)), put(record(3))])

    assert [o.status for o in outcomes] == ["applied", "applied", "rejected", "applied"]
    assert (await live(store, 3)).generation == 1
    outcomes = await store.apply([put(record(4)), put(record(5, generation=0)), put(record(6, generation=1))])
    assert [o.status for o in outcomes] == ["applied", "rejected", "applied"], "each by its own generation, whatever the first brings"


@clause("generation.stamps")
@pytest.mark.asyncio
async def test_what_was_stored_before_is_not_touched_by_a_raised_generation(store: Store) -> None:
    await done(store, put(record(1)))
    before = await live(store, 1)
    await done(store, RaiseGeneration(HERE))
    assert await live(store, 1) == before
