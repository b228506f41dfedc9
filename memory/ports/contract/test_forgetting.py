"""Deletion by a store with `ttl`: expired items of every kind without pending steps.

Nothing is deleted before its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    HERE,
    LONG_AGO,
    apply_all,
    delete,
    fetch_stored,
    id_of,
    key_of,
    list_rows,
    put,
    query_ids,
    record,
    release,
    step_ids,
    ways,
)
from memory.ports.query import Query, RowType, Search, within
from memory.ports.record import Mark, PendingStep, Record, Role, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, Purge, Write

STEP = (PendingStep("deliver", "deliver", {"to": "long"}),)


def _cached_record(n: int, **parts: Any) -> Record:
    """Return a cached copy, the only kind of record that a store deletes itself."""
    return record(n, role=Role.CACHED, **parts)


async def _wait_until_forgotten(harness: Harness, store: Store, numbers: Sequence[int]) -> None:
    """Wait until the store has deleted these."""
    deadline = asyncio.get_running_loop().time() + harness.ttl_patience.total_seconds()
    while await store.get(SAMPLES, [key_of(n) for n in numbers]) != [None] * len(numbers):
        assert asyncio.get_running_loop().time() < deadline, f"not forgotten within {harness.ttl_patience}"
        await asyncio.sleep(0.001)


@clause("ttl.owing", "ttl.kinds")
@needs("ttl", "conditional")
@pytest.mark.asyncio
async def test_what_owes_a_step_is_not_forgotten_until_it_is_settled(harness: Harness, store: Store) -> None:
    """An item without pending steps goes too, which shows that the store ran."""
    await apply_all(
        store,
        put(_cached_record(1, expires_at=LONG_AGO, owed=STEP)),
        put(record(2)),
        release(2, owed=STEP, discard_at=LONG_AGO),
        delete(3, owed=STEP, discard_at=LONG_AGO),
        put(_cached_record(4, expires_at=LONG_AGO)),
        put(record(5)),
        release(5, discard_at=LONG_AGO),
        delete(6, discard_at=LONG_AGO),
        put(record(9, expires_at=LONG_AGO)),
        put(record(7)),
        release(7),
        delete(8),
    )
    await _wait_until_forgotten(harness, store, (4, 5, 6))
    assert [type(await fetch_stored(store, n)) for n in (1, 2, 3, 7, 8, 9)] == [
        Record,
        Mark,
        Tombstone,
        Mark,
        Tombstone,
        Record,
    ]

    settled = [
        Annotate(SAMPLES, key_of(n), version, settle=step_ids(STEP))
        for n, version in ((1, 1), (2, 1), (3, 100))
    ]
    await apply_all(
        store,
        *settled,
        Annotate(SAMPLES, key_of(7), 1, discard_at=LONG_AGO),
        Annotate(SAMPLES, key_of(8), 100, discard_at=LONG_AGO),
    )
    await _wait_until_forgotten(harness, store, (1, 2, 3, 7, 8))
    assert await query_ids(store) == [id_of(9)], "a record that is no cached copy is its reader's to forget"


@clause("ttl.not-early")
@needs("ttl", "conditional")
@pytest.mark.asyncio
async def test_nothing_is_forgotten_before_its_time(harness: Harness, store: Store) -> None:
    for n, ahead in enumerate((timedelta(minutes=2), timedelta(minutes=15), timedelta(hours=13)), start=1):
        soon = datetime.now(UTC) + ahead
        await apply_all(
            store,
            put(_cached_record(n, expires_at=soon)),
            put(record(10 * n)),
            release(10 * n, discard_at=soon),
            delete(100 * n, discard_at=soon),
        )
    await apply_all(store, put(_cached_record(9, expires_at=LONG_AGO)))
    await _wait_until_forgotten(harness, store, (9,))

    stands = await store.get(SAMPLES, [key_of(n) for n in (1, 2, 3, 10, 20, 30, 100, 200, 300)])
    assert [type(s) for s in stands] == [Record] * 3 + [Mark] * 3 + [Tombstone] * 3


@clause("ttl.not-early")
@needs("ttl", "conditional")
@pytest.mark.asyncio
async def test_nothing_is_forgotten_in_the_part_of_a_second_before_its_time(store: Store) -> None:
    """The store may count in any unit.

    Items expire all over one second, and the test reads until each has expired.
    """
    begin = datetime.now(UTC)
    ends = {n: begin + timedelta(milliseconds=200 + 130 * n) for n in range(1, 9)}
    writes: list[Write] = [put(_cached_record(n, expires_at=at)) for n, at in ends.items()]
    writes += [delete(100 + n, discard_at=at) for n, at in ends.items()]
    writes += [
        write for n, at in ends.items() for write in (put(record(200 + n)), release(200 + n, discard_at=at))
    ]
    await apply_all(store, *writes)
    numbers = [kind + n for kind in (0, 100, 200) for n in ends]
    while datetime.now(UTC) < ends[8]:
        stands = await store.get(SAMPLES, [key_of(n) for n in numbers])
        now = datetime.now(UTC)
        early = {
            n: ends[n % 100] - now
            for n, standing in zip(numbers, stands, strict=True)
            if standing is None and now < ends[n % 100]
        }
        assert not early, "forgotten so long before its time"
        await asyncio.sleep(0.005)


@clause("ttl.kinds", "get.latest")
@needs("ttl", "conditional")
@pytest.mark.asyncio
async def test_what_was_forgotten_is_forgotten_in_every_question_and_leaves_nothing(
    harness: Harness, store: Store
) -> None:
    said: dict[str, Any] = {
        "texts": {"content": "lantern"},
        "vector": pack_vector([1.0, 0.0]) if store.capabilities.semantic else None,
    }
    gone, roles = (1, 2, 3), frozenset(Role)
    await apply_all(
        store,
        put(_cached_record(1, expires_at=LONG_AGO, accesses=3, **said)),
        put(record(2, **said)),
        release(2, discard_at=LONG_AGO),
    )
    await apply_all(store, put(record(3, **said)), delete(3, discard_at=LONG_AGO), put(record(4, **said)))
    await _wait_until_forgotten(harness, store, gone)

    async def hits() -> list[list[str]]:
        searches = [
            Search(SAMPLES, within(HERE), by, 9, roles=roles) for by in ways(store, "lantern", 1.0, 0.0)
        ]
        return [[hit.head.key.id for hit in await store.search(search)] for search in searches]

    assert await query_ids(store, roles=roles) == [id_of(4)]
    assert (await store.count(Query(SAMPLES, within(HERE), roles=roles))).records == 1
    assert await hits() == [[id_of(4)]] * len(ways(store, "", 1))
    if store.capabilities.tenant_wide:
        assert [s.key for kind in RowType for s in await list_rows(store, kind)] == [key_of(4)]
    assert (await store.audit()).problems == ()
    again: list[Write] = [
        put(record(1, generation=0), Absent()),
        Purge(SAMPLES, key_of(2), 1),
        delete(3, 2),
        Annotate(SAMPLES, key_of(2), 1),
    ]
    outcomes = await store.apply(again)
    assert [o.status for o in outcomes] == ["applied", "applied", "applied", "conflict"]
    assert await fetch_stored(store, 1) == record(1, generation=0)
    assert await hits() == [[id_of(4)]] * len(ways(store, "", 1))


@clause("ttl.not-early")
@needs("ttl", "conditional")
@pytest.mark.asyncio
async def test_an_end_that_is_moved_is_the_end_that_counts(harness: Harness, store: Store) -> None:
    """An earlier version's or an earlier end has no effect."""
    ahead = datetime.now(UTC) + timedelta(days=1)
    await apply_all(
        store,
        put(_cached_record(1, expires_at=ahead)),
        put(_cached_record(2, expires_at=ahead)),
        put(_cached_record(3, expires_at=ahead)),
    )
    await apply_all(
        store,
        put(_cached_record(1, version=2, expires_at=LONG_AGO)),
        put(_cached_record(1, version=3)),
        put(_cached_record(2, version=2)),
    )
    await apply_all(
        store, put(_cached_record(3, version=2, expires_at=LONG_AGO)), delete(4, discard_at=ahead)
    )
    await apply_all(
        store,
        put(_cached_record(5, expires_at=LONG_AGO, owed=STEP)),
        put(_cached_record(5, version=2, expires_at=ahead)),
    )
    await _wait_until_forgotten(harness, store, (3,))
    stands = await store.get(SAMPLES, [key_of(n) for n in (1, 2, 4, 5)])
    # The store may have deleted the first between its second version and its third;
    # then the third is a record of its own.
    assert [type(s) for s in stands] == [Record, Record, Tombstone, Record]


@clause("ttl.kinds", "ttl.not-early", "ttl.owing")
@needs("ttl", "conditional")
@pytest.mark.asyncio
async def test_what_an_annotation_made_of_it_is_what_is_forgotten_or_not(
    harness: Harness, store: Store
) -> None:
    """The ends are long past, and a pending step kept the items.

    One becomes a home record, one gets a later end, and one of two steps is settled.
    """
    two, ahead = (*STEP, PendingStep("erase", "erase")), datetime.now(UTC) + timedelta(days=1)
    await apply_all(
        store,
        put(_cached_record(1, expires_at=LONG_AGO, owed=STEP)),
        delete(2, owed=STEP, discard_at=LONG_AGO),
    )
    await apply_all(
        store,
        delete(3, owed=two, discard_at=LONG_AGO),
        put(record(4)),
        release(4, owed=two, discard_at=LONG_AGO),
    )
    await apply_all(
        store,
        Annotate(SAMPLES, key_of(1), 1, role=Role.HOME, settle=step_ids(STEP)),
        Annotate(SAMPLES, key_of(2), 100, discard_at=ahead, settle=step_ids(STEP)),
        Annotate(SAMPLES, key_of(3), 100, settle=step_ids(STEP)),
        Annotate(SAMPLES, key_of(4), 1, settle=step_ids(STEP)),
        put(_cached_record(9, expires_at=LONG_AGO)),
    )
    await _wait_until_forgotten(harness, store, (9,))
    assert [type(await fetch_stored(store, n)) for n in (1, 2, 3, 4)] == [Record, Tombstone, Tombstone, Mark]


@clause("annotate.expiry", "ttl.not-early", since=3)
@needs("ttl", "conditional")
@pytest.mark.asyncio
async def test_a_cached_copy_is_kept_to_the_end_that_an_annotation_moved(
    harness: Harness, store: Store
) -> None:
    """The first end is past, and a pending step kept the copy until the annotation."""
    ahead = datetime.now(UTC) + timedelta(days=1)
    await apply_all(store, *[put(_cached_record(n, expires_at=LONG_AGO, owed=STEP)) for n in (1, 2, 3)])
    settled = step_ids(STEP)
    await apply_all(
        store,
        Annotate(SAMPLES, key_of(1), 1, expires_at=ahead, settle=settled),
        Annotate(SAMPLES, key_of(2), 1, expires_at=ahead),
        Annotate(SAMPLES, key_of(2), 1, settle=settled),
        Annotate(SAMPLES, key_of(3), 1, settle=settled),
    )
    await _wait_until_forgotten(harness, store, (3,))
    stands = await store.get(SAMPLES, [key_of(1), key_of(2)])
    assert [s.expires_at for s in stands if isinstance(s, Record)] == [ahead, ahead]


@clause("ttl.kinds", "ttl.not-early")
@needs("ttl", "conditional")
@pytest.mark.asyncio
async def test_a_record_does_not_inherit_the_end_of_what_stood_there(harness: Harness, store: Store) -> None:
    """Each is written in the call that left the expired item, which still exists."""
    await apply_all(store, put(record(2)))
    await apply_all(
        store,
        delete(1, discard_at=LONG_AGO),
        put(record(1, version=200)),
        release(2, discard_at=LONG_AGO),
        put(record(2, version=200)),
        put(_cached_record(3, expires_at=LONG_AGO)),
        put(record(3, version=200)),
        put(_cached_record(9, expires_at=LONG_AGO)),
    )
    await _wait_until_forgotten(harness, store, (9,))
    assert [type(await fetch_stored(store, n)) for n in (1, 2, 3)] == [Record] * 3


@clause("ttl.owing")
@needs("ttl", "conditional", "durable")
@pytest.mark.asyncio
@cells("end", ["a good close", "a death"])
async def test_what_owes_a_step_is_not_forgotten_after_a_restart_either(
    harness: Harness, store: Store, end: str
) -> None:
    await apply_all(
        store,
        put(_cached_record(1, expires_at=LONG_AGO, owed=STEP)),
        delete(2, owed=STEP, discard_at=LONG_AGO),
        put(record(3)),
    )
    await apply_all(
        store, release(3, owed=STEP, discard_at=LONG_AGO), put(_cached_record(4, expires_at=LONG_AGO))
    )
    again = await (harness.reopen(store) if end == "a good close" else harness.restart(store))
    try:
        await again.open(DECLARED)
        await apply_all(again, put(_cached_record(9, expires_at=LONG_AGO)))
        await _wait_until_forgotten(harness, again, (4, 9))
        assert [type(await fetch_stored(again, n)) for n in (1, 2, 3)] == [Record, Tombstone, Mark]
    finally:
        await again.close()
