"""What calls cost: how many statements they send, and which index serves them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.store import MySqlStore
from memory.adapters.sql.questions import page
from memory.ports.candidates import Candidates, Neighbourhood
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import HERE, T0, apply_all, delete, id_of, key_of, put, record, search_hits
from memory.ports.query import (
    And,
    Condition,
    Eq,
    Everywhere,
    Ge,
    IsNull,
    Lt,
    Order,
    Partitions,
    Query,
    Search,
    Words,
    within,
)
from memory.ports.record import Partition, PendingStep, Role
from memory.ports.writes import Absent, Annotate, AtVersion
from tests.support.mysql_servers import MySqlServer
from tests.unit.adapters.sql.listing import CHANGED, LESS_CHANGED, LISTED, NOTES
from tests.unit.adapters.sql.listing import fill as fill_notes
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER, Raw
from tests.unit.adapters.sql.young import CANDIDATES, NEW, OLD, PAIRS, QUESTIONS, VISIBLE, fill

pytestmark = ON_SERVER


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that is sent from now on."""
    statements: list[str] = []
    run, tell = Connection._run, Connection.tell

    async def noted_run(self: Connection, sql: str, values: Sequence[Any]) -> Any:
        statements.append(sql)
        return await run(self, sql, values)

    async def noted_tell(self: Connection, command: str) -> None:
        statements.append(command)
        await tell(self, command)

    monkeypatch.setattr(Connection, "_run", noted_run)
    monkeypatch.setattr(Connection, "tell", noted_tell)
    return statements


async def test_a_new_record_is_one_statement_and_an_annotation_two(
    store: MySqlStore, sent: list[str]
) -> None:
    await apply_all(store, put(record(0)))
    sent.clear()
    await apply_all(store, put(record(1, texts={"content": "lantern"}), Absent()))
    assert [s.split()[0] for s in sent] == ["INSERT"]
    sent.clear()
    await apply_all(store, Annotate(SAMPLES, key_of(1), 1, accessed_at=T0))
    assert [s.split()[0] for s in sent] == ["SELECT", "UPDATE"]
    sent.clear()
    await apply_all(store, Annotate(SAMPLES, key_of(1), 1, settle=("nothing",)))
    assert [s.split()[0] for s in sent] == ["SELECT"], "what changes nothing writes nothing"


async def test_reading_is_one_statement(store: MySqlStore, sent: list[str]) -> None:
    await apply_all(store, *[put(record(n)) for n in range(40)])
    sent.clear()
    await store.get(SAMPLES, [key_of(n) for n in range(40)])
    await store.query(Query(SAMPLES, within(HERE), order=(Order("created_at", True),), limit=20))
    await store.count(Query(SAMPLES, within(HERE)))
    assert len(sent) == 3


async def test_a_batch_sends_a_handful_of_statements(store: MySqlStore, sent: list[str]) -> None:
    await apply_all(store, put(record(0)))
    sent.clear()
    outcomes = await store.apply([put(record(n, texts={"content": f"lantern{n}"})) for n in range(1, 129)])
    assert all(outcome.applied for outcome in outcomes)
    assert len(sent) <= 7, [statement[:60] for statement in sent]


async def _plan(store: MySqlStore, query: Query) -> list[dict[str, str]]:
    """What EXPLAIN says of each table of the statement."""
    table = store.table(query.collection)

    async def ask(connection: Connection) -> list[dict[str, str]]:
        partitions = (
            await store.directory.numbers(connection, query.where)
            if isinstance(query.where, Partitions)
            else []
        )
        question = page(table, query, partitions, query.limit, table.columns)
        rows = await connection.fetch(f"EXPLAIN {question.sql}", *question.arguments)
        named = []
        for row in rows:
            cells = [c.decode() if isinstance(c, bytes) else c for c in row]
            at = 4 if len(cells) == 10 else 6  # MySQL tells partitions and what is filtered too
            named.append(
                {
                    "table": str(cells[2]),
                    "key": str(cells[at + 1 if len(cells) == 10 else at]),
                    "extra": str(cells[-1]),
                }
            )
        return named

    return await store.with_connection(ask)


async def _filled(store: MySqlStore) -> None:
    for scope in range(20):
        at = Partition("acme", f"s{scope}") if scope else HERE
        await apply_all(
            store,
            *[
                put(record(1_000 * scope + n, at, fields={"type": f"t{n}", "conversation_id": f"c{n % 50}"}))
                for n in range(200)
            ],
        )
    await store.with_connection(lambda connection: connection.fetch("ANALYZE TABLE memory_samples"))


@pytest.mark.parametrize(
    ("part", "order", "key"),
    [
        (None, (Order("created_at", True),), "ix_samples_created_at"),
        (None, (Order("created_at"),), "ix_samples_created_at"),
        (Eq("type", "t7"), (), "ix_samples_field_type"),
    ],
)
async def test_the_way_through_a_partition_and_an_indexed_field_are_served_by_their_index(
    store: MySqlStore, part: Condition | None, order: tuple[Order, ...], key: str
) -> None:
    await _filled(store)
    limit = 20 if order else 100
    (samples,) = [
        row
        for row in await _plan(store, Query(SAMPLES, within(HERE), part, order, limit))
        if row["table"] == "memory_samples"
    ]
    assert samples["key"] == key
    assert "filesort" not in samples["extra"] or not order


async def test_a_tenants_records_in_the_order_of_a_required_field_or_of_their_last_change_are_walked_to(
    server: MySqlServer, database: str
) -> None:
    store = MySqlStore(server.url(database))
    await store.open((NOTES,))
    await fill_notes(store, 2_000)
    await store.with_connection(lambda connection: connection.fetch("ANALYZE TABLE memory_notes"))
    for query, field in ((LISTED, "place"), (CHANGED, "updated_at"), (LESS_CHANGED, "updated_at")):
        (notes,) = [row for row in await _plan(store, query) if row["table"] == "memory_notes"]
        assert notes["key"] == f"ix_notes_order_{field}"
        assert "filesort" not in notes["extra"]
    await store.close()


async def test_what_maintenance_asks_for_is_served_by_an_index(store: MySqlStore) -> None:
    await _filled(store)
    await apply_all(
        store,
        put(record(5_001, owed=(PendingStep("deliver", "deliver"),))),
        put(record(5_002, role=Role.ARRIVING, expires_at=T0)),
    )
    for part, roles, key in (
        (Eq("owing", True), frozenset({Role.HOME}), "ix_samples_owing"),
        (None, frozenset({Role.ARRIVING}), "ix_samples_role"),
        (Ge("expires_at", T0), frozenset({Role.HOME}), "ix_samples_expires_at"),
        (And((Eq("tier", "mid"), Lt("created_at", T0))), frozenset({Role.HOME}), "ix_samples_role"),
    ):
        rows = await _plan(store, Query(SAMPLES, Everywhere(), part, roles=roles))
        assert next(row["key"] for row in rows if row["table"] == "memory_samples") == key
    everyone = await _plan(store, Query(SAMPLES, Everywhere(), IsNull("type")))
    assert next(row["key"] for row in everyone if row["table"] == "memory_samples") != "ix_samples_owing"


async def test_whether_anything_is_due_is_one_statement_that_goes_through_no_table(store: MySqlStore) -> None:
    await _filled(store)
    keys = await _keys(lambda: store.due(T0, expired={SAMPLES: T0}))
    assert {"ix_samples_owing", "ix_samples_role", "ix_samples_expires_at", "ix_samples_discard_at"} <= set(
        keys
    ), keys


async def test_the_right_indexes_serve_a_tenant_that_the_server_has_not_counted_yet(
    server: MySqlServer, database: str, raw: Raw
) -> None:
    store = MySqlStore(server.url(database))
    await store.open((PAIRS,))
    await raw("ALTER TABLE memory_samples STATS_AUTO_RECALC=0")
    await fill(store, OLD, 4_000)
    await raw("ANALYZE TABLE memory_samples")
    await fill(store, NEW, 4_000)
    for name, (query, index) in QUESTIONS.items():
        (samples,) = [row for row in await _plan(store, query) if row["table"] == "memory_samples"]
        assert samples["key"] == f"ix_samples_{index}", (name, samples)
    for reading, key in (
        (lambda: store.get(PAIRS, [key_of(n, NEW) for n in range(40)]), "uq_samples"),
        (lambda: store.search(Search(PAIRS, within(NEW), Words("rare7 shared"), 10, VISIBLE)), "PRIMARY"),
        (
            lambda: store.candidates(replace(CANDIDATES, text="rare7", among=(key_of(0, NEW).id,))),
            "ix_samples_several_1",
        ),
    ):
        keys = await _keys(reading)
        assert key in keys, keys
        assert None not in keys, keys
    await store.close()


async def _keys(reading: Callable[[], Awaitable[Any]]) -> list[str | None]:
    """The index of each table of each statement that a call sends."""
    told: list[str | None] = []
    run = Connection._run

    async def explained(self: Connection, sql: str, values: Sequence[Any]) -> Any:
        for row in (await run(self, f"EXPLAIN {sql}", values)).rows:
            cells = [c.decode() if isinstance(c, bytes) else c for c in row]
            ours = not str(cells[2]).startswith(
                ("<", "wanted")
            )  # neither a part of the answer nor what is given
            if (
                ours
                and "No matching" not in str(cells[-1])
                and "Impossible" not in str(cells[-1])
                and "no matching" not in str(cells[-1])
            ):
                told.append(cells[6 if len(cells) != 10 else 5])
        return await run(self, sql, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "_run", explained)
        await reading()
    return told


async def test_a_later_page_begins_in_the_index_where_the_one_before_ended(store: MySqlStore) -> None:
    await apply_all(store, *[put(record(n)) for n in range(400)])
    query = Query(SAMPLES, within(HERE), order=(Order("created_at", True),), limit=20)
    cursor = None
    for _ in range(15):
        cursor = (await store.query(Query(**{**_parts(query), "cursor": cursor}))).cursor
    later = Query(**{**_parts(query), "cursor": cursor})
    await store.query(later)

    async def read(connection: Connection) -> int:
        partitions = await store.directory.numbers(connection, later.where)
        question = page(store.table(SAMPLES), later, partitions, 20, store.table(SAMPLES).columns)
        await connection.tell("FLUSH STATUS")
        await connection.fetch(question.sql, *question.arguments)
        rows = await connection.fetch("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(
            int(value)
            for name, value in rows
            if name in (b"Handler_read_prev", b"Handler_read_next", b"Handler_read_rnd_next")
        )

    assert await store.with_connection(read) < 60, "not the 300 rows before it"


def _parts(query: Query) -> dict[str, Any]:
    return {name: getattr(query, name) for name in ("collection", "where", "filter", "order", "limit")}


async def test_a_search_sends_three_statements(store: MySqlStore, sent: list[str]) -> None:
    await apply_all(store, *[put(record(n, texts={"content": "lantern"})) for n in range(30)])
    sent.clear()
    assert len(await search_hits(store, "lantern", limit=10)) == 10
    assert len(sent) == 3, sent


async def test_candidates_are_three_statements(store: MySqlStore, sent: list[str]) -> None:
    await apply_all(
        store,
        *[
            put(
                record(n, texts={"content": f"lantern{n % 10}"}, fields={"conversation_id": "c", "number": n})
            )
            for n in range(30)
        ],
    )
    asked = Candidates(
        SAMPLES,
        within(HERE),
        "lantern7",
        among=(id_of(3), id_of(4)),
        around=Neighbourhood("conversation_id", "number", 1),
    )
    sent.clear()
    assert set((await store.candidates(asked)).ids) == {
        id_of(n) for n in (2, 3, 4, 5, 6, 7, 8, 16, 17, 18, 26, 27, 28)
    }
    assert len(sent) == 3, sent


async def test_other_writes_are_one_transaction_each(store: MySqlStore, sent: list[str]) -> None:
    await apply_all(store, put(record(0)), put(record(1)))
    for write in (put(record(1, version=2), AtVersion(1)), delete(1, version=3)):
        sent.clear()
        await apply_all(store, write)
        assert [s for s in sent if s in ("BEGIN", "COMMIT")] == ["BEGIN", "COMMIT"]
        assert len(sent) <= 10, sent
    sent.clear()
    await apply_all(store, put(record(7), Absent(), MORE_SAMPLES))
    assert len(sent) <= 10, sent
