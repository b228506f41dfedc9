"""The engine's own real numbers may be neighbours of those that were stored: nobody
sees it.
"""

from __future__ import annotations

import math
import operator
import random
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from memory.adapters.qdrant.edge import EdgeEngine
from memory.adapters.qdrant.keys import record_point
from memory.adapters.qdrant.rounding import bound_beyond, stands_for
from memory.adapters.qdrant.store import QdrantStore
from memory.ports.collections import Collection, Field, FieldType
from memory.ports.contract.support import HERE, apply_all, fetch_record, id_of, key_of, put, record
from memory.ports.query import MAX_LIMIT, Condition, Eq, Ge, Gt, Le, Lt, Not, Order, Query, within
from tests.unit.adapters.qdrant.conftest import ENGINES

COUNTED = Collection("numbered", (Field("number", FieldType.INTEGER, indexed=True),))
WHOLE = [
    sign * number
    for sign in (1, -1)
    for number in (2**63 - 1, 2**63 - 2, 2**63 - 513, 2**63 - 1025, 2**53 + 1, 2**53, 7)
] + [0, -(2**63)]
MEASURED = Collection("measured", (Field("share", FieldType.REAL, indexed=True),))
CENTRES = (0.0, 0.3, -0.3, 1e308, -1e308, 5e-324, 1e-300, 0.9786634085115272)
COUNT = 10
"""Neighbours of each: all of them closer than the engine's error."""


def _neighbours(centre: float) -> list[float]:
    values = [centre]
    while len(values) < COUNT:
        values.append(math.nextafter(values[-1], math.inf))
    return values


VALUES = [value for centre in CENTRES for value in _neighbours(centre)]


@pytest_asyncio.fixture(params=ENGINES)
async def astray(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[QdrantStore]:
    """A store of close numbers whose engine has each of them a few doubles off, in an
    order of its own.
    """
    store = QdrantStore(f"qdrant+edge:///{folder}" if request.param == "qdrant_edge" else "qdrant://:memory:")
    await store.open([MEASURED])
    await apply_all(
        store,
        *[put(record(n, fields={"share": value}), collection=MEASURED) for n, value in enumerate(VALUES)],
    )
    chance = random.Random(5)  # noqa: S311
    for n, value in enumerate(VALUES):
        off = value
        for _ in range(chance.randrange(8)):
            off = math.nextafter(off, chance.choice((-math.inf, math.inf)))
        await _set(store, record_point("measured", key_of(n)), {"reals": {"share": off}})
    yield store
    await store.close()
    shutil.rmtree(folder, ignore_errors=True)


async def _set(store: QdrantStore, point: str, payload: dict[str, object]) -> None:
    engine = store.engine
    if isinstance(engine, EdgeEngine):
        import qdrant_edge

        engine._update(qdrant_edge.UpdateOperation.set_payload([point], payload))
    else:
        await engine.client.set_payload("memory", payload, [point])  # type: ignore[attr-defined]


async def _found(store: QdrantStore, part: Condition) -> list[str]:
    return [
        r.key.id for r in (await store.query(Query(MEASURED, within(HERE), part, limit=MAX_LIMIT))).records
    ]


async def test_what_is_handed_back_is_what_was_written(astray: QdrantStore) -> None:
    assert [
        repr((await fetch_record(astray, n, collection=MEASURED)).fields["share"]) for n in range(len(VALUES))
    ] == [repr(v) for v in VALUES]


@pytest.mark.thorough
async def test_filters_decide_on_what_was_written(astray: QdrantStore) -> None:
    for value in VALUES[::3]:
        wanted: list[tuple[Condition, list[bool]]] = [
            (Eq("share", value), [v == value for v in VALUES]),
            (Lt("share", value), [v < value for v in VALUES]),
            (Le("share", value), [v <= value for v in VALUES]),
            (Not(Gt("share", value)), [not v > value for v in VALUES]),
            (Not(Le("share", value)), [not v <= value for v in VALUES]),
            (Ge("share", value), [v >= value for v in VALUES]),
        ]
        for part, holds in wanted:
            ids = [id_of(n) for n, held in enumerate(holds) if held]
            assert await _found(astray, part) == ids, part
            assert (await astray.count(Query(MEASURED, within(HERE), part))).records == len(ids), part


@pytest.mark.parametrize("engine", ENGINES)
async def test_filters_decide_on_whole_numbers_up_to_the_last_there_is(engine: str, folder: Path) -> None:
    store = QdrantStore(f"qdrant+edge:///{folder}" if engine == "qdrant_edge" else "qdrant://:memory:")
    await store.open([COUNTED])
    await apply_all(
        store,
        *[put(record(n, fields={"number": number}), collection=COUNTED) for n, number in enumerate(WHOLE)],
    )
    for value in WHOLE:
        wanted: list[tuple[Condition, list[bool]]] = [
            *(
                (kind("number", value), [holds(n, value) for n in WHOLE])
                for kind, holds in COMPARISONS.items()
            ),
            *(
                (Not(kind("number", value)), [not holds(n, value) for n in WHOLE])
                for kind, holds in COMPARISONS.items()
            ),
        ]
        for part, holding in wanted:
            found = await store.query(Query(COUNTED, within(HERE), part, limit=MAX_LIMIT))
            assert [r.key.id for r in found.records] == [
                id_of(n) for n, held in enumerate(holding) if held
            ], part
    await store.close()


COMPARISONS: dict[type[Lt | Le | Gt | Ge], Callable[[int, int], bool]] = {
    Lt: operator.lt,
    Le: operator.le,
    Gt: operator.gt,
    Ge: operator.ge,
}


@pytest.mark.parametrize("descending", [False, True])
async def test_pages_walk_what_was_written(astray: QdrantStore, descending: bool) -> None:
    """Three at a time, so that pages end among numbers that the engine has in another
    order.
    """
    seen: list[str] = []
    cursor = None
    while True:
        page = await astray.query(
            Query(MEASURED, within(HERE), order=(Order("share", descending),), limit=3, cursor=cursor)
        )
        seen += [r.key.id for r in page.records]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == [
        id_of(n) for n in sorted(range(len(VALUES)), key=lambda n: (VALUES[n], id_of(n)), reverse=descending)
    ]


@given(st.floats(allow_nan=False, allow_infinity=False), st.lists(st.booleans(), max_size=50))
def test_what_lies_within_some_doubles_is_within_the_bounds(number: float, steps: list[bool]) -> None:
    near = number
    for up in steps:
        near = math.nextafter(near, math.inf if up else -math.inf)
    assert bound_beyond(number, FieldType.REAL, False) <= near <= bound_beyond(number, FieldType.REAL, True)
    assert stands_for(near, number)


@given(st.integers(-(2**63), 2**63 - 1))
def test_bounds_of_whole_numbers_let_in_what_is_rounded_to_them(number: int) -> None:
    assert (
        bound_beyond(number, FieldType.INTEGER, False)
        <= float(number)
        <= bound_beyond(number, FieldType.INTEGER, True)
    )
    if abs(number) < 2**53:
        assert bound_beyond(number, FieldType.INTEGER, True) == number


def test_another_number_does_not_stand_for_one() -> None:
    assert not any(stands_for(other, 0.3) for other in (0.3001, 0.2999, -0.3, True, "0.3", None))
