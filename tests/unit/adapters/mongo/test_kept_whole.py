"""Calls that are kept whole, while a generation is raised."""

from __future__ import annotations

import asyncio

import pytest

from memory.adapters.mongo.store import MongoStore
from memory.domain.errors import StoreUnavailable
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_record,
    key_of,
    put,
    query_ids,
    record,
    release,
)
from memory.ports.record import Partition
from memory.ports.writes import Absent, Newer, RaiseGeneration, Write
from tests.unit.adapters.mongo.conftest import REPLICA_SET, Held, directory_of, erased

pytestmark = [*REPLICA_SET, pytest.mark.parametrize("server", ["mongo_replica_set"], indirect=True)]

ELSEWHERE = Partition("acme", "user:bob")


def _together(generation: int | None) -> list[Write]:
    """A record of a partition whose generation is raised, among changes of every kind
    elsewhere.
    """
    return [
        put(record(10, ELSEWHERE, generation=0), Absent()),
        put(record(11, ELSEWHERE, version=90, generation=0), Newer()),
        put(record(1, version=90, generation=generation), Newer()),
        delete(12, at=ELSEWHERE),
        release(13),
        put(record(11, ELSEWHERE, version=91, generation=0), Newer()),
    ]


async def _standing(store: MongoStore) -> object:
    keys = [key_of(n, ELSEWHERE) for n in (10, 11, 12)]
    return await store.get(SAMPLES, [*keys, key_of(1), key_of(13)])


@pytest.fixture
async def late(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> Held:
    """Everything is written, and not yet looked at again."""
    await apply_all(store, *[put(record(n, ELSEWHERE)) for n in (11, 12)], put(record(1)), put(record(13)))
    return Held(monkeypatch, directory_of(store), "generations_now")


async def test_of_a_call_with_a_record_of_an_erased_generation_nothing_is_kept(
    store: MongoStore, other: MongoStore, late: Held
) -> None:
    stood = await _standing(other)
    call = asyncio.ensure_future(store.apply(_together(0), together=True))
    await late.reached.wait()
    assert await _standing(other) != stood
    await apply_all(other, RaiseGeneration(HERE))
    late.let_go.set()
    outcomes = await call
    assert [o.status for o in outcomes] == ["skipped", "skipped", "rejected", "skipped", "skipped", "skipped"]
    assert outcomes[2].reason == "generation"
    assert await _standing(other) == stood


async def test_a_call_of_fresh_records_is_done_again_under_the_new_generation(
    store: MongoStore, other: MongoStore, late: Held
) -> None:
    call = asyncio.ensure_future(store.apply(_together(None), together=True))
    await late.reached.wait()
    await apply_all(other, RaiseGeneration(HERE))
    late.let_go.set()
    outcomes = await call
    assert [o.generation for o in outcomes[:3]] == [0, 0, 1]
    assert (await fetch_record(other, 1)).generation == 1
    assert (await fetch_record(other, 11, ELSEWHERE)).version == 91


async def test_a_call_whose_records_the_erasure_has_taken_was_before_it(
    store: MongoStore, other: MongoStore, late: Held
) -> None:
    call = asyncio.ensure_future(store.apply(_together(0), together=True))
    await late.reached.wait()
    await erased(other)
    late.let_go.set()
    assert all(o.applied for o in await call)
    assert (await fetch_record(other, 11, ELSEWHERE)).version == 91
    assert await query_ids(other) == []


async def test_a_call_that_others_went_on_from_leaves_only_what_is_not_erased_and_says_that_its_end_is_unknown(
    store: MongoStore, other: MongoStore, late: Held
) -> None:
    call = asyncio.ensure_future(store.apply(_together(0), together=True))
    await late.reached.wait()
    await apply_all(other, RaiseGeneration(HERE), put(record(10, ELSEWHERE, version=2)))
    late.let_go.set()
    with pytest.raises(StoreUnavailable, match="in part"):
        await call
    assert (await fetch_record(other, 10, ELSEWHERE)).version == 2
    assert (await fetch_record(other, 1)).version == 1
