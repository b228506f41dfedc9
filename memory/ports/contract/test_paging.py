"""Order and pages: a total order, and cursors that lose and repeat nothing.

Missing values sort low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.domain.ids import derived_id
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    T0,
    apply_all,
    delete,
    id_of,
    put,
    query_ids,
    record,
)
from memory.ports.query import Eq, Everywhere, Order, Query, RowType, Tenant, decode_cursor, within
from memory.ports.record import Key, Record, Role
from memory.ports.store import Store

SORTED: list[str | None] = [None, "", "A", "B", "a", "ab", "é", "\uffff", "\U0001f600"]  # as code points sort


async def _pages(store: Store, limit: int, **parts: Any) -> list[str]:
    """Return the ids of all pages, and check each page's size."""
    query = Query(SAMPLES, parts.pop("where", within(HERE)), limit=limit, **parts)
    ids: list[str] = []
    while True:
        page = await store.query(query)
        ids += [r.key.id for r in page.records]
        assert len(page.records) <= limit
        if page.cursor is None:
            return ids
        assert len(page.records) == limit, "only the last page may be short"
        query = Query(SAMPLES, query.where, query.filter, query.order, limit, page.cursor, query.roles)


def _sorted_ids(records: Sequence[Record], *order: Order) -> list[str]:
    rows = sorted(records, key=lambda r: r.key.id, reverse=bool(order) and order[-1].descending)
    for by in reversed(order):

        def key(r: Record, field: str = by.field) -> tuple[bool, Any]:
            value = (
                r.key.id
                if field == "id"
                else (
                    r.fields.get(field)
                    if field in ("type", "confidence", "valid_from")
                    else getattr(r, field)
                )
            )
            return value is not None, value

        rows.sort(key=key, reverse=by.descending)
    return [r.key.id for r in rows]


def _mixed_records() -> list[Record]:
    """Return records with many ties and gaps, and ids unrelated to their values."""
    rows = []
    for n in range(36):
        fields = {
            "type": SORTED[n * 7 % 9],
            "confidence": [None, -1.5, 0.0, 2, 10.0][n % 5],
            "valid_from": [None, T0, T0 + timedelta(microseconds=1)][n % 3],
        }
        kept = {k: v for k, v in fields.items() if v is not None}
        rows.append(
            record(
                n,
                version=1 + n % 4,
                fields=kept,
                updated_at=T0 + timedelta(seconds=n % 6),
                expires_at=None if n % 2 else T0,
            )
        )
    return rows


ORDERS: list[tuple[Order, ...]] = [
    (),
    (Order("id"),),
    (Order("id", True),),
    (Order("type"),),
    (Order("type", True),),
    (Order("confidence"), Order("type", True)),
    (Order("valid_from", True), Order("confidence")),
    (Order("updated_at", True),),
    (Order("updated_at", True), Order("id")),
    (
        Order("version"),
        Order("expires_at", True),
        Order("valid_from"),
        Order("confidence", True),
        Order("type"),
    ),
]


@clause("query.all", "query.pages")
@pytest.mark.asyncio
async def test_without_an_order_records_come_by_id(store: Store) -> None:
    """Fresh and derived ids are sorted together, by every digit."""
    rows = _mixed_records() + [
        replace(record(), key=Key(HERE.tenant, derived_id(HERE.tenant, HERE.scope, str(n))))
        for n in range(40)
    ]
    ids = sorted(r.key.id for r in rows)
    await apply_all(store, *[put(r) for r in rows])
    assert await query_ids(store) == ids
    assert await _pages(store, 5) == ids
    if store.capabilities.order:
        assert await _pages(store, 7, order=(Order("id", True),)) == ids[::-1]


@clause("query.order", "query.pages")
@needs("order")
@pytest.mark.asyncio
@cells(
    "order",
    ORDERS,
    ids=lambda o: ",".join(f"{'-' if by.descending else ''}{by.field}" for by in o) or "none",
    shared=True,
)
async def test_pages_follow_the_order_and_lose_and_repeat_nothing(
    store: Store, order: tuple[Order, ...]
) -> None:
    rows = _mixed_records()
    await apply_all(store, *[put(r) for r in rows])
    expected = _sorted_ids(rows, *order)
    assert await query_ids(store, order=order) == expected
    for limit in (1, 7, 35, 36, 37):
        assert await _pages(store, limit, order=order) == expected, f"pages of {limit}"


@clause("query.pages")
@needs("order")
@pytest.mark.asyncio
async def test_pages_through_ties_alone_lose_and_repeat_nothing(store: Store) -> None:
    rows = [record(n, updated_at=T0, fields={"type": "same"}) for n in range(20)]
    await apply_all(store, *[put(r) for r in rows])
    assert await _pages(store, 6, order=(Order("updated_at", True), Order("type"))) == [
        r.key.id for r in rows
    ]
    assert await _pages(store, 6, order=(Order("updated_at"), Order("type", True))) == [
        r.key.id for r in reversed(rows)
    ]


@clause("query.pages")
@needs("order")
@pytest.mark.asyncio
async def test_inserts_between_pages_shift_nothing(store: Store) -> None:
    await apply_all(store, *[put(record(n, updated_at=T0)) for n in range(10, 30, 2)])
    order = (Order("updated_at"),)
    first = await store.query(Query(SAMPLES, within(HERE), order=order, limit=4))

    await apply_all(
        store,
        put(record(11, updated_at=T0)),
        put(record(17, updated_at=T0)),
        put(record(1, updated_at=T0 - timedelta(days=1))),
    )
    assert first.cursor is not None
    rest = await store.query(Query(SAMPLES, within(HERE), order=order, cursor=first.cursor))

    assert [r.key.id for r in first.records] == [id_of(n) for n in (10, 12, 14, 16)]
    assert [r.key.id for r in rest.records] == [id_of(n) for n in (17, 18, 20, 22, 24, 26, 28)]


@clause("query.pages")
@needs("order", "conditional")
@pytest.mark.asyncio
async def test_a_cursor_still_works_when_its_record_is_gone(store: Store) -> None:
    await apply_all(store, *[put(record(n)) for n in range(6)])
    order = (Order("created_at", True),)
    first = await store.query(Query(SAMPLES, within(HERE), order=order, limit=3))

    await apply_all(store, delete(3))

    assert await query_ids(store, order=order, cursor=first.cursor) == [id_of(n) for n in (2, 1, 0)]


@clause("query.pages", since=2)
@needs("order")
@pytest.mark.asyncio
async def test_a_cursor_goes_on_from_where_its_record_stood_when_that_has_moved(store: Store) -> None:
    """Only the record that moved may come again, in its current place."""
    await apply_all(store, *[put(record(n)) for n in range(6)])
    order = (Order("updated_at"),)
    first = await store.query(Query(SAMPLES, within(HERE), order=order, limit=3))
    for seconds, rest in ((-9, (3, 4, 5)), (4, (3, 2, 4, 5)), (9, (3, 4, 5, 2)), (0, (3, 4, 5))):
        await apply_all(store, put(record(2, updated_at=T0 + timedelta(seconds=seconds))))
        assert await query_ids(store, order=order, cursor=first.cursor) == [id_of(n) for n in rest]


@clause("query.pages")
@needs("order", "filter")
@pytest.mark.asyncio
async def test_pages_keep_to_their_filter(store: Store) -> None:
    rows = _mixed_records()
    await apply_all(store, *[put(r) for r in rows])
    wanted = [r for r in rows if r.fields.get("confidence") == 2]
    order = (Order("type", True),)
    assert await _pages(store, 2, filter=Eq("confidence", 2), order=order) == _sorted_ids(wanted, *order)


@clause("query.pages", "everywhere.all")
@needs("order", "tenant_wide")
@pytest.mark.asyncio
async def test_pages_run_through_several_partitions_and_a_whole_tenant(store: Store) -> None:
    rows = [record(n, at) for n in range(8) for at in (HERE, ELSEWHERE)]
    await apply_all(store, *[put(r) for r in rows])
    order = (Order("updated_at", True),)
    for where in (within(HERE, ELSEWHERE), Tenant("acme"), Everywhere()):
        assert await _pages(store, 3, where=where, order=order) == _sorted_ids(rows, *order)


@clause("query.cursor")
@pytest.mark.asyncio
async def test_cursors_are_the_same_on_every_store(store: Store) -> None:
    await apply_all(store, *[put(record(n)) for n in range(3)])
    page = await store.query(Query(SAMPLES, within(HERE), limit=2))
    assert page.cursor is not None
    assert decode_cursor(page.cursor, ()).id == id_of(1)


@clause("query.cursor")
@needs("order")
@pytest.mark.asyncio
async def test_a_cursor_carries_the_sort_values_of_the_last_record(store: Store) -> None:
    await apply_all(store, *[put(record(n, fields={"type": "é"})) for n in range(3)])
    order = (Order("type"), Order("updated_at"))
    page = await store.query(Query(SAMPLES, within(HERE), order=order, limit=2))
    assert page.cursor is not None
    assert decode_cursor(page.cursor, order).values == ("é", T0 + timedelta(seconds=1))


@clause("query.cursor")
@needs("order")
@pytest.mark.asyncio
async def test_a_cursor_tells_no_sign_of_nought(store: Store) -> None:
    """Some stores lose it, and cursors are the same on every store."""
    await apply_all(store, *[put(record(n, fields={"confidence": -0.0})) for n in (1, 2)])
    order = (Order("confidence"),)
    page = await store.query(Query(SAMPLES, within(HERE), order=order, limit=1))
    assert page.cursor is not None
    assert repr(decode_cursor(page.cursor, order).values) == "(0.0,)"


@clause("query.cursor", "refused.questions")
@needs("order")
@pytest.mark.asyncio
@cells("cursor", ["", "nonsense", "W10", "ééé", "e30", "WzEsMl0", "WyJhIiwgMV0"], shared=True)
async def test_what_is_no_cursor_is_refused(store: Store, cursor: str) -> None:
    await apply_all(store, put(record()))
    for order in ((), (Order("type"),)):
        with pytest.raises(InvalidInput):
            await store.query(Query(SAMPLES, within(HERE), order=order, cursor=cursor))


@clause("query.cursor", "refused.questions")
@needs("order")
@pytest.mark.asyncio
async def test_a_cursor_of_another_order_is_refused(store: Store) -> None:
    await apply_all(store, *[put(record(n)) for n in range(3)])
    page = await store.query(Query(SAMPLES, within(HERE), order=(Order("type"),), limit=1))
    with pytest.raises(InvalidInput):
        await store.query(Query(SAMPLES, within(HERE), cursor=page.cursor))
    with pytest.raises(InvalidInput):
        await store.query(
            Query(SAMPLES, within(HERE), order=(Order("type"), Order("id")), cursor=page.cursor)
        )


@clause("refused.questions")
@needs("order")
@pytest.mark.asyncio
@cells("field", ["colour", "type; --", "tags"], shared=True)
async def test_an_order_by_an_unknown_field_or_by_tags_is_refused(store: Store, field: str) -> None:
    with pytest.raises(InvalidInput):
        await store.query(Query(SAMPLES, within(HERE), order=(Order(field),)))


@clause("query.roles")
@pytest.mark.asyncio
async def test_only_the_asked_roles_are_found(store: Store) -> None:
    await apply_all(store, *[put(record(n, role=role)) for n, role in enumerate(Role)])
    assert await query_ids(store) == [id_of(0)]
    assert await query_ids(store, roles=frozenset({Role.REPLICA, Role.CACHED})) == [id_of(1), id_of(3)]
    assert await query_ids(store, roles=frozenset(Role)) == [id_of(n) for n in range(4)]
    assert (await store.count(Query(SAMPLES, within(HERE), roles=frozenset({Role.ARRIVING})))).records == 1


@clause("query.pages", "query.left")
@pytest.mark.asyncio
@cells("number", [1, 2, 5, 6])
async def test_the_last_page_has_no_cursor_also_where_it_is_just_full(store: Store, number: int) -> None:
    """It is the first page or a later one, of records and of marks and tombstones."""
    everything: list[Query] = [Query(SAMPLES, within(HERE))]
    await apply_all(store, *[put(record(n)) for n in range(number)])
    if store.capabilities.conditional and store.capabilities.tenant_wide:
        await apply_all(store, *[delete(100 + n) for n in range(number)])
        everything += [
            Query(SAMPLES, Everywhere(), types=frozenset({RowType.TOMBSTONE})),
            Query(SAMPLES, Everywhere()),
        ]
    for query in everything:
        for limit in (1, 2, 3, number, number + 1):
            sizes: list[int] = []
            cursor: str | None = None
            while not sizes or cursor is not None:
                page = await store.query(replace(query, limit=limit, cursor=cursor))
                sizes.append(len(page.records))
                cursor = page.cursor
            assert sum(sizes) == number
            assert sizes[-1] > 0, "behind the last page there is none"
            if query.types == {RowType.RECORD}:
                assert sizes == [limit] * (number // limit) + [number % limit] * (number % limit > 0), limit
