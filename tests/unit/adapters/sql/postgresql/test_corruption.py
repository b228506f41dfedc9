"""Damage: a row that is not as it was written is never served; it is quarantined and
its neighbours are served.
"""

from __future__ import annotations

import uuid

import pytest

from memory.adapters.sql.columns import checksum_column
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    fetch_tombstone,
    key_of,
    one,
    put,
    record,
    search_hits,
)
from memory.ports.query import Eq, Everywhere, JsonPath, Near, Order, Query, Search, Tenant, within
from memory.ports.record import Corrupt, Partition, PendingStep, Record, pack_vector
from memory.ports.writes import Absent, Always, Newer, Status
from tests.support.postgres_servers import Postgres
from tests.unit.adapters.sql.postgresql.conftest import BOTH, ON_SERVER, Raw

pytestmark = ON_SERVER


CHECKSUM = checksum_column(SAMPLES)
VECTOR = "vector = decode('00', 'hex')"


def full(n: int, version: int = 1, at: Partition = HERE) -> Record:
    return record(
        n,
        at,
        version=version,
        fields={"type": "fact", "tags": ("a", "b"), "confidence": 0.5, "valid_from": T0},
        body={"n": n},
        texts={"title": f"title {n}", "content": "some common words"},
        vector=pack_vector([1.0, float(n), 0.5]),
        generation=0,
        owed=(PendingStep("deliver", "deliver", {"to": "long"}),),
    )


async def damage(raw: Raw, n: int, change: str = "text_title = 'forged'", at: Partition = HERE) -> None:
    assert await raw(f"UPDATE {{s}}.memory_samples SET {change} WHERE id = $1 RETURNING id", key_of(n, at).id)  # noqa: S608


@cells(
    "change",
    [
        "text_title = 'forged'", "body = '{\"n\":7}'", "body = NULL", "version = version + 1", "role = 'replica'", "role = 'x'", "owed = NULL",
        "owed = '7'", "tier = 'x'", "accesses = 9", VECTOR, "created_at = created_at + 1",
        f"{CHECKSUM} = 0", "generation = 1", "confidence = 0.25", "tags = NULL", "tags = '{b,a}'", "scope = 'user:bob'", "epoch = 'e'",
        "valid_from = NULL", "note = '{}'",
    ],
    shared=True,
)  # fmt: skip
async def test_a_changed_column_is_corrupt_and_its_neighbours_are_served(
    store: PostgresStore, raw: Raw, change: str
) -> None:
    await _is_corrupt_alone(store, raw, change)


@pytest.mark.parametrize("server", BOTH[1:], indirect=True)
async def test_a_changed_vector_of_pgvector_is_corrupt(store: PostgresStore, raw: Raw) -> None:
    """Only the column of vectors is another one."""
    await _is_corrupt_alone(store, raw, VECTOR)


async def _is_corrupt_alone(store: PostgresStore, raw: Raw, change: str) -> None:
    at = Partition(HERE.tenant, f"user:{uuid.uuid4().hex}")
    first, damaged, last = (key_of(n, at) for n in range(3))
    await apply_all(store, *[put(full(n, at=at)) for n in range(3)])
    await damage(raw, 1, change, at)
    for _ in range(2):
        answers = await store.get(SAMPLES, [first, damaged, last])
        assert [type(a) for a in answers] == [Record, Corrupt, Record]
        page = await store.query(Query(SAMPLES, within(at)))
        assert [r.key for r in page.records] == [first, last]
        assert page.corrupt == (damaged,)
        assert [h.head.key for h in await search_hits(store, "common", within(at))] == [first, last]
        if store.capabilities.semantic:
            near = await store.search(Search(SAMPLES, within(at), Near(pack_vector([1.0, 1.0, 0.5])), 5))
            assert {h.head.key for h in near} == {first, last}


@pytest.mark.parametrize("first", ["query", "search"])
async def test_whoever_meets_it_first_quarantines_it_and_fills_the_page(
    store: PostgresStore, raw: Raw, first: str
) -> None:
    await apply_all(store, *[put(full(n)) for n in range(6)])
    await damage(raw, 1)
    if first == "search":
        assert len(await search_hits(store, "common", limit=5)) == 5
    for where in (within(HERE), Tenant(HERE.tenant), Everywhere()):
        for _ in range(2):
            page = await store.query(Query(SAMPLES, where, order=(Order("created_at"),), limit=3))
            assert [r.key for r in page.records] == [key_of(0), key_of(2), key_of(3)]
            assert page.corrupt == (key_of(1),)
    ((problem, content),) = await raw("SELECT problem, content FROM {s}.memory_quarantine")
    assert problem == "checksum mismatch"
    assert '"text_title": "forged"' in content
    assert (await raw("SELECT row_type, text_title FROM {s}.memory_samples WHERE row_type <> 'record'"))[
        0
    ] == ("corrupt", None)


async def test_a_scope_of_nothing_but_corrupt_records_names_them(store: PostgresStore, raw: Raw) -> None:
    await apply_all(store, put(full(1)))
    await damage(raw, 1)
    for _ in range(2):
        page = await store.query(Query(SAMPLES, within(HERE)))
        assert (page.records, page.corrupt) == ((), (key_of(1),))


@pytest.mark.parametrize("many", [False, True])
async def test_what_writes_do_to_a_corrupt_record(store: PostgresStore, raw: Raw, many: bool) -> None:
    for when, status in ((Absent(), Status.CONFLICT), (Newer(), Status.APPLIED), (Always(), Status.APPLIED)):
        await apply_all(store, put(full(1), Always()))
        await damage(raw, 1)
        assert isinstance(await fetch_stored(store, 1), Corrupt)
        write = put(full(1, version=5), when)
        outcome = (await store.apply([write, put(full(9), Always())]))[0] if many else await one(store, write)
        assert outcome.status is status, when
        if status is Status.CONFLICT:
            assert isinstance(outcome.stored, Corrupt)
        else:
            assert (await fetch_record(store)).version == 5
            assert (await store.query(Query(SAMPLES, within(HERE)))).corrupt == ()
    await damage(raw, 1)
    await apply_all(store, delete(1, version=9))
    assert (await fetch_tombstone(store)).version == 9
    assert await raw("SELECT * FROM {s}.memory_quarantine") == []


@pytest.mark.parametrize("in_quarantine", [False, True])
async def test_delete_matching_reaches_corrupt_records_whatever_the_filter(
    store: PostgresStore, raw: Raw, in_quarantine: bool
) -> None:
    await apply_all(store, *[put(full(n)) for n in range(3)])
    await damage(raw, 1)
    if in_quarantine:
        await fetch_stored(store, 1)
    assert await store.delete_matching(Query(SAMPLES, within(HERE), Eq("type", "no such")), 50) == 1
    assert (await fetch_tombstone(store, 1)).version == 50
    assert (await store.query(Query(SAMPLES, within(HERE)))).corrupt == ()
    assert await raw("SELECT * FROM {s}.memory_quarantine") == []


async def test_deleted_text_is_gone_from_every_table(store: PostgresStore, raw: Raw) -> None:
    await apply_all(
        store,
        put(
            record(
                1,
                texts={"content": "abracadabra"},
                body={"said": "abracadabra"},
                fields={"source": "abracadabra"},
            )
        ),
        delete(1),
    )
    rows = await raw("SELECT * FROM {s}.memory_samples")
    assert len(rows) == 1
    assert "abracadabra" not in repr(rows)


async def test_a_body_that_is_no_json_stops_no_comparison_in_other_bodies(
    store: PostgresStore, raw: Raw
) -> None:
    await apply_all(store, *[put(full(n)) for n in range(3)])
    await damage(raw, 1, "body = '{'")
    page = await store.query(Query(SAMPLES, within(HERE), JsonPath(("n",), "==", 2)))
    assert key_of(2) in [one.key for one in page.records]
    assert key_of(1) not in [one.key for one in page.records]
    page = await store.query(Query(SAMPLES, within(HERE), JsonPath(("n",), "==", 2)))
    assert [one.key for one in page.records] == [key_of(2)]


async def test_a_body_that_is_no_json_stops_no_opening(
    server: Postgres, schema: str, store: PostgresStore, raw: Raw
) -> None:
    await apply_all(store, *[put(full(n)) for n in range(3)])
    await damage(raw, 1, "body = '{'")
    again = PostgresStore(server.url(schema))
    again.json_paths = {"samples": frozenset({("n",)})}
    await again.open(DECLARED)
    page = await again.query(Query(SAMPLES, within(HERE), JsonPath(("n",), "==", 2)))
    keys = [one.key for one in page.records]
    assert key_of(2) in keys
    assert key_of(1) not in keys
    await again.close()
