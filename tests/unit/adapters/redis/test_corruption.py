"""Damage: no read serves wrong content, neighbours are served, and what is damaged can
be looked at, replaced and erased.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis

from memory.adapters.redis.keys import address_of, record_key
from memory.adapters.redis.store import RedisStore
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import HERE, T0, apply_all, fetch_stored, key_of, one, put, record
from memory.ports.query import Eq, Everywhere, Order, Query, Tenant, within
from memory.ports.record import Corrupt, Record, Tombstone
from memory.ports.writes import Absent, Always, AtVersion, Newer, Status
from tests.support.servers import Server
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [pytest.mark.backend("redis"), *NEEDS_SERVER]


def damage(server: Server, prefix: str, n: int, at: int) -> bytes:
    """Flip a bit of the n-th record's value; counts from the end where negative.
    Returns what stands there now.
    """
    with redis.Redis(port=server.port) as client:
        name = record_key(prefix, address_of("samples", key_of(n)))
        value = bytearray(client.get(name) or b"")
        value[at] ^= 1
        client.set(name, bytes(value))
        return bytes(value)


def quarantine(server: Server, prefix: str) -> list[Any]:
    with redis.Redis(port=server.port) as client:
        return [value for name in client.keys(f"*{prefix}*:q:*") for value in client.hvals(name)]


# the format, the seal, the kind, the role, the version, the creation, the partition,
# the digest, the sizes, the content
PLACES = [0, 5, 17, 18, 25, 60, 80, 130, 140, 150, 175, -1]


@pytest.mark.parametrize("at", PLACES)
async def test_a_changed_byte_is_corrupt_and_its_neighbours_are_served(
    store: RedisStore, server: Server, prefix: str, at: int
) -> None:
    await apply_all(store, *[put(record(n, body={"n": n})) for n in range(3)])
    damaged = damage(server, prefix, 1, at)
    for _ in range(2):
        for where in (within(HERE), Tenant("acme"), Everywhere()):
            for order in ((), (Order("created_at", True),)):
                page = await store.query(Query(SAMPLES, where, order=order))
                assert {r.key for r in page.records} == {key_of(0), key_of(2)}
                assert page.corrupt == (key_of(1),)
        answers = await store.get(SAMPLES, [key_of(n) for n in range(3)])
        assert [type(a) for a in answers] == [Record, Corrupt, Record]
        assert (await store.count(Query(SAMPLES, within(HERE)))).records == 2
    assert quarantine(server, prefix) == [damaged], "kept as it was, for people to look at"


@pytest.mark.parametrize("found_before", [False, True])
@pytest.mark.parametrize("at", [5, 60, -1])
async def test_what_writes_do_to_a_corrupt_record(
    store: RedisStore, server: Server, prefix: str, found_before: bool, at: int
) -> None:
    for when, status in ((Absent(), Status.CONFLICT), (Newer(), Status.APPLIED), (Always(), Status.APPLIED)):
        await apply_all(store, put(record(1), Always()))
        damage(server, prefix, 1, at)
        if found_before:
            assert isinstance(await fetch_stored(store, 1), Corrupt)
        outcome = await one(store, put(record(1, version=5), when))
        assert outcome.status is status
        if status is Status.CONFLICT:
            assert isinstance(outcome.stored, Corrupt)
    assert isinstance(await fetch_stored(store, 1), Record)
    assert quarantine(server, prefix) == []
    assert (await store.query(Query(SAMPLES, within(HERE)))).corrupt == ()


@pytest.mark.parametrize("at", [5, -1])
async def test_a_write_at_the_version_of_what_is_corrupt_conflicts(
    store: RedisStore, server: Server, prefix: str, at: int
) -> None:
    await apply_all(store, put(record(1)))
    damage(server, prefix, 1, at)
    for _ in range(2):
        outcome = await one(store, put(record(1, version=2), AtVersion(1)))
        assert (outcome.status, type(outcome.stored)) == (Status.CONFLICT, Corrupt)
        await store.get(SAMPLES, [key_of(1)])


@pytest.mark.parametrize("found_before", [False, True])
@pytest.mark.parametrize("at", [5, 60, 80, -1])
async def test_erasure_reaches_what_cannot_be_read_whatever_the_filter(
    store: RedisStore, server: Server, prefix: str, found_before: bool, at: int
) -> None:
    await apply_all(store, *[put(record(n, fields={"type": "kept"})) for n in range(3)])
    damage(server, prefix, 1, at)
    if found_before:
        await store.get(SAMPLES, [key_of(1)])
    assert await store.delete_matching(Query(SAMPLES, within(HERE), Eq("type", "other")), 50, T0) == 1
    assert await fetch_stored(store, 1) == Tombstone(key_of(1), 50, discard_at=T0)
    assert quarantine(server, prefix) == [], "what was erased is not kept anywhere"
    assert len((await store.query(Query(SAMPLES, within(HERE)))).records) == 2


async def test_a_record_copied_over_another_is_not_served_as_that_one(
    store: RedisStore, server: Server, prefix: str
) -> None:
    await apply_all(store, put(record(1)), put(record(2)))
    with redis.Redis(port=server.port) as client:
        names = [record_key(prefix, address_of("samples", key_of(n))) for n in (1, 2)]
        client.set(names[1], client.get(names[0]) or b"")
    assert isinstance(await fetch_stored(store, 2), Corrupt)
    assert isinstance(await fetch_stored(store, 1), Record)


@pytest.mark.parametrize("descending", [False, True])
async def test_what_lies_behind_a_page_by_last_change_is_not_shown_and_not_passed_over_where_it_is_damaged(
    store: RedisStore, server: Server, prefix: str, descending: bool
) -> None:
    changes = {n: T0 + timedelta(seconds=n * 37 % 151) for n in range(150)}
    await apply_all(store, *[put(record(n, created_at=T0, updated_at=at)) for n, at in changes.items()])
    inorder = sorted(changes, key=changes.__getitem__, reverse=descending)
    damage(server, prefix, inorder[-1], -1)
    damage(server, prefix, inorder[-2], 160)
    for where in (within(HERE), Tenant("acme")):
        query = Query(SAMPLES, where, order=(Order("updated_at", descending),), limit=3)
        first = await store.query(query)
        assert [r.key for r in first.records] == [key_of(n) for n in inorder[:3]]
        assert set(first.corrupt) == {key_of(inorder[-1]), key_of(inorder[-2])}
        second = await store.query(replace(query, limit=200, cursor=first.cursor))
        assert [r.key for r in second.records] == [key_of(n) for n in inorder[3:-2]]
