"""Over ten thousand records: no engine, driver or portion truncates an answer."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    T0,
    alike,
    delete,
    fetch_record,
    id_of,
    key_of,
    one,
    put,
    record,
)
from memory.ports.full_scan import scan
from memory.ports.query import (
    MAX_LIMIT,
    Eq,
    Everywhere,
    In,
    Near,
    Order,
    Query,
    RowType,
    Search,
    Tenant,
    Words,
    within,
)
from memory.ports.record import Corrupt, Record, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Newer, RaiseGeneration, Write

HERE_ALL = Query(SAMPLES, within(HERE), limit=MAX_LIMIT)


async def _fill(store: Store, many: int) -> None:
    vectors = (
        [pack_vector([1.0, angle / 7]) for angle in range(7)] if store.capabilities.semantic else [None] * 7
    )
    size = min(store.capabilities.max_batch or 1_000, 1_000)
    same: dict[str, Any] = {"texts": {"content": "lantern"}, "created_at": T0, "updated_at": T0}
    records = [
        record(n, version=_version(n), fields={"type": "ab"[n % 2]}, vector=vectors[n % 7], **same)
        for n in range(many)
    ]
    for start in range(0, many, size):
        outcomes = await store.apply([put(r) for r in records[start : start + size]])
        assert all(o.applied for o in outcomes)
    await one(store, put(record(1, ELSEWHERE)))


def _version(n: int) -> int:
    """Return a version; one in two hundred is above that of the later tombstones."""
    return 70 if n % 200 == 199 else 1


def _ids(records: tuple[object, ...]) -> list[str]:
    return [r.key.id for r in records if isinstance(r, Record)]


@clause("get.order", "query.all", "query.pages", "count.exact", "search.limit", "erase.all", "everywhere.all")
@pytest.mark.asyncio
async def test_answers_over_ten_thousand_records_are_whole(harness: Harness, store: Store) -> None:
    """It is one test, because filling a store takes longest."""
    many = min(harness.many, harness.depth.many)
    ids = [id_of(n) for n in range(many)]
    await _fill(store, many)
    keys = [key_of(n) for n in range(many)] + [key_of(n) for n in range(many, many + 50)]
    random.Random(1).shuffle(keys)  # noqa: S311  always the same
    known = set(ids)
    alike(
        [None if s is None else s.key for s in await store.get(SAMPLES, keys)],
        [k if k.id in known else None for k in keys],
    )
    alike(_ids((await store.query(HERE_ALL)).records), ids[:MAX_LIMIT])
    alike(await _all(store, HERE_ALL), ids)
    assert (await store.count(HERE_ALL)).records == many
    await _check_pages(store, HERE_ALL, ids)
    if store.capabilities.filter:
        odd = replace(HERE_ALL, filter=Eq("type", "b"))
        alike(await _all(store, odd), ids[1::2])
        assert (await store.count(odd)).records == many // 2
        last = replace(HERE_ALL, filter=In("id", tuple(ids[-3:])))
        alike(_ids((await store.query(last)).records), ids[-3:])
    if store.capabilities.order:
        alike(
            _ids((await store.query(replace(HERE_ALL, order=(Order("created_at", True),), limit=3))).records),
            ids[:-4:-1],
        )
        alike(await _all(store, replace(HERE_ALL, order=(Order("type"),))), ids[::2] + ids[1::2])
    if store.capabilities.tenant_wide:
        for where in (Tenant("acme"), Everywhere()):
            wide = Query(SAMPLES, where)
            alike(sorted(await _all(store, wide)), sorted([*ids, id_of(1, ELSEWHERE)]))
            assert (await store.count(wide)).records == many + 1
    await _all_found(harness, store, ids)
    await _all_erased(store, ids)


async def _all(store: Store, query: Query) -> list[str]:
    return [found.key.id async for page in scan(store, query, MAX_LIMIT) for found in page.records]


async def _check_pages(store: Store, query: Query | None, ids: list[str]) -> None:
    walked: list[str] = []
    while query is not None:
        page = await store.query(replace(query, limit=max(1, len(ids) * 2 // 5)))
        walked += _ids(page.records)
        query = None if page.cursor is None else replace(query, cursor=page.cursor)
    alike(walked, ids)


async def _all_found(harness: Harness, store: Store, ids: list[str]) -> None:
    if store.capabilities.lexical:
        hits = await store.search(Search(SAMPLES, within(HERE), Words("lantern"), MAX_LIMIT))
        alike([h.head.key.id for h in hits], ids[:MAX_LIMIT])
    if store.capabilities.semantic and harness.recall == 1.0:
        hits = await store.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 0.0])), MAX_LIMIT))
        alike([h.head.key.id for h in hits], [i for angle in range(7) for i in ids[angle::7]][:MAX_LIMIT])


async def _all_erased(store: Store, ids: list[str]) -> None:
    many = len(ids)
    await one(store, RaiseGeneration(HERE))
    assert await store.delete_matching(HERE_ALL, 50, T0) == many
    assert (await store.count(HERE_ALL)).records == 0
    alike((await store.query(HERE_ALL)).records, ())
    left = await store.get(SAMPLES, [key_of(n) for n in range(many)])
    alike(left, [Tombstone(key_of(n), max(50, _version(n) + 1), discard_at=T0) for n in range(many)])
    if store.capabilities.tenant_wide:
        alike(await _all(store, Query(SAMPLES, Everywhere(), types=frozenset({RowType.TOMBSTONE}))), ids)
    await fetch_record(store, 1, ELSEWHERE)


@clause("apply.order", "atomic.together")
@needs("conditional")
@pytest.mark.asyncio
async def test_the_longest_batches_are_carried_out_in_order_and_together_as_a_whole(
    harness: Harness, store: Store
) -> None:
    many = min(store.capabilities.max_batch or harness.many, harness.many, harness.depth.many)
    thirds = range(many // 3)
    writes: list[Write] = []
    for n in thirds:
        writes += [put(record(n), Absent()), delete(n, version=2), put(record(n, version=3), AtVersion(2))]
    outcomes = await store.apply(writes)
    alike(
        [(o.status, o.version) for o in outcomes],
        [("applied", 1), ("applied", 2), ("applied", 3)] * len(thirds),
    )
    if not store.capabilities.atomic:
        return
    outcomes = await store.apply(
        [*[put(record(n, version=4), Newer()) for n in range(many - 1)], put(record(0), Absent())],
        together=True,
    )
    alike([o.status for o in outcomes], ["skipped"] * (many - 1) + ["conflict"])
    stands = await store.get(SAMPLES, [key_of(n) for n in range(many)])
    alike(
        [None if s is None else s.version for s in stands if not isinstance(s, Corrupt)],
        [3] * len(thirds) + [None] * (many - len(thirds)),
    )
