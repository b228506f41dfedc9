"""Calls on one folder that others have a turn amid: what is read, decided on and
changed stays one thing; closing waits for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from memory.adapters.qdrant.store import QdrantStore
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, key_of, put, record
from memory.ports.query import Order, Query, within
from memory.ports.record import Record, Tombstone
from memory.ports.writes import Absent, AtVersion, Newer, Status

pytestmark = pytest.mark.backend("qdrant_edge")

MANY = 40


async def test_of_batches_at_once_exactly_one_creates_each_record(edge: QdrantStore) -> None:
    batches = [[put(record(n, body={"by": caller}), Absent()) for n in range(MANY)] for caller in range(5)]
    outcomes = await asyncio.gather(*(edge.apply(batch) for batch in batches))
    applied = Counter(
        n for batch in outcomes for n, outcome in enumerate(batch) if outcome.status is Status.APPLIED
    )
    assert applied == Counter(range(MANY))


async def test_an_erasure_and_a_batch_at_once_leave_no_record_that_stood_before(edge: QdrantStore) -> None:
    await edge.apply([put(record(n), Absent()) for n in range(MANY)])
    changing = [put(record(n, version=2), AtVersion(1)) for n in range(MANY)]
    outcomes, deleted = await asyncio.gather(
        edge.apply(changing), edge.delete_matching(Query(SAMPLES, within(HERE)), 10)
    )
    assert deleted == MANY
    assert len({outcome.status for outcome in outcomes}) == 1
    assert all(
        isinstance(stored, Tombstone) for stored in await edge.get(SAMPLES, [key_of(n) for n in range(MANY)])
    )


async def test_closing_amid_a_batch_waits_for_it(folder: Path) -> None:
    store = QdrantStore(f"qdrant+edge:///{folder}")
    await store.open(DECLARED)
    writing = asyncio.create_task(store.apply([put(record(n), Newer()) for n in range(MANY)]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not writing.done()
    await store.close()
    assert all(outcome.applied for outcome in await writing)
    await store.open(DECLARED)
    assert all(
        isinstance(stored, Record) for stored in await store.get(SAMPLES, [key_of(n) for n in range(MANY)])
    )
    await store.close()


async def test_closing_amid_a_reading_waits_for_it(folder: Path) -> None:
    store = QdrantStore(f"qdrant+edge:///{folder}")
    await store.open(DECLARED)
    for start in range(0, 1_200, 400):
        await store.apply([put(record(n), Newer()) for n in range(start, start + 400)])
    reading = asyncio.create_task(
        store.query(Query(SAMPLES, within(HERE), order=(Order("type"),), limit=100))
    )
    for _ in range(20):
        await asyncio.sleep(0)
    assert not reading.done()
    async with asyncio.timeout(30):
        await store.close()
        assert len((await reading).records) == 100
