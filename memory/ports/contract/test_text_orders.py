"""Text fields in `Collection.orders`: the records of a partition by code points."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from memory.ports.collections import ORDERED_BYTES, Collection, Field, FieldType
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import ELSEWHERE, HERE, apply_all, delete, fetch_stored, put, record
from memory.ports.query import And, Condition, Eq, Ge, Lt, Order, Query, StartsWith, within
from memory.ports.record import Record, Role
from memory.ports.store import Store
from memory.ports.writes import Status

_KEYS = (
    *(
        "A",
        "B",
        "a",
        "a ",
        "a\t",
        "a/",
        "a/b",
        "a0",
        "aa",
        "aé",
        "b",
        "%",
        "*",
        "_",
        "'",
        "\\",
        "é",
        "e\u0301",
    ),
    *("ß", "ss", "中", "\ue000", "\uffff", "\U0001f600", "\U0010ffff", "k" * ORDERED_BYTES, "中" * 170),
)
"""Texts that collations would fold, pad or order in another way."""


@pytest.fixture
def text_ordered() -> Collection:
    """A collection in the order of a text.

    Tests may share a server, so no other test may use its table.
    """
    fields = (Field("key", FieldType.TEXT, required=True), Field("size", FieldType.INTEGER))
    return Collection(f"keyed_{secrets.token_hex(4)}", fields, orders=("key",))


@pytest_asyncio.fixture
async def keyed_store(harness: Harness, text_ordered: Collection) -> AsyncIterator[Store]:
    made = await harness.make()
    try:
        await made.open((text_ordered,))
        yield made
    finally:
        await harness.dispose(made)


def _records() -> list[Record]:
    """Return records whose keys are not in the order of their ids; one key twice."""
    keys = [*_KEYS, "a"]
    return [record(n, fields={"key": keys[n * 11 % len(keys)], "size": n % 3}) for n in range(len(keys))]


async def _walk(
    store: Store, text_ordered: Collection, limit: int, part: Condition | None = None, **more: Any
) -> list[tuple[str, str]]:
    """Return key and id of all rows, page by page."""
    query = Query(text_ordered, within(HERE), part, limit=limit, **more)
    found: list[tuple[str, str]] = []
    while True:
        page = await store.query(query)
        assert not page.corrupt
        rows: Sequence[Any] = page.records if query.select is None else page.heads
        assert len(rows) <= limit
        found += [(row.fields["key"], row.key.id) for row in rows]
        if page.cursor is None:
            return found
        query = replace(query, cursor=page.cursor)


@clause("query.text-order")
@needs("order", "filter")
@pytest.mark.asyncio
async def test_texts_are_ordered_by_code_points_page_by_page(
    harness: Harness, keyed_store: Store, text_ordered: Collection
) -> None:
    records = _records()
    away = record(1, ELSEWHERE, fields={"key": "a"})
    await apply_all(keyed_store, *[put(one, collection=text_ordered) for one in (*records, away)])

    async def check(there: Sequence[Record]) -> None:
        expected = sorted((str(one.fields["key"]), one.key.id) for one in there)
        for limit in (1, 7, 100):
            for descending in (False, True):
                order = (Order("key", descending),)
                wanted = expected[::-1] if descending else expected
                assert await _walk(keyed_store, text_ordered, limit, order=order) == wanted
                select = frozenset({"key"})
                assert await _walk(keyed_store, text_ordered, limit, order=order, select=select) == wanted
        parts: list[tuple[Condition, Any]] = [
            (StartsWith("key", "a"), lambda key: key.startswith("a")),
            (And((Ge("key", "a/"), Lt("key", "b"))), lambda key: "a/" <= key < "b"),
            (StartsWith("key", "\U0010ffff"), lambda key: key.startswith("\U0010ffff")),
            (And((StartsWith("key", "a"), Eq("size", 1))), None),
        ]
        for part, holds in parts:
            if holds is None:
                ids = {one.key.id for one in there if one.fields["size"] == 1}
                wanted = [one for one in expected if one[0].startswith("a") and one[1] in ids]
            else:
                wanted = [one for one in expected if holds(one[0])]
            for descending in (False, True):
                found = await _walk(keyed_store, text_ordered, 3, part, order=(Order("key", descending),))
                assert found == (wanted[::-1] if descending else wanted), part

    await check(records)
    if not keyed_store.capabilities.conditional:
        return
    changed = [
        replace(one, version=2, fields={"key": f"moved {n}", "size": 1}) for n, one in enumerate(records[:5])
    ]
    await apply_all(keyed_store, *[put(one, collection=text_ordered) for one in changed])
    await apply_all(keyed_store, *[delete(n, collection=text_ordered) for n in range(5, 10)])
    left = [*changed, *records[10:]]
    await check(left)
    if keyed_store.capabilities.durable:
        again = await harness.reopen(keyed_store)
        await again.open((text_ordered,))
        assert [key for key, _ in await _walk(again, text_ordered, 4, order=(Order("key"),))] == sorted(
            str(one.fields["key"]) for one in left
        )


@clause("query.text-order", "query.roles")
@needs("order")
@pytest.mark.asyncio
async def test_an_order_by_text_lists_the_asked_roles_alone(
    keyed_store: Store, text_ordered: Collection
) -> None:
    for n, role in enumerate(Role):
        await apply_all(
            keyed_store,
            put(record(n, role=role, fields={"key": f"k{n}"}), collection=text_ordered),
        )
    for n, role in enumerate(Role):
        found = await _walk(keyed_store, text_ordered, 10, order=(Order("key"),), roles=frozenset({role}))
        assert [key for key, _ in found] == [f"k{n}"]


@clause("query.text-order")
@pytest.mark.asyncio
async def test_an_ordered_text_is_bounded_and_required(keyed_store: Store, text_ordered: Collection) -> None:
    await apply_all(keyed_store, put(record(1, fields={"key": "é" * 256}), collection=text_ordered))
    for fields, named in (({"key": "é" * 256 + "x"}, "512"), ({"key": None}, "key"), ({}, "key")):
        (outcome,) = await keyed_store.apply([put(record(2, fields=fields), collection=text_ordered)])
        assert outcome.status is Status.REJECTED
        assert named in outcome.reason
    assert await fetch_stored(keyed_store, 2, collection=text_ordered) is None
