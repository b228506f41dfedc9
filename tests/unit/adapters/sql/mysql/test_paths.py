"""Values in bodies are compared by the server, exactly as Python compares them."""

from __future__ import annotations

from typing import Any

from memory.adapters.sql.mysql.store import MySqlStore
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import HERE, apply_all, id_of, put, query_ids, record
from memory.ports.contract.test_json_paths import BODIES, JSON_CASES, NUMBERED
from memory.ports.query import Condition, JsonPath, Not, Query, within
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER, Raw

pytestmark = ON_SERVER

LEFT_TO_THE_CALLER = {
    "the largest exact integer",
    "an integer beyond",
    "numbers from",
    "an unusual key",
}
"""Comparisons that the server does not make: numbers from 2^53 on, and escaped keys."""


async def found_by(store: MySqlStore, part: Condition) -> list[int]:
    ids = {id_of(n): n for n in NUMBERED}
    return sorted(ids[one] for one in await query_ids(store, part=part))


async def test_values_in_bodies_are_compared_exactly(store: MySqlStore) -> None:
    await apply_all(store, *[put(record(n, body=body)) for n, body in enumerate(BODIES)])
    wrong: dict[str, Any] = {}
    for why, (part, expected) in JSON_CASES.items():
        for whole, wanted in (
            (part, sorted(expected)),
            (Not(part), [n for n in NUMBERED if n not in expected]),
        ):
            if (found := await found_by(store, whole)) != wanted:
                wrong[why] = (found, wanted)
    if store._settings is not None and store._settings.flavour.product == "MariaDB":
        assert wrong.keys() <= LEFT_TO_THE_CALLER, wrong
    else:
        assert all(found == NUMBERED for found, _ in wrong.values()), wrong


async def test_deep_bodies_and_spaces_are_compared_exactly(store: MySqlStore) -> None:
    deep: Any = "a "
    for level in range(32):  # the deepest values that callers may store
        deep = [deep] if level % 2 else {"k": deep}
    bodies: list[Any] = [{"m": "a "}, {"m": "a"}, {"m": 1, "z": deep}, {"m": "A "}]
    await apply_all(store, *[put(record(n, body=body)) for n, body in enumerate(bodies)])
    for part, wanted in (
        (JsonPath(("m",), "==", "a "), [0]),
        (JsonPath(("m",), "<", "a "), [1, 3]),
        (JsonPath(("m",), "==", 1), [2]),
    ):
        others = [n for n in (0, 1, 3) if n not in wanted]  # the server may not read the deep one
        assert await found_by(store, part) in (wanted, sorted({*wanted, 2}))
        assert await found_by(store, Not(part)) in (others, [*others, 2], sorted([*others, 2]))


async def test_a_body_that_is_no_json_hides_no_record(store: MySqlStore, raw: Raw) -> None:
    await apply_all(store, *[put(record(n, body={"m": n})) for n in range(3)])
    await raw("UPDATE memory_samples SET body = '{broken' WHERE id = UNHEX(%s)", id_of(1).replace("-", ""))
    page = await store.query(Query(SAMPLES, within(HERE), JsonPath(("m",), ">", 0)))
    assert [one.key.id for one in page.records] == [id_of(2)]
    assert [one.id for one in page.corrupt] == [id_of(1)]
