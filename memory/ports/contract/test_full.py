"""A full store: it says so, keeps its data, and keeps nothing of failed calls.

It works again when there is space.
"""

from __future__ import annotations

from random import Random

import pytest

from memory.domain.errors import StoreFull
from memory.ports.contract.capability_tests import needs, needs_limited_space
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    apply_all,
    delete,
    fetch_record,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
    release,
)
from memory.ports.record import Record, Role
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, Purge, RaiseGeneration, Write

MOST_CALLS = 2_000


@clause("full.said", "full.nothing-kept")
@needs_limited_space
@pytest.mark.asyncio
async def test_a_full_store_says_so_keeps_what_it_has_and_works_again_with_room(harness: Harness) -> None:
    store = await harness.make_with_limited_space()
    try:
        await store.open(DECLARED)
        await fills_up_and_works_again(harness, store)
    finally:
        await harness.dispose(store)


async def fills_up_and_works_again(harness: Harness, store: Store) -> None:
    await apply_all(store, *[put(record(n, body={"n": n})) for n in range(5)])
    kept, raised, changed = list(range(5)), 0, await fetch_record(store, 4)
    failed: list[int] = []
    for start in range(100, 100 + 3 * MOST_CALLS, 3):
        numbers = [start, start + 1, start + 2]
        try:
            change = put(record(4, version=start, body={"said": _incompressible(start + 1_000_000)}))
            outcomes = await store.apply(
                [
                    RaiseGeneration(ELSEWHERE),
                    change,
                    *[put(record(n, body={"said": _incompressible(n)})) for n in numbers],
                ]
            )
        except StoreFull:
            failed = numbers
            break
        raised, changed = raised + outcomes[0].applied, await fetch_record(store, 4)
        taken = [n for n, outcome in zip(numbers, outcomes[2:], strict=True) if outcome.applied]
        assert all(isinstance(s, Record) for s in await store.get(SAMPLES, [key_of(n) for n in taken])), (
            "acknowledged, and not there"
        )
        kept += taken
    assert failed, "a full store refuses writes as StoreFull"
    assert await store.get(SAMPLES, [key_of(n) for n in failed]) == [None] * 3, (
        "nothing of the failed call is kept"
    )
    assert await fetch_record(store, 4) == changed, "what it was to replace stands as it stood"
    assert dict((await fetch_record(store, 1)).body) == {"n": 1}
    assert await query_ids(store) == [id_of(n) for n in kept]

    await harness.make_room(store)
    if store.capabilities.atomic:  # otherwise some of its writes may have been kept
        assert (await one(store, RaiseGeneration(ELSEWHERE, 0))).number == raised
    await apply_all(store, *[put(record(n)) for n in failed])
    assert await query_ids(store) == [id_of(n) for n in sorted([*kept, *failed])]


@clause("full.nothing-kept")
@needs_limited_space
@needs("conditional")
@pytest.mark.asyncio
async def test_of_a_call_whose_last_write_alone_finds_no_room_nothing_is_kept(harness: Harness) -> None:
    """The other writes are small, and each would fit. None of their effects is kept."""
    store = await harness.make_with_limited_space()
    try:
        await store.open(DECLARED)
        await _keeps_nothing_of_a_call_with_a_large_end(harness, store)
    finally:
        await harness.dispose(store)


async def _keeps_nothing_of_a_call_with_a_large_end(harness: Harness, store: Store) -> None:
    sets = range(10, 40, 10)
    keys = [key_of(n + m) for n in sets for m in range(10)]

    async def snapshot() -> list[object]:
        return [*await store.get(SAMPLES, keys), *await store.get(MORE_SAMPLES, keys)]

    def small(n: int) -> list[Write]:
        annotated = Annotate(SAMPLES, key_of(n + 3), 1, tier="long")
        changes: list[Write] = [
            put(record(n, version=2, body={"n": n})),
            delete(n + 1),
            release(n + 2),
            annotated,
            Purge(SAMPLES, key_of(n + 4), 1),
        ]
        return [put(record(n + 5)), *changes, put(record(n + 6), Absent(), MORE_SAMPLES)]

    def large(n: int) -> Write:
        return put(record(n, body={"said": "".join(_incompressible(n * 20 + m) for m in range(12))}))

    for n in sets:
        await apply_all(
            store, *[put(record(n + m, role=Role.CACHED if m == 4 else Role.HOME)) for m in range(5)]
        )
    for n in range(100, 100 + MOST_CALLS):
        if await _is_full(store, large(n)):
            break
    before, taken = await snapshot(), 0
    for n in sets:  # the first of these, unless something freed space meanwhile
        if await _is_full(store, *small(n), large(n + 7)):
            break
        before, taken = await snapshot(), taken + 1
    assert taken < len(sets), "a full store refuses writes as StoreFull"
    assert await snapshot() == before
    await harness.make_room(store)
    assert await snapshot() == before


async def _is_full(store: Store, *writes: Write) -> bool:
    """Return whether there was no space for these; otherwise they were applied."""
    try:
        await apply_all(store, *writes)
    except StoreFull:
        return True
    return False


def _incompressible(n: int) -> str:
    return Random(n).randbytes(10_000).hex()  # noqa: S311 - no secret
