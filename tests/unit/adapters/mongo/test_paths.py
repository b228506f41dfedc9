"""Values in bodies are found by an index that is declared, also beside other writers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memory.adapters.mongo.paths import labels_of
from memory.adapters.mongo.store import MongoStore
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, apply_all, id_of, put, query_ids, record
from memory.ports.contract.test_json_paths import BODIES, JSON_CASES, NUMBERED
from memory.ports.query import And, Condition, Eq, JsonPath, Not, Or, Query, within
from tests.unit.adapters.mongo.conftest import ALONE, Raw

pytestmark = ALONE

PATHS = frozenset({("m", "v"), ("m", "v", "k"), ("m", "v", "k", "k"), ("m", "v", "0"), ("m",)})
LABEL = labels_of(PATHS)["m", "v"]
SEEN = JsonPath(("m", "v"), ">", 1)


@pytest.fixture
def declaring(build: Callable[..., MongoStore]) -> Callable[..., MongoStore]:
    """Unopened stores with indexes on the paths."""

    def make() -> MongoStore:
        store = build()
        store.json_paths = {"samples": PATHS}
        return store

    return make


def puts(numbers: Any = NUMBERED) -> list[Any]:
    return [put(record(n, body=BODIES[n], fields={"type": "t"})) for n in numbers]


async def found_by(store: MongoStore, part: Condition) -> list[int]:
    ids = {id_of(n): n for n in NUMBERED}
    return sorted(ids[one] for one in await query_ids(store, part=part))


async def is_exact(store: MongoStore) -> dict[str, Any]:
    wrong: dict[str, Any] = {}
    for why, (part, expected) in JSON_CASES.items():
        rest = [n for n in NUMBERED if n not in expected]
        for whole, wanted in (
            (part, sorted(expected)),
            (Not(part), rest),
            (And((Eq("type", "t"), Or((part, Eq("type", "none"))))), sorted(expected)),
        ):
            found = await found_by(store, whole)
            wrong |= {} if found == wanted else {why: (found, wanted)}
    return wrong


UNDECLARED = {"an unusual key"}


async def test_declared_paths_are_compared_exactly(declaring: Callable[[], MongoStore]) -> None:
    store = declaring()
    await store.open(DECLARED)
    await apply_all(store, *puts(NUMBERED[::2]))
    for one in puts(NUMBERED[1::2]):
        await apply_all(store, one)
    assert (await is_exact(store)).keys() <= UNDECLARED
    await store.close()


async def test_records_of_other_writers_are_never_missed(
    store: MongoStore, declaring: Callable[[], MongoStore], raw: Raw
) -> None:
    await apply_all(store, *puts(NUMBERED[::2]))
    knowing = declaring()
    await knowing.open(DECLARED)  # it adds the copies
    assert raw["memory_samples"].count_documents({f"paths.{LABEL}": None}) == 0
    await apply_all(store, *puts(NUMBERED[1::2]))  # by a writer that does not know the paths
    assert raw["memory_samples"].count_documents({f"paths.{LABEL}": None}) > 0
    for part, expected in JSON_CASES.values():
        for whole, wanted in ((part, expected), (Not(part), [n for n in NUMBERED if n not in expected])):
            assert set(wanted) <= set(await found_by(knowing, whole))
    await knowing.audit(repair=True)
    assert (await is_exact(knowing)).keys() <= UNDECLARED
    await knowing.close()


async def test_a_text_too_long_for_a_copy_is_left_to_the_caller(declaring: Callable[[], MongoStore]) -> None:
    store = declaring()
    await store.open(DECLARED)
    await apply_all(
        store, put(record(0, body={"m": {"v": "x" * 2_000}})), put(record(1, body={"m": {"v": 1}}))
    )
    path = ("m", "v")
    for part in (JsonPath(path, "==", "x" * 2_000), JsonPath(path, "==", "a"), Not(JsonPath(path, "==", 1))):
        assert await found_by(store, part) in ([0], [0, 1])
    assert await found_by(store, JsonPath(path, "==", 1)) == [0, 1]
    await store.close()


async def test_a_wrong_copy_is_named_and_mended(declaring: Callable[[], MongoStore], raw: Raw) -> None:
    store = declaring()
    await store.open(DECLARED)
    await apply_all(store, put(record(1, body={"m": {"v": 5}})))
    raw["memory_samples"].update_one({"id": id_of(1)}, {"$set": {f"paths.{LABEL}": 0}})
    assert await found_by(store, SEEN) == []
    assert "a copy of a value" in (await store.audit(repair=True)).problems[0]
    assert await found_by(store, SEEN) == [1]
    assert not (await store.audit(repair=False)).problems
    await store.close()


async def test_an_index_finds_values_also_with_one_bound(
    declaring: Callable[[], MongoStore], raw: Raw
) -> None:
    store = declaring()
    await store.open(DECLARED)
    await apply_all(store, *[put(record(n, body={"m": {"v": n}})) for n in range(300)])
    for part in (JsonPath(("m", "v"), ">", 297), JsonPath(("m", "v"), "==", 7)):
        wanted = store.table(SAMPLES).conditions.query(Query(SAMPLES, within(HERE), part))
        plan = raw["memory_samples"].find(wanted).explain()
        assert f"body_{LABEL}" in str(plan["queryPlanner"]["winningPlan"]), plan
    await store.close()
