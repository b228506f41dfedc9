"""Marks and tombstones: listed, filtered, counted and paged everywhere."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import HERE, T0, apply_all, delete, id_of, key_of, put, record, release
from memory.ports.query import (
    MAX_LIMIT,
    And,
    Condition,
    Eq,
    Everywhere,
    Ge,
    Gt,
    In,
    IsNull,
    Le,
    Lt,
    Not,
    Or,
    Query,
    RowType,
    within,
)
from memory.ports.query_evaluation import lets_through
from memory.ports.record import Corrupt, Mark, PendingStep, Record, Standing, Tombstone
from memory.ports.store import Store


@clause("query.left")
@needs("tenant_wide", "conditional", "filter")
@pytest.mark.asyncio
async def test_tombstones_are_paged_and_filtered_too(store: Store) -> None:
    await apply_all(
        store, *[delete(n, version=n + 1, discard_at=T0 + timedelta(seconds=n)) for n in range(9)]
    )
    tombstones = frozenset({RowType.TOMBSTONE})
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.query(Query(SAMPLES, Everywhere(), limit=4, cursor=cursor, types=tombstones))
        ids += [t.key.id for t in page.records]
        cursor = page.cursor
        if cursor is None:
            break
    assert ids == [id_of(n) for n in range(9)]
    old = await store.query(
        Query(SAMPLES, Everywhere(), Eq("discard_at", T0 + timedelta(seconds=3)), types=tombstones)
    )
    assert [t.key for t in old.records] == [key_of(3)]


@clause("count.exact", "query.left")
@needs("tenant_wide", "conditional", "filter")
@pytest.mark.asyncio
async def test_marks_and_tombstones_are_counted_as_they_are_listed(store: Store) -> None:
    await apply_all(
        store,
        *[delete(n, discard_at=T0 + timedelta(seconds=n)) for n in range(9)],
        put(record(20)),
        put(record(21)),
        release(21),
    )
    for kind, expected in ((RowType.TOMBSTONE, 9), (RowType.MARK, 1), (RowType.RECORD, 1)):
        assert (
            await store.count(Query(SAMPLES, Everywhere(), types=frozenset({kind})))
        ).records == expected, kind
    after = Query(
        SAMPLES,
        Everywhere(),
        Gt("discard_at", T0 + timedelta(seconds=3)),
        types=frozenset({RowType.TOMBSTONE}),
    )
    assert (await store.count(after)).records == 5


@clause("query.left", "filter.holds", "count.exact")
@needs("tenant_wide", "conditional", "filter")
@pytest.mark.asyncio
async def test_every_operator_holds_for_what_was_left_as_for_records(store: Store) -> None:
    """The items have a date or not, and pending steps or not.

    An item without a date is neither before nor after any. The test reads each type,
    alone and together with records.
    """
    dates, step = (
        [None if n % 3 == 0 else T0 + timedelta(days=n) for n in range(18)],
        (PendingStep("k", "k"),),
    )
    for n, at in enumerate(dates[:9]):
        await apply_all(store, delete(n, version=n + 1, discard_at=at, owed=step if n % 2 else ()))
    for n, at in enumerate(dates[9:], start=9):
        await apply_all(
            store, put(record(n, version=n + 1)), release(n, n + 1, discard_at=at, owed=step if n % 2 else ())
        )
    await apply_all(
        store, *[put(record(n, version=n + 1, owed=step if n % 2 else ())) for n in range(20, 24)]
    )
    values: dict[str, tuple[Any, ...]] = {"discard_at": (*dates[1:3], dates[13]), "version": (3, 12, 2**62)}
    parts: list[Condition] = [
        op(name, value) for name, some in values.items() for value in some for op in (Eq, Lt, Le, Gt, Ge)
    ]
    parts += [
        op("discard_at", dates[1].astimezone(timezone(timedelta(hours=9)))) for op in (Eq, Lt, Ge) if dates[1]
    ]
    parts += [
        IsNull("discard_at"),
        Eq("owing", True),
        Eq("owing", False),
        IsNull("id"),
        In("discard_at", ()),
        Eq("discard_at", None),
    ]
    parts += [
        *[Eq("id", id_of(n)) for n in (4, 12, 99)],
        In("discard_at", (*dates[1:3], None)),
        In("id", (id_of(1), id_of(11), id_of(21))),
        In("version", (2, 12, 22)),
    ]
    parts += [Not(part) for part in parts]
    parts += [
        And((Eq("owing", True), IsNull("discard_at"))),
        Or((Lt("discard_at", T0 + timedelta(days=3)), And((Eq("owing", False), Gt("version", 10))))),
    ]
    everything = list(
        await _readable_rows(store, Query(SAMPLES, Everywhere(), types=frozenset(RowType), limit=MAX_LIMIT))
    )
    assert len(everything) == 22
    of_kind = {RowType.RECORD: Record, RowType.MARK: Mark, RowType.TOMBSTONE: Tombstone}
    for kinds in (
        {RowType.TOMBSTONE},
        {RowType.MARK},
        {RowType.MARK, RowType.TOMBSTONE},
        {RowType.RECORD, RowType.TOMBSTONE},
        set(RowType),
    ):
        standing = [s for s in everything if isinstance(s, tuple(of_kind[kind] for kind in kinds))]
        for part in parts:
            query = Query(SAMPLES, Everywhere(), part, types=frozenset(kinds), limit=MAX_LIMIT)
            expected = [s for s in standing if lets_through(part, s)]
            assert await _readable_rows(store, query) == expected, (kinds, part)
            assert (await store.count(query)).records == len(expected), (kinds, part)


async def _readable_rows(store: Store, query: Query) -> list[Standing]:
    return [s for s in (await store.query(query)).records if not isinstance(s, Corrupt)]


@clause("query.left", "refused.questions")
@pytest.mark.asyncio
async def test_marks_and_tombstones_are_listed_everywhere_or_not_at_all(store: Store) -> None:
    for kinds in ({RowType.MARK}, {RowType.TOMBSTONE}, {RowType.RECORD, RowType.MARK}):
        with pytest.raises(InvalidInput):
            await store.query(Query(SAMPLES, within(HERE), types=frozenset(kinds)))
