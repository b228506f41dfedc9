"""A store without room: it says so, keeps what it has, keeps nothing of what failed, and works again when there is room."""

from __future__ import annotations

from random import Random

import pytest

from memory.domain.errors import StoreFull
from memory.ports.collections import COLLECTIONS, ENTRIES
from memory.ports.contract.clauses import clause
from memory.ports.contract.harness import Harness
from memory.ports.contract.judges import cramped
from memory.ports.contract.support import ELSEWHERE, asked, done, id_of, key_of, live, one, put, record
from memory.ports.record import Record
from memory.ports.store import Store
from memory.ports.writes import RaiseGeneration

MOST_CALLS = 2_000


@clause("full.said", "full.nothing-kept")
@cramped
@pytest.mark.asyncio
async def test_a_full_store_says_so_keeps_what_it_has_and_works_again_with_room(harness: Harness) -> None:
    store = await harness.cramped()
    try:
        await store.open(COLLECTIONS)
        await _fills_up_and_works_again(harness, store)
    finally:
        await harness.dispose(store)


async def _fills_up_and_works_again(harness: Harness, store: Store) -> None:
    await done(store, *[put(record(n, body={"n": n})) for n in range(5)])
    kept, raised, changed = list(range(5)), 0, await live(store, 4)
    failed: list[int] = []
    for start in range(100, 100 + 3 * MOST_CALLS, 3):
        numbers = [start, start + 1, start + 2]
        try:
            change = put(record(4, version=start, body={"said": _incompressible(start + 1_000_000)}))
            outcomes = await store.apply([RaiseGeneration(ELSEWHERE), change, *[put(record(n, body={"said": _incompressible(n)})) for n in numbers]])
        except StoreFull:
            failed = numbers
            break
        raised, changed = raised + outcomes[0].applied, await live(store, 4)
        taken = [n for n, outcome in zip(numbers, outcomes[2:], strict=True) if outcome.applied]
        assert all(isinstance(s, Record) for s in await store.get(ENTRIES, [key_of(n) for n in taken])), "acknowledged, and not there"
        kept += taken
    assert failed, "a full store refuses writes as StoreFull"
    assert await store.get(ENTRIES, [key_of(n) for n in failed]) == [None] * 3, "nothing of the failed call is kept"
    assert await live(store, 4) == changed, "what it was to replace stands as it stood"
    assert dict((await live(store, 1)).body) == {"n": 1}
    assert await asked(store) == [id_of(n) for n in kept]

    await harness.make_room(store)
    if store.capabilities.atomic:  # else some of its writes may have been kept
        assert (await one(store, RaiseGeneration(ELSEWHERE, 0))).number == raised
    await done(store, *[put(record(n)) for n in failed])
    assert await asked(store) == [id_of(n) for n in sorted([*kept, *failed])]


def _incompressible(n: int) -> str:
    return Random(n).randbytes(10_000).hex()  # noqa: S311 - no secret
