"""What searches, browsing and writes cost: which statements there are, and which index
serves them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.adapters.sql.sqlite.table import SqliteTable, table_of
from memory.domain.scope import Scope
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, MESSAGES
from memory.policies.entry_query import EntryQuery
from memory.policies.ranking.fields import BESIDE
from memory.policies.visibility import filter_of
from memory.ports.candidates import Candidates, Neighbourhood
from memory.ports.collections import Collection
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import HERE, T0, apply_all, delete, key_of, put, record, search_hits
from memory.ports.query import (
    And,
    Condition,
    Eq,
    Everywhere,
    Ge,
    Gt,
    Has,
    In,
    IsNull,
    JsonPath,
    Lt,
    Not,
    Or,
    Order,
    Query,
    RowType,
    Search,
    Tenant,
    Where,
    Words,
    within,
)
from memory.ports.record import Record, Role, pack_vector
from memory.ports.writes import Newer
from tests.unit.adapters.sql.listing import CHANGED, LESS_CHANGED, LISTED, NOTES, OF_A_TALK, OF_A_USER
from tests.unit.adapters.sql.listing import fill as fill_notes
from tests.unit.adapters.sql.sqlite.helping import opened
from tests.unit.adapters.sql.young import NEW, OLD, PAIRS, QUESTIONS, VISIBLE, fill

BROWSED = frozenset({Role.HOME, Role.ARRIVING})


def everyday(minute: int, *more: Condition) -> Condition:
    """The filter that the engine asks with."""
    now = T0 + timedelta(minutes=minute)
    return And(
        (
            Or((IsNull("expires_at"), Ge("expires_at", now))),
            Or((IsNull("valid_to"), Gt("valid_to", now))),
            *more,
        )
    )


async def _plan(store: SqliteStore, query: Query, monkeypatch: pytest.MonkeyPatch) -> str:
    seen: list[tuple[str, Sequence[Any]]] = []
    rows = Session.rows

    def noting(self: Session, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        seen.append((sql, values))
        return rows(self, sql, values)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "rows", noting)
        await store.query(query)
    sql, values = next((s, v) for s, v in seen if f"FROM {query.collection.name}" in s and "ORDER BY" in s)
    return str(
        await store.driver.read(
            lambda session: [step[-1] for step in session.rows(f"EXPLAIN QUERY PLAN {sql}", values)]
        )
    )


async def _plans(
    store: SqliteStore, reading: Callable[[], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """How each statement of a call is carried out."""
    seen: list[tuple[str, Sequence[Any]]] = []
    row, rows = Session.row, Session.rows

    def noting(read: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: Session, sql: str, values: Sequence[Any] = ()) -> Any:
            seen.append((sql, values))
            return read(self, sql, values)

        return noted

    with monkeypatch.context() as patch:
        patch.setattr(Session, "row", noting(row))
        patch.setattr(Session, "rows", noting(rows))
        await reading()
    return [
        str(
            await store.driver.read(
                lambda session, sql=sql, values=values: [  # type: ignore[misc]
                    s[-1] for s in session.rows(f"EXPLAIN QUERY PLAN {sql}", values)
                ]
            )
        )
        for sql, values in seen
    ]


@pytest.mark.parametrize(
    ("query", "index", "sorts"),
    [
        (
            Query(SAMPLES, within(HERE), everyday(1), (Order("created_at", True),), 20, roles=BROWSED),
            "ix_samples_created_at",
            False,
        ),
        (
            Query(SAMPLES, within(HERE), everyday(1, Has("tags", "a")), (Order("created_at"),), 20),
            "ix_samples_created_at",
            False,
        ),
        (
            Query(
                SAMPLES, within(HERE), everyday(1, In("type", ("a", "b"))), (Order("created_at", True),), 20
            ),
            "ix_samples_created_at",
            False,
        ),
        (
            Query(SAMPLES, Everywhere(), limit=20, roles=frozenset({Role.ARRIVING})),
            "ix_samples_passing",
            False,
        ),
        (
            Query(SAMPLES, Everywhere(), Eq("owing", True), limit=20, roles=frozenset(Role)),
            "ix_samples_owing",
            False,
        ),
        (
            Query(MORE_SAMPLES, within(HERE), Eq("entry_id", "x"), (Order("stored_version"),)),
            "ix_more_samples_field_entry_id",
            True,
        ),
    ],
)
async def test_an_index_serves_what_the_engine_asks(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, query: Query, index: str, sorts: bool
) -> None:
    await apply_all(store, put(record(1)), put(record(1), collection=MORE_SAMPLES))
    plan = await _plan(store, query, monkeypatch)
    assert index in plan
    assert ("TEMP B-TREE" in plan) == sorts


async def test_the_right_indexes_serve_a_new_tenant_in_a_table_that_sqlite_never_counted(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(f"sqlite:///{file}")
    await store.open((PAIRS,))
    await fill(store, OLD, 2_000)
    await fill(store, NEW, 200)
    for name, (query, index) in QUESTIONS.items():
        plan = await _plan(store, query, monkeypatch)
        assert f"ix_samples_{index}" in plan, (name, plan)
    for reading, index in (
        (lambda: store.get(PAIRS, [key_of(1, NEW)]), "sqlite_autoindex_samples_1 (id=? AND tenant=?)"),
        (
            lambda: store.search(Search(PAIRS, within(NEW), Words("rare7"), 5, VISIBLE)),
            "USING PRIMARY KEY (partition_no=? AND word=?)",
        ),
    ):
        plans = await _plans(store, reading, monkeypatch)
        assert any(index in plan for plan in plans), plans
        assert not any("SCAN samples" in plan for plan in plans), plans
    await store.close()


async def test_candidates_read_the_rows_they_bring_and_of_these_what_is_asked(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(f"sqlite:///{file}")
    talks = replace(SAMPLES, indexes=(("source", "number"),))
    await store.open((talks,))
    said = [
        record(
            n,
            fields={"source": "talk", "number": n},
            texts={"content": f"word{n}"},
            vector=pack_vector([1, n]),
        )
        for n in range(9)
    ]
    await apply_all(store, *[put(one, collection=talks) for one in said])
    asked = Candidates(
        talks,
        within(HERE),
        "word4",
        pack_vector([1, 9]),
        1,
        (key_of(0).id,),
        Neighbourhood("source", "number", 1),
        ("word4",),
    )
    seen: list[str] = []
    rows = Session.rows

    def noting(self: Session, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        seen.append(sql)
        return rows(self, sql, values)

    await store.candidates(asked)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "rows", noting)
        assert set((await store.candidates(asked)).ids) == {key_of(n).id for n in (0, 1, 3, 4, 5, 7, 8)}
    assert not [sql for sql in seen if "text_" in sql or "body" in sql or "words" in sql], seen
    plans = await _plans(store, lambda: store.candidates(asked), monkeypatch)
    assert not any(f"SCAN {table}" in plan for plan in plans for table in ("samples", "c", "t")), plans
    assert any(
        "ix_samples_several_0 (tenant=? AND source=? AND field_number>? AND field_number<?)" in plan
        for plan in plans
    ), plans
    await store.close()


@pytest.mark.parametrize("collection", [ENTRIES, ENTRY_VERSIONS, MESSAGES], ids=lambda c: c.name)
async def test_what_stands_beside_is_found_by_an_index_wherever_the_engine_asks(
    file: Path, monkeypatch: pytest.MonkeyPatch, collection: Collection
) -> None:
    store = SqliteStore(f"sqlite:///{file}")
    await store.open((collection,))
    await apply_all(
        store,
        *[
            put(record(n, fields={BESIDE.group: "c1", BESIDE.number: n}), collection=collection)
            for n in range(5)
        ],
    )
    asked = Candidates(collection, within(HERE), among=(key_of(2).id,), around=replace(BESIDE, reach=1))
    assert set((await store.candidates(asked)).ids) == {key_of(n).id for n in (1, 2, 3)}
    plans = await _plans(store, lambda: store.candidates(asked), monkeypatch)
    assert any(f"tenant=? AND {BESIDE.group}=? AND {BESIDE.number}>?" in plan for plan in plans), plans
    await store.close()


@pytest.mark.parametrize("scopes", [(), (Scope.parse(HERE.scope),)], ids=["tenant", "scope"])
async def test_a_conversations_own_entries_are_found_by_an_index(
    file: Path, monkeypatch: pytest.MonkeyPatch, scopes: tuple[Scope, ...]
) -> None:
    store = SqliteStore(f"sqlite:///{file}")
    await store.open((ENTRIES,))
    await apply_all(
        store, *[put(record(n, fields={"conversation_id": f"c{n}"}), collection=ENTRIES) for n in range(5)]
    )
    asked = EntryQuery(HERE.tenant, scopes, pinned_to="c1")
    query = Query(
        ENTRIES, asked.where, filter_of(asked, ENTRIES, T0), (Order("created_at", descending=True),), 16
    )
    assert [getattr(row, "key", None) for row in (await store.query(query)).records] == [key_of(1)]
    plan = await _plan(store, query, monkeypatch)
    assert "(tenant=? AND conversation_id=?" in plan, plan
    await store.close()


INDEXED, PATH = frozenset({("n", "it's")}), ("n", "it's")
BETWEEN = And((JsonPath(PATH, ">=", 10), JsonPath(PATH, "<", 13)))
BY_BODY: dict[str, tuple[Condition, list[int]]] = {
    "a number": (JsonPath(PATH, "==", 7), [7]),
    "a text": (JsonPath(PATH, "==", "t8"), [8]),
    "one of several": (JsonPath(PATH, "in", (7, 9)), [7, 9]),
    "between": (BETWEEN, [10, 11, 12]),
    "among other conditions": (And((IsNull("valid_to"), BETWEEN, Not(Eq("type", "b")))), [10, 11, 12]),
    "either": (Or((JsonPath(PATH, "==", 7), JsonPath(PATH, "==", "t8"))), [7, 8]),
}


@pytest.mark.parametrize("where", [within(HERE), Tenant(HERE.tenant)], ids=["scope", "tenant"])
async def test_values_in_bodies_are_found_by_an_index_that_is_asked_for(
    file: Path, monkeypatch: pytest.MonkeyPatch, where: Where
) -> None:
    store = SqliteStore(f"sqlite:///{file}")
    store.json_paths = {"samples": INDEXED}
    await store.open((SAMPLES,))
    await apply_all(
        store, *[put(record(n, body={"n": {"it's": f"t{n}" if n == 8 else n}})) for n in range(30)]
    )
    for why, (part, numbers) in BY_BODY.items():
        query = Query(SAMPLES, where, part, (Order("created_at"),))
        found = (await store.query(query)).records
        assert [one.key for one in found] == [key_of(n) for n in numbers], why
        plan = await _plan(store, query, monkeypatch)
        assert "ix_samples_body_" in plan, (why, plan)
    monkeypatch.setattr(SqliteTable, "few_passing", 5)
    for part, numbers in ((JsonPath(PATH, ">=", 27), [27, 28, 29]), (JsonPath(PATH, ">", "t7"), [8])):
        query = Query(SAMPLES, where, And((IsNull("valid_to"), part)), (Order("created_at"),))
        found = (await store.query(query)).records
        assert [one.key for one in found] == [key_of(n) for n in numbers]
        plan = await _plan(store, query, monkeypatch)
        assert "ix_samples_body_" in plan, plan
    for part in (JsonPath(PATH, ">", 20), JsonPath(PATH, "exists"), Not(JsonPath(PATH, "==", 7))):
        plan = await _plan(store, Query(SAMPLES, where, part, (Order("created_at"),)), monkeypatch)
        assert "ix_samples_created_at" in plan or where != within(HERE), plan
    await store.close()
    again = await opened(file)  # a store without the paths finds the same
    for part, numbers in BY_BODY.values():
        found = (await again.query(Query(SAMPLES, where, part, (Order("created_at"),)))).records
        assert [one.key for one in found] == [key_of(n) for n in numbers]
    await again.close()


async def test_what_is_due_is_found_by_an_index(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await apply_all(store, put(record(1)))
    due: dict[str, Query] = {
        "owing": Query(SAMPLES, Everywhere(), Eq("owing", True), limit=500),
        "passing": Query(SAMPLES, Everywhere(), limit=500, roles=frozenset({Role.ARRIVING})),
        "expires_at": Query(SAMPLES, Everywhere(), Lt("expires_at", T0), limit=500),
        "discard_at": Query(
            SAMPLES, Everywhere(), Lt("discard_at", T0), limit=500, types=frozenset({RowType.TOMBSTONE})
        ),
        "age": Query(SAMPLES, Everywhere(), And((Eq("tier", "mid"), Lt("created_at", T0))), limit=500),
    }
    for index, query in due.items():
        assert f"ix_samples_{index}" in await _plan(store, query, monkeypatch)
    (plan,) = await _plans(store, lambda: store.due(T0, expired={SAMPLES: T0}), monkeypatch)
    assert all(f"ix_samples_{index}" in plan for index in due if index != "age"), plan


async def test_an_index_brings_a_tenants_records_in_the_order_of_a_required_field_or_of_their_last_change(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(f"sqlite:///{file}")
    await store.open((NOTES,))
    await fill_notes(store, 30)
    for query, served, first in (
        (LISTED, {"order_place"}, (29, 28, 27)),
        (OF_A_TALK, {"order_place", "several_0"}, (28, 25, 22)),
        (CHANGED, {"order_updated_at"}, (29, 28, 27)),
        (LESS_CHANGED, {"order_updated_at"}, (19, 18, 17)),
    ):
        found = await store.query(replace(query, limit=3))
        assert [row.fields["place"] for row in found.records if isinstance(row, Record)] == list(first)
        plan = await _plan(store, query, monkeypatch)
        assert any(f"ix_notes_{index}" in plan for index in served), plan
        assert "FOR ORDER BY" not in plan, plan
    plan = await _plan(store, OF_A_USER, monkeypatch)
    assert "ix_notes_field_user" in plan, ("a user's few records among many others are not walked to", plan)
    await store.close()


async def test_the_same_question_with_other_values_is_prepared_once(store: SqliteStore) -> None:
    await apply_all(store, put(record(1, texts={"title": "word"})))
    prepared = await store.driver.read(lambda session: table_of(session, SAMPLES).prepared)
    prepared.clear()
    for minute in range(5):
        await store.query(
            Query(SAMPLES, within(HERE), everyday(minute), (Order("created_at", True),), 20, roles=BROWSED)
        )
        await store.search(
            Search(SAMPLES, within(HERE), Words("word"), 5 + minute, everyday(minute), BROWSED)
        )
        await store.candidates(
            Candidates(
                SAMPLES, within(HERE), "word", limit=5 + minute, filter=everyday(minute), roles=BROWSED
            )
        )
    assert len(prepared) == 3


async def test_among_many_equals_the_id_decides_and_the_filter_comes_first(store: SqliteStore) -> None:
    await apply_all(
        store,
        *[
            put(record(n, fields={"type": "odd" if n % 2 else "even"}, texts={"title": "alike"}))
            for n in range(300)
        ],
    )
    hits = await store.search(Search(SAMPLES, within(HERE), Words("alike"), 5, Eq("type", "odd")))
    assert [h.head.key.id for h in hits] == sorted(key_of(n).id for n in range(1, 300, 2))[:5]


async def test_words_are_found_as_soon_as_they_are_stored_and_never_after_they_are_gone(
    store: SqliteStore,
) -> None:
    for n in range(70):
        await apply_all(store, put(record(n, texts={"title": "first"})))
        if n % 7 == 3:
            await apply_all(
                store,
                put(record(n, version=2, texts={"title": "second"}), Newer()),
                put(record(n - 2, version=2), Newer()),
            )
            await apply_all(store, delete(n - 3, version=9))
        gone = n // 7 * 2 + (2 if n % 7 >= 3 else 0)
        second = n // 7 + (n % 7 >= 3)
        assert len(await search_hits(store, "first", limit=100)) == n + 1 - gone - second
        assert len(await search_hits(store, "second", limit=100)) == second
