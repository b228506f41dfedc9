"""Values are kept to the last bit, and compared and ordered exactly.

Hard and random values of every type go through every type of field. An engine may
change a value in its index (a double read from text, a time in milliseconds, another
normal form). Results, filters, counts and orders use the value that was written.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio

from memory.ports.collections import Field, FieldType
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.exact_values import COUNT, EVERY_TYPE, ExactValues
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_mark,
    fetch_record,
    fetch_stored,
    fetch_tombstone,
    id_of,
    key_of,
    put,
    record,
    release,
)
from memory.ports.query import (
    MAX_LIMIT,
    And,
    Condition,
    Eq,
    Ge,
    Gt,
    Has,
    In,
    Le,
    Lt,
    Not,
    Order,
    Query,
    within,
)
from memory.ports.record import FieldValue, PendingStep, Record
from memory.ports.store import Store

EXACT_SEEDS = (1,)
ORDERABLE = tuple(f for f in EVERY_TYPE.fields if f.type not in (FieldType.TAGS, FieldType.BYTES))
NUMERIC = (FieldType.REAL, FieldType.INTEGER, FieldType.TIME)


every_seed = pytest.mark.parametrize("seed", EXACT_SEEDS, ids=lambda seed: f"seed {seed}")


@pytest_asyncio.fixture
async def exact(harness: Harness) -> AsyncIterator[Store]:
    """Provide a fresh store, open with a collection of every type beside the others."""
    made = await harness.make()
    try:
        await made.open((*DECLARED, EVERY_TYPE))
        yield made
    finally:
        await harness.dispose(made)


def _exact_text(value: Any) -> str:
    """Return the value with its type and all its bits; long ones by both ends.

    Zero has no sign in a field, because databases drop it.
    """
    if isinstance(value, float):
        value += 0.0
    if isinstance(value, datetime):
        return f"{value.isoformat()} {value.utcoffset()}"
    told = f"{type(value).__name__} {value!r}"
    return told if len(told) < 200 else f"{told[:90]}…{hash(told)}…{told[-90:]}"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


async def _keep(store: Store, values: ExactValues) -> None:
    """Write the records once: cells of a table share the store."""
    if await fetch_stored(store, 0, collection=EVERY_TYPE) is None:
        await apply_all(store, *[put(r, collection=EVERY_TYPE) for r in values.records()])


async def _query_numbers(store: Store, part: Condition) -> set[int]:
    page = await store.query(Query(EVERY_TYPE, within(HERE), part, limit=MAX_LIMIT))
    return {_number[r.key.id] for r in page.records}


_number = {id_of(n): n for n in range(COUNT)}


# -- kept ------------------------------------------------------------------------------


@clause("content.exact", "numbers.exact")
@pytest.mark.asyncio
@every_seed
async def test_every_value_comes_back_to_the_last_bit(exact: Store, seed: int) -> None:
    values = ExactValues(seed)
    await _keep(exact, values)

    stored = await exact.get(EVERY_TYPE, [key_of(n) for n in range(COUNT)])

    wrong: list[str] = []
    for n, (wanted, got) in enumerate(zip(values.records(), stored, strict=True)):
        assert isinstance(got, Record), f"record {n} cannot be read: {got}"
        wrong += [
            f"{f.name} of record {n}: {_exact_text(wanted.fields[f.name])} came back as"
            f" {_exact_text(got.fields.get(f.name))}"
            for f in EVERY_TYPE.fields
            if _exact_text(wanted.fields[f.name]) != _exact_text(got.fields.get(f.name))
        ]
        assert dict(got.texts) == dict(wanted.texts), n
    assert not wrong


@clause("json.types", "owed.untouched")
@pytest.mark.asyncio
@every_seed
async def test_json_in_a_body_and_in_owed_steps_comes_back_to_the_letter(store: Store, seed: int) -> None:
    values = ExactValues(seed)
    documents = [values.document() for _ in range(40)]
    await apply_all(
        store,
        *[
            put(
                record(
                    n,
                    body=d,
                    owed=(PendingStep("first", "first", d), PendingStep("second", "second", {"d": [d]})),
                )
            )
            for n, d in enumerate(documents)
        ],
    )
    for n, document in enumerate(documents):
        stored = await fetch_record(store, n)
        assert _canonical(dict(stored.body)) == _canonical(document)
        assert [_canonical(dict(step.data)) for step in stored.owed] == [
            _canonical(document),
            _canonical({"d": [document]}),
        ]


@clause("json.types", "delete.leaves")
@needs("conditional")
@pytest.mark.asyncio
@every_seed
async def test_json_in_notes_and_in_what_marks_and_tombstones_owe_comes_back_to_the_letter(
    store: Store, seed: int
) -> None:
    values = ExactValues(seed)
    documents = [values.document() for _ in range(20)]
    for n, document in enumerate(documents):
        owed = (PendingStep("step", "step", document),)
        await apply_all(
            store, delete(n, note=document, owed=owed), put(record(100 + n)), release(100 + n, owed=owed)
        )
    for n, document in enumerate(documents):
        tombstone, mark = await fetch_tombstone(store, n), await fetch_mark(store, 100 + n)
        assert _canonical(dict(tombstone.note)) == _canonical(document)
        assert [_canonical(dict(step.data)) for step in (*tombstone.owed, *mark.owed)] == [
            _canonical(document)
        ] * 2


@clause("durable.survives", "numbers.exact")
@needs("durable")
@pytest.mark.asyncio
@every_seed
async def test_every_value_is_the_same_after_a_restart(harness: Harness, exact: Store, seed: int) -> None:
    """A value read again from a log or disk equals the written one."""
    values = ExactValues(seed)
    await _keep(exact, values)
    before = await exact.get(EVERY_TYPE, [key_of(n) for n in range(COUNT)])

    again = await harness.restart(exact)
    try:
        await again.open((*DECLARED, EVERY_TYPE))
        after = await again.get(EVERY_TYPE, [key_of(n) for n in range(COUNT)])
        assert all(isinstance(stored, Record) for stored in after)
        assert [_exact_text(stored) for stored in after] == [_exact_text(stored) for stored in before]
    finally:
        await again.close()


# -- found -----------------------------------------------------------------------------


def _asked_by(
    field: Field, n: int, value: FieldValue
) -> list[tuple[Condition, Callable[[FieldValue], bool]]]:
    """Return questions about one value, each with its meaning."""
    if field.type is FieldType.TAGS:
        assert isinstance(value, tuple)
        return [
            (Eq(field.name, value), lambda v: v == value),
            *[(Has(field.name, tag), lambda v, tag=tag: tag in v) for tag in value[:2]],
        ]
    if field.type is FieldType.BYTES:
        return [(Eq(field.name, value), lambda v: v == value)]
    questions: list[tuple[Condition, Callable[[Any], bool]]] = [
        (Eq(field.name, value), lambda v: v == value),
        (And((Ge(field.name, value), Le(field.name, value))), lambda v: v == value),
        (Gt(field.name, value), lambda v: v > value),
        (Not(Ge(field.name, value)), lambda v: v < value),
        (And((Not(Eq(field.name, value)), Le(field.name, value))), lambda v: v < value),
        (In(field.name, (value,)), lambda v: v == value),
    ]
    return [
        questions[0],
        questions[1 + n // 2 % (len(questions) - 1)],
    ]  # each value in some questions, each question with some values


@clause("filter.holds", "numbers.exact")
@needs("filter")
@pytest.mark.asyncio
@every_seed
@cells("kind", FieldType, shared=True)
async def test_a_value_is_found_by_itself_and_by_nothing_else(
    harness: Harness, exact: Store, seed: int, kind: FieldType
) -> None:
    values = ExactValues(seed)
    await _keep(exact, values)
    drawn = values.values[kind]
    fields = [f for f in EVERY_TYPE.fields if f.type is kind]
    wrong: list[str] = []
    for n, value in enumerate(
        drawn[:4] if kind is FieldType.BOOLEAN else drawn[: values.hard[kind] + harness.depth.examples // 2]
    ):
        for part, holds in _asked_by(fields[n % len(fields)], n, value):
            wanted = {i for i, other in enumerate(drawn) if holds(other)}
            if (got := await _query_numbers(exact, part)) != wanted:
                wrong.append(f"{part}: {sorted(got ^ wanted)} wrongly"[:300])
    assert not wrong


@clause("count.exact", "query.pages")
@needs("filter")
@pytest.mark.asyncio
@every_seed
async def test_counts_and_portions_of_a_page_are_exact_where_values_lie_close(
    exact: Store, seed: int
) -> None:
    values = ExactValues(seed)
    await _keep(exact, values)
    for field in [f for f in EVERY_TYPE.fields if f.type in NUMERIC]:
        drawn: list[Any] = values.values[field.type]
        for value in drawn[:COUNT:9]:
            part = Lt(field.name, value)
            wanted = sorted(id_of(n) for n, other in enumerate(drawn) if other < value)
            assert (await exact.count(Query(EVERY_TYPE, within(HERE), part))).records == len(wanted), part
            first = await exact.query(Query(EVERY_TYPE, within(HERE), part, limit=5))
            assert [r.key.id for r in first.records] == wanted[:5], part
            assert (first.cursor is None) == (len(wanted) <= 5), part


@clause("query.order")
@needs("order")
@pytest.mark.asyncio
@every_seed
@cells("descending", [False, True], ids=["ascending", "descending"], shared=True)
async def test_pages_are_ordered_as_values_are(exact: Store, seed: int, descending: bool) -> None:
    """Pages cover every type with an order, seven rows at a time; ties by id."""
    values = ExactValues(seed)
    await _keep(exact, values)
    for field in ORDERABLE:
        drawn: list[Any] = values.values[field.type]
        wanted = sorted(range(COUNT), key=lambda n, drawn=drawn: (drawn[n], id_of(n)), reverse=descending)  # type: ignore[misc]
        query, got = Query(EVERY_TYPE, within(HERE), order=(Order(field.name, descending),), limit=37), []
        while True:
            page = await exact.query(query)
            got += [_number[r.key.id] for r in page.records]
            if page.cursor is None:
                break
            query = Query(EVERY_TYPE, within(HERE), order=query.order, limit=37, cursor=page.cursor)
        assert got == wanted, field.name


@clause("erase.matches")
@needs("filter", "conditional")
@pytest.mark.asyncio
@every_seed
async def test_what_is_deleted_by_a_value_is_exactly_what_has_it(exact: Store, seed: int) -> None:
    values = ExactValues(seed)
    await _keep(exact, values)
    drawn: list[Any] = values.values[FieldType.REAL]
    least = sorted(drawn)[COUNT // 2]
    await exact.delete_matching(Query(EVERY_TYPE, within(HERE), Lt("real_plain", least)), 9)
    for n, value in enumerate(drawn):
        assert isinstance(await fetch_stored(exact, n, collection=EVERY_TYPE), Record) == (
            not value < least
        ), repr(value)
