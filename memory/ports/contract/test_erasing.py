"""Counting, and deleting all that matches."""

from __future__ import annotations

from datetime import timedelta

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.collections import COLLECTIONS, ENTRIES, RELATIONS, Collection
from memory.ports.contract.judges import needs
from memory.ports.contract.support import (
    ELSEWHERE,
    FOREIGN,
    HERE,
    T0,
    asked,
    delete,
    done,
    found,
    hit_ids,
    id_of,
    key_of,
    live,
    one,
    put,
    record,
    release,
)
from memory.ports.query import Count, Eq, Order, Query, Tenant, within
from memory.ports.record import Role, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, Newer, Status


@pytest.mark.asyncio
@pytest.mark.parametrize("collection", COLLECTIONS, ids=lambda c: c.name)
async def test_counts_tell_records_and_roughly_their_size(store: Store, collection: Collection) -> None:
    assert await store.count(Query(collection, within(HERE))) == Count(0, 0)
    await done(
        store,
        *[put(record(n, body={"text": "x" * 10_000}), collection=collection) for n in range(3)],
        put(record(1, ELSEWHERE), collection=collection),
    )

    counted = await store.count(Query(collection, within(HERE)))

    assert counted.records == 3
    assert 30_000 <= counted.bytes <= 120_000


@needs("order")
@pytest.mark.asyncio
async def test_a_count_takes_no_notice_of_limit_order_and_cursor(store: Store) -> None:
    await done(store, *[put(record(n)) for n in range(5)])
    page = await store.query(Query(ENTRIES, within(HERE), limit=2, order=(Order("type"),)))
    assert (await store.count(Query(ENTRIES, within(HERE), limit=2, order=(Order("type"),), cursor=page.cursor))).records == 5


@needs("conditional")
@pytest.mark.asyncio
async def test_a_count_leaves_out_marks_and_tombstones(store: Store) -> None:
    await done(store, *[put(record(n)) for n in range(4)], release(1), delete(2))
    assert (await store.count(Query(ENTRIES, within(HERE)))).records == 2


@pytest.mark.asyncio
async def test_deleting_what_matches_leaves_tombstones_above_both_versions(store: Store) -> None:
    await done(
        store,
        put(record(1, version=3)),
        put(record(2, version=70)),
        put(record(3, ELSEWHERE)),
        put(record(1, FOREIGN)),
        put(record(1), collection=RELATIONS),
    )

    assert await store.delete_matching(Query(ENTRIES, within(HERE)), 50, T0 + timedelta(days=1)) == 2

    assert await found(store, 1) == Tombstone(key_of(1), 50, discard_at=T0 + timedelta(days=1))
    assert await found(store, 2) == Tombstone(key_of(2), 71, discard_at=T0 + timedelta(days=1))
    assert await asked(store) == []
    await live(store, 3, ELSEWHERE)
    await live(store, 1, FOREIGN)
    await live(store, 1, collection=RELATIONS)
    assert await store.delete_matching(Query(ENTRIES, within(HERE)), 60) == 0
    assert await found(store, 1) == Tombstone(key_of(1), 50, discard_at=T0 + timedelta(days=1))


@pytest.mark.asyncio
async def test_tombstones_keep_the_fields_named_and_nothing_else(store: Store) -> None:
    await done(store, put(record(1, fields={"request_digest": "d1", "source": "a talk"})), put(record(2, fields={"source": "a walk"})))

    assert await store.delete_matching(Query(ENTRIES, within(HERE)), 50, keep=("request_digest",)) == 2

    assert await found(store, 1) == Tombstone(key_of(1), 50, note={"request_digest": "d1"})
    assert await found(store, 2) == Tombstone(key_of(2), 50)
    with pytest.raises(InvalidInput, match="valid_from"):
        await store.delete_matching(Query(ENTRIES, within(HERE)), 60, keep=("valid_from",))


@needs("filter")
@pytest.mark.asyncio
async def test_deleting_what_matches_keeps_what_does_not(store: Store) -> None:
    await done(store, *[put(record(n, fields={"type": "even" if n % 2 == 0 else "odd"})) for n in range(10)])
    assert await store.delete_matching(Query(ENTRIES, within(HERE), Eq("type", "odd")), 50) == 5
    assert await asked(store) == [id_of(n) for n in range(0, 10, 2)]


@pytest.mark.asyncio
async def test_deleting_what_matches_takes_no_notice_of_the_limit_and_keeps_to_the_roles(store: Store) -> None:
    await done(store, *[put(record(n)) for n in range(4)], put(record(9, role=Role.REPLICA)))
    assert await store.delete_matching(Query(ENTRIES, within(HERE), limit=1), 50) == 4
    assert (await live(store, 9)).role is Role.REPLICA
    assert await store.delete_matching(Query(ENTRIES, within(HERE), roles=frozenset(Role)), 50) == 1


@needs("tenant_wide")
@pytest.mark.asyncio
async def test_a_whole_tenant_is_deleted_and_no_other(store: Store) -> None:
    await done(store, put(record(1)), put(record(2, ELSEWHERE)), put(record(3, FOREIGN)))
    assert await store.delete_matching(Query(ENTRIES, Tenant("acme")), 50) == 2
    await live(store, 3, FOREIGN)


@needs("conditional")
@pytest.mark.asyncio
async def test_what_was_deleted_by_matching_is_not_resurrected_by_a_late_copy(store: Store) -> None:
    await done(store, put(record(version=3)))
    await store.delete_matching(Query(ENTRIES, within(HERE)), 50)
    assert (await one(store, put(record(version=3), Newer()))).status is Status.CONFLICT
    assert (await one(store, put(record(version=60), Absent()))).status is Status.CONFLICT


@needs("lexical")
@pytest.mark.asyncio
async def test_what_was_deleted_by_matching_is_no_longer_found_by_words(store: Store) -> None:
    await done(store, put(record(texts={"content": "cormorant"})))
    assert await hit_ids(store, "cormorant") == {id_of(1)}
    await store.delete_matching(Query(ENTRIES, within(HERE)), 50)
    assert await hit_ids(store, "cormorant") == set()
