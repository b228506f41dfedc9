"""Filters that name very many values, on any dialect: the port's own judgement of each
record is what has to come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from memory.ports.contract.collections import MORE_SAMPLES
from memory.ports.contract.support import HERE, T0, apply_all, put, record
from memory.ports.query import Condition, In, Not, Query, Search, Words, within
from memory.ports.query_evaluation import lets_through
from memory.ports.record import Record
from memory.ports.store import Store

MANY = 70_000
"""More than any of the servers binds one by one."""
_ODD = ("", " ", "a", "a ", "A", "á", "'", '"', "\\", "\x00", "\n", "𝔘", "x" * 600, "null", "1")

_VALUES: dict[str, Sequence[Any]] = {
    "type": _ODD,
    "confidence": (0.0, -0.0, 0.1, 1e-300, 1 / 3, 1.0, 123456789.123456789, 2.0**53),
    "stored_version": (0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)),
    "valid_from": tuple([T0 + timedelta(microseconds=n) for n in range(6)]),
}
_OTHERS: dict[str, Any] = {
    "type": lambda n: f"other {n}",
    "confidence": lambda n: n + 0.25,
    "stored_version": lambda n: n + 10,
    "valid_from": lambda n: T0 + timedelta(days=1, seconds=n),
}
FIELDS = pytest.mark.parametrize("field", list(_VALUES))


async def every_record_is_judged_as_the_port_does(store: Store, field: str) -> None:
    """Half of the values there are named among very many others."""
    values = _VALUES[field]
    records = [
        record(n, fields={field: value}, texts={"content": "word"}) for n, value in enumerate(values)
    ] + [record(99)]
    await apply_all(store, *[put(r, collection=MORE_SAMPLES) for r in records])
    for others in (600, MANY) if field == "type" else (600,):
        named = (*values[::2], *[_OTHERS[field](n) for n in range(others)])
        for part in (In(field, named), Not(In(field, named))):
            expected = {r.key.id for r in records if lets_through(part, r)}
            assert await _found(store, part) == expected, f"{others} values, {type(part).__name__}"


async def _found(store: Store, part: Condition) -> set[str]:
    page = await store.query(Query(MORE_SAMPLES, within(HERE), part))
    assert (await store.count(Query(MORE_SAMPLES, within(HERE), part))).records == len(page.records)
    return {r.key.id for r in page.records}


async def searching_and_deleting_take_it_too(store: Store) -> None:
    records = [record(n, fields={"type": f"t{n}"}, texts={"content": "word"}) for n in range(20)]
    await apply_all(store, *[put(r, collection=MORE_SAMPLES) for r in records])
    part = In("type", tuple([f"t{n}" for n in range(10, MANY)]))
    hits = await store.search(Search(MORE_SAMPLES, within(HERE), Words("word"), 50, part))
    assert {hit.head.key.id for hit in hits} == {r.key.id for r in records[10:]}
    assert await store.delete_matching(Query(MORE_SAMPLES, within(HERE), part), 5) == 10
    left = await store.get(MORE_SAMPLES, [r.key for r in records])
    assert [isinstance(stored, Record) for stored in left] == [True] * 10 + [False] * 10
