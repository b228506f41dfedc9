"""What calls cost: how many statements they send, and which index serves them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import asyncpg
import pytest
import pytest_asyncio

from memory.adapters.sql.postgresql.candidates import rows
from memory.adapters.sql.postgresql.search import SearchSpec, among, postings
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.adapters.sql.postgresql.thresholds import THRESHOLDS
from memory.adapters.sql.questions import due_question, page
from memory.ports.candidates import Candidates, Neighbourhood
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import HERE, T0, apply_all, delete, key_of, put, record, search_hits
from memory.ports.query import (
    HOMES,
    And,
    Condition,
    Eq,
    Everywhere,
    Ge,
    In,
    IsNull,
    Lt,
    Or,
    Order,
    Query,
    RowType,
    Search,
    Tenant,
    Words,
    within,
)
from memory.ports.record import Role
from memory.ports.writes import Absent, Always, Annotate, AtVersion, Newer, When
from tests.support.postgres_servers import Postgres
from tests.unit.adapters.sql.listing import CHANGED, LESS_CHANGED, LISTED, NOTES
from tests.unit.adapters.sql.listing import fill as fill_notes
from tests.unit.adapters.sql.postgresql.conftest import ON_SERVER, Raw
from tests.unit.adapters.sql.young import CANDIDATES, NEW, OLD, PAIRS, QUESTIONS, VISIBLE, fill

pytestmark = ON_SERVER

BROWSED = frozenset({Role.HOME, Role.ARRIVING})


class Sent:
    """The statements a store sends."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._queries: list[str] = []

    async def __aenter__(self) -> list[str]:
        assert self._store.pool is not None
        async with self._store.pool.connection() as connection:  # the one used last is used next
            connection.add_query_logger(self._note)
        return self._queries

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)  # the driver tells a turn of the loop later
        assert self._store.pool is not None
        async with self._store.pool.connection() as connection:
            connection.remove_query_logger(self._note)

    def _note(self, query: asyncpg.connection.LoggedQuery) -> None:
        self._queries.append(query.query)


async def test_a_write_of_its_own_is_one_statement(store: PostgresStore) -> None:
    await apply_all(store, put(record(0, texts={"title": "word"})))
    async with Sent(store) as sent:
        conditions: tuple[When, ...] = (Absent(), Newer(), Always())
        for n, when in enumerate(conditions, start=1):
            await apply_all(store, put(record(n, texts={"title": "word"}), when))
        await apply_all(
            store,
            put(record(1, version=2), AtVersion(1)),
        )
        await apply_all(store, delete(2))
    assert len(sent) == 5
    async with Sent(store) as sent:
        await apply_all(store, Annotate(SAMPLES, key_of(1), 2, accessed_at=T0))
    assert len(sent) == 2, "one to look, one to swap"


async def test_reads_are_one_statement_and_searches_and_candidates_two(store: PostgresStore) -> None:
    await apply_all(store, *[put(record(n, texts={"title": "word"})) for n in range(30)])
    await store.query(Query(SAMPLES, within(HERE), limit=1))
    for calls, statements in (
        (lambda: store.get(SAMPLES, [key_of(n) for n in range(20)]), 1),
        (lambda: store.query(Query(SAMPLES, within(HERE), order=(Order("created_at", True),), limit=20)), 1),
        (lambda: store.count(Query(SAMPLES, within(HERE))), 1),
        (lambda: search_hits(store, "words"), 2),
        (
            lambda: store.candidates(
                Candidates(
                    SAMPLES,
                    within(HERE),
                    "words",
                    counted=("word",),
                    around=Neighbourhood("conversation_id", "number", 2),
                )
            ),
            2,
        ),
    ):
        await calls()  # the driver learns the types of the parameters
        async with Sent(store) as sent:
            await calls()
        assert len(sent) == statements, sent


async def test_a_batch_of_new_records_is_a_transaction_of_few_statements(store: PostgresStore) -> None:
    await store.apply(
        [put(record(n + 1000), Absent()) for n in range(THRESHOLDS.rows_at_once)]
    )  # the driver learns the types of the parameters
    async with Sent(store) as sent:
        await store.apply([put(record(n), Absent()) for n in range(2 * THRESHOLDS.rows_at_once)])
    few_at_both_ends = ["INSERT"] * 4
    assert [s.split()[0] for s in sent] == ["BEGIN", "SELECT", *few_at_both_ends, "COMMIT"]


async def test_large_records_go_one_by_one_and_small_ones_together(store: PostgresStore) -> None:
    async def sent_for(sizes: Sequence[int], first: int) -> list[bool]:
        records = [record(first + n, fields={"seal": bytes([n]) * size}) for n, size in enumerate(sizes)]
        async with Sent(store) as sent:
            await store.apply([put(each, Absent()) for each in records])
        assert [
            getattr(found, "fields", None)
            for found in await store.get(SAMPLES, [each.key for each in records])
        ] == [each.fields for each in records]
        return ["unnest" in statement for statement in sent if '"memory_samples"' in statement]

    large = THRESHOLDS.bytes_at_once
    assert await sent_for([100] * 5, 0) == [True]
    assert await sent_for([large] * 4, 100) == [False] * 4, "a row alone is no array"
    assert await sent_for([100, large // 2, large // 2, 100, 100], 200) == [True, True]


def everyday(*more: Condition) -> Condition:
    """The filter that the engine asks with."""
    return And((Or((IsNull("expires_at"), Ge("expires_at", T0))), *more))


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (
            Query(SAMPLES, within(HERE), everyday(), (Order("created_at", True),), 20, roles=BROWSED),
            "memory_ix_samples_created_at",
        ),
        (Query(SAMPLES, within(HERE), everyday(Eq("type", "a"))), "memory_ix_samples_field_type"),
        (
            Query(SAMPLES, within(HERE), In("conversation_id", ("a", "b"))),
            "memory_ix_samples_field_conversation_id",
        ),
        (
            Query(SAMPLES, Everywhere(), limit=20, roles=frozenset({Role.ARRIVING})),
            "memory_ix_samples_passing",
        ),
        (
            Query(SAMPLES, Everywhere(), Eq("owing", True), limit=20, roles=frozenset(Role)),
            "memory_ix_samples_owing",
        ),
        (
            Query(MORE_SAMPLES, within(HERE), Eq("entry_id", "x"), (Order("stored_version"),)),
            "memory_ix_more_samples_field_entry_id",
        ),
    ],
)
async def test_an_index_serves_what_the_engine_asks(
    store: PostgresStore, server: Postgres, query: Query, index: str
) -> None:
    types = "abcdefgh"
    records = [record(n, fields={"type": types[n % 8], "conversation_id": f"c{n}"}) for n in range(2_000)]
    versions = [record(n, fields={"entry_id": f"e{n % 50}"}) for n in range(400)]
    await apply_all(store, *[put(r) for r in records], *[put(r, collection=MORE_SAMPLES) for r in versions])
    table = store.table(query.collection)
    place = store.directory.cached_partition(HERE)
    assert place is not None
    question = page(table, query, [place.number], query.limit, table.columns)
    told = await _plan(server, table.qualified, question.sql, question.arguments)
    assert index in told
    assert "Sort" not in told or not table.walks_partition(query.order), (
        "a page of the newest is walked to, not sorted out of all there are"
    )


async def test_the_word_index_serves_searches(store: PostgresStore, server: Postgres) -> None:
    await apply_all(store, *[put(record(n, texts={"content": f"word{n} shared"})) for n in range(400)])
    place = store.directory.cached_partition(HERE)
    assert place is not None
    table = store.table(SAMPLES)
    question = postings(
        table, SearchSpec(within(HERE), HOMES, None, [place.number], [place.number], ["word7"])
    )
    assert "memory_ix_samples_lexemes" in await _plan(
        server, table.qualified, question.sql, question.arguments
    )


async def _plan(server: Postgres, table: str, sql: str, arguments: list[object]) -> str:
    connection = await asyncpg.connect(timeout=10, **server.settings)
    try:
        await connection.execute(f"ANALYZE {table}; SET enable_seqscan = off")
        return "\n".join([line for (line,) in await connection.fetch(f"EXPLAIN {sql}", *arguments)])
    finally:
        await connection.close()


@pytest_asyncio.fixture
async def young(server: Postgres, schema: str, raw: Raw) -> AsyncIterator[PostgresStore]:
    """A table that the server counted before the new tenant came, and not since."""
    store = PostgresStore(server.url(schema))
    await store.open((PAIRS,))
    await raw("ALTER TABLE {s}.memory_samples SET (autovacuum_enabled = off)")
    await fill(store, OLD, 4_000)
    await raw("VACUUM ANALYZE {s}.memory_samples")
    await fill(store, NEW, 10_000)
    yield store
    await store.close()
    await raw("DROP SCHEMA {s} CASCADE")


async def test_the_right_indexes_serve_a_tenant_that_the_server_has_not_counted_yet(
    young: PostgresStore, raw: Raw
) -> None:
    place, table = young.directory.cached_partition(NEW), young.table(PAIRS)
    assert place is not None

    async def plan(sql: str, arguments: Sequence[object]) -> str:
        return "\n".join([line for (line,) in await raw(f"EXPLAIN {sql}", *arguments)])

    for name, (query, index) in QUESTIONS.items():
        question = page(table, query, [place.number], query.limit, table.columns)
        told = await plan(question.sql, question.arguments)
        assert f"memory_ix_samples_{index}" in told, (name, told)
        assert "Sort" not in told or not table.walks_partition(query.order), (name, told)
    for word in ("rare7", "shared"):
        question = postings(
            table, SearchSpec(within(NEW), HOMES, VISIBLE, [place.number], [place.number], [word])
        )
        told = await plan(question.sql, question.arguments)
        assert "Bitmap Index Scan on memory_ix_samples_lexemes" in told, told
        assert "Seq Scan" not in told, told
    ids = [key_of(n, NEW).id for n in range(0, 5_000, 100)]
    asked = among(table, Search(PAIRS, within(NEW), Words("x"), 10, VISIBLE), NEW.tenant, ids)
    beside = rows(table, CANDIDATES, [place.number], ids)
    told = await plan(beside.sql, beside.arguments)
    assert "memory_ix_samples_several_1" in told, told
    assert "Seq Scan" not in told, told
    for sql, arguments in (
        (asked.sql, asked.arguments),
        (beside.sql, beside.arguments),
        (table.find_many_sql, [NEW.tenant, ids]),
        (table.find_sql, [NEW.tenant, ids[0]]),
    ):
        told = await plan(sql, arguments)
        assert "memory_pk_samples" in told, told
        assert "id = " in told.partition("Index Cond")[2].partition("\n")[0], told


async def test_whether_anything_stands_in_a_partition_is_looked_up_though_the_server_counted_only_others(
    young: PostgresStore, raw: Raw
) -> None:
    """It had counted one partition that every row was in, so that any row would do: 1.7
    s for a look at 500 of them.
    """
    look = f"SELECT {young.directory._stands(['memory_samples'])} FROM {{s}}.memory_partitions AS p"  # noqa: S608
    told = "\n".join([line for (line,) in await raw(f"EXPLAIN {look}")])
    assert "memory_ix_samples_created_at" in told, told
    assert "Seq Scan on memory_samples" not in told, told


async def test_a_search_goes_through_no_index_of_nearly_every_row_of_a_table_that_was_never_counted(
    server: Postgres, schema: str, raw: Raw
) -> None:
    store = PostgresStore(server.url(schema))
    await store.open((PAIRS,))
    await raw("ALTER TABLE {s}.memory_samples SET (autovacuum_enabled = off)")
    await fill(store, NEW, 5_000)
    place, table = store.directory.cached_partition(NEW), store.table(PAIRS)
    assert place is not None
    ids = [key_of(n, NEW).id for n in range(0, 5_000, 50)]
    found = postings(
        table, SearchSpec(within(NEW), BROWSED, VISIBLE, [place.number], [place.number], ["rare7", "shared"])
    )
    read = rows(table, replace(CANDIDATES, roles=BROWSED), [place.number], ids)
    for question in (found, read):
        told = "\n".join([line for (line,) in await raw(f"EXPLAIN {question.sql}", *question.arguments)])
        assert "memory_ix_samples_age" not in told, told
    await store.close()
    await raw("DROP SCHEMA {s} CASCADE")


async def test_a_tenants_records_are_found_by_its_partitions_or_its_fields(
    young: PostgresStore, raw: Raw
) -> None:
    """Unless the server thinks that the tenant has a good part of the table: then it
    goes through the key, in the order of ids.
    """
    table = young.table(PAIRS)
    either = Or((Eq("type", "a"), Eq("conversation_id", "b")))
    for part, indexes in (
        (None, ("memory_ix_samples_created_at", "memory_pk_samples")),
        (Eq("type", "kind7"), ("memory_ix_samples_field_type",)),
        (either, ("memory_ix_samples_field_type",)),
    ):
        question = page(table, Query(PAIRS, Tenant("new"), part, limit=20), (), 20, table.columns)
        told = "\n".join([line for (line,) in await raw(f"EXPLAIN {question.sql}", *question.arguments)])
        assert any(index in told for index in indexes), told


async def test_a_tenants_records_in_the_order_of_a_required_field_or_of_their_last_change_are_walked_to(
    server: Postgres, schema: str, raw: Raw
) -> None:
    store = PostgresStore(server.url(schema))
    await store.open((NOTES,))
    await fill_notes(store, 2_000)
    await raw("ANALYZE {s}.memory_notes")
    for query, field in ((LISTED, "place"), (CHANGED, "updated_at"), (LESS_CHANGED, "updated_at")):
        question = page(store.table(NOTES), query, (), query.limit, store.table(NOTES).columns)
        told = "\n".join([line for (line,) in await raw(f"EXPLAIN {question.sql}", *question.arguments)])
        assert f"Index Scan Backward using memory_ix_notes_order_{field}" in told, told
        assert "Sort" not in told, told
    await store.close()
    await raw("DROP SCHEMA {s} CASCADE")


OLD_ONES = And((Eq("tier", "mid"), Lt("created_at", T0)))


async def test_what_is_due_is_found_by_an_index(young: PostgresStore, raw: Raw) -> None:
    table, tombstones = young.table(PAIRS), frozenset({RowType.TOMBSTONE})
    due: dict[str, Query] = {
        "owing": Query(PAIRS, Everywhere(), Eq("owing", True), limit=500),
        "passing": Query(PAIRS, Everywhere(), limit=500, roles=frozenset({Role.ARRIVING})),
        "expires_at": Query(PAIRS, Everywhere(), Lt("expires_at", T0), limit=500),
        "discard_at": Query(PAIRS, Everywhere(), Lt("discard_at", T0), limit=500, types=tombstones),
        "age": Query(
            PAIRS,
            Everywhere(),
            OLD_ONES,
            (Order("created_at"),),
            500,
            roles=frozenset({Role.HOME, Role.ARRIVING}),
        ),
    }
    for index, query in due.items():
        question = page(table, query, (), 500, table.columns)
        told = "\n".join([line for (line,) in await raw(f"EXPLAIN {question.sql}", *question.arguments)])
        assert f"memory_ix_samples_{index}" in told, told


async def test_nothing_is_gone_through_for_what_is_due_where_the_server_has_counted_nothing_yet(
    server: Postgres, schema: str, raw: Raw
) -> None:
    store = PostgresStore(server.url(schema))
    await store.open((PAIRS,))
    await raw("ALTER TABLE {s}.memory_samples SET (autovacuum_enabled = off)")
    await fill(store, OLD, 4_000)
    old = Query(
        PAIRS,
        Everywhere(),
        OLD_ONES,
        (Order("created_at"),),
        500,
        roles=frozenset({Role.HOME, Role.ARRIVING}),
    )
    for question in (
        due_question([store.table(PAIRS)], [True], [T0, T0]),
        page(store.table(PAIRS), old, (), 500, store.table(PAIRS).columns),
    ):
        told = "\n".join([line for (line,) in await raw(f"EXPLAIN {question.sql}", *question.arguments)])
        assert "Seq Scan" not in told, told
    await store.close()
    await raw("DROP SCHEMA {s} CASCADE")


async def test_whether_anything_is_due_is_one_statement_that_goes_through_no_table(
    young: PostgresStore, raw: Raw
) -> None:
    question = due_question([young.table(PAIRS)], [True], [T0, T0])
    told = "\n".join([line for (line,) in await raw(f"EXPLAIN {question.sql}", *question.arguments)])
    assert "Seq Scan" not in told, told
    for index in ("owing", "passing", "expires_at", "discard_at"):
        assert f"memory_ix_samples_{index}" in told, told
    async with Sent(young) as sent:
        assert (await young.due(T0)).rows == ()
    assert len(sent) == 1, sent
