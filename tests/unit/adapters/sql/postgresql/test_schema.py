"""The schema: it is made from what is declared, grows with it, and opening is quick,
repeatable and safe for many at once.
"""

from __future__ import annotations

import pytest

from memory.adapters.sql.declared import declaration
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.adapters.sql.postgresql.thresholds import Thresholds
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, apply_all, fetch_record, id_of, put, query_ids, record
from memory.ports.query import Eq, In, Near, Search, within
from memory.ports.record import pack_vector
from tests.support.depth import drawn
from tests.support.postgres_servers import Postgres
from tests.unit.adapters.sql.growing import (
    WIDE,
    an_open_store_goes_on_with_every_kind_of_call,
    fill,
    judge,
    open_in_processes,
    processes_at_once_add_fields_once,
)
from tests.unit.adapters.sql.postgresql.conftest import ON_SERVER, Raw, backend

pytestmark = ON_SERVER


async def _described(raw: Raw, schema: str) -> tuple[set[str], dict[str, str]]:
    """The columns of each table in no order, and its indexes with their conditions,
    included columns and collations.
    """
    columns = await raw(
        "SELECT table_name, column_name, data_type, is_nullable, collation_name FROM"
        " information_schema.columns WHERE table_schema = $1",
        schema,
    )
    indexes = await raw("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = $1", schema)
    return {str(tuple(row)) for row in columns}, {
        name: sql.replace(f"{schema}.", "") for name, sql in indexes
    }


async def test_a_filled_schema_grows_into_what_a_new_one_is_made_as(
    store: PostgresStore, server: Postgres, schema: str, raw: Raw
) -> None:
    before = await fill(store)
    grown, new = PostgresStore(server.url(schema)), PostgresStore(server.url(f"{schema}_new"))
    for each in (grown, new):
        await each.open(WIDE)
    assert await _described(raw, schema) == await _described(raw, f"{schema}_new")
    await judge(grown, before)
    for each in (grown, new):
        await each.close()
    await raw("DROP SCHEMA {s}_new CASCADE")


async def test_processes_that_open_a_filled_schema_with_fields_more_at_once_add_them_once(
    store: PostgresStore, server: Postgres, schema: str
) -> None:
    await processes_at_once_add_fields_once(store, PostgresStore(server.url(schema)), server.url(schema))


async def test_a_store_that_was_open_goes_on_with_every_kind_of_call_when_the_tables_have_grown(
    store: PostgresStore, server: Postgres, schema: str
) -> None:
    await an_open_store_goes_on_with_every_kind_of_call(store, PostgresStore(server.url(schema)))


async def test_the_registry_is_what_is_declared(store: PostgresStore, raw: Raw) -> None:
    assert dict(await raw("SELECT name, declaration FROM {s}.memory_collections")) == {
        c.name: declaration(c) for c in DECLARED
    }


async def test_processes_open_an_empty_database_at_once(server: Postgres, schema: str, raw: Raw) -> None:
    lines = open_in_processes(PostgresStore, server.url(schema), drawn(8, 3))
    assert all(line.startswith("True") for line in lines)
    await raw("DROP SCHEMA {s} CASCADE")


@pytest.mark.parametrize(("version", "what_to_do"), [("9999", "upgrade"), ("0001", "export its records")])
async def test_a_schema_of_another_version_is_refused_by_name(
    store: PostgresStore, server: Postgres, schema: str, raw: Raw, version: str, what_to_do: str
) -> None:
    await raw(
        "UPDATE {s}.memory_schema_version SET version_num = $1 WHERE version_num NOT LIKE 'format %'", version
    )
    with pytest.raises(ConfigError, match=f"{version}.*{what_to_do}"):
        await PostgresStore(server.url(schema)).open(DECLARED)
    assert not (await store.check()).ok


async def test_a_collection_of_someone_else_gets_a_table_of_its_own(
    server: Postgres, schema: str, raw: Raw
) -> None:
    notes = Collection(
        "notes",
        (
            Field("kind", FieldType.BOOLEAN, True),
            Field("version_label", FieldType.TAGS, True),
            Field("body", FieldType.BYTES),
            Field("words", FieldType.TEXT, True),
        ),
        (TextPart("text", 1.0),),
    )
    for _ in range(2):
        store = PostgresStore(server.url(schema))
        await store.open((notes, SAMPLES))
        note = record(
            fields={"kind": True, "version_label": ("x", "y"), "body": b"\0\xff", "words": "w"},
            texts={"text": "words"},
        )
        await apply_all(store, put(note, collection=notes))
        assert (await fetch_record(store, collection=notes)).fields == note.fields
        for part in (Eq("kind", True), Eq("words", "w"), In("words", ("v", "w")), Eq("body", b"\0\xff")):
            assert await query_ids(store, part=part, collection=notes) == [id_of(1)]
        await store.close()
    await raw("DROP SCHEMA {s} CASCADE")


async def test_a_collection_declared_otherwise_than_its_table_was_is_refused(
    store: PostgresStore, server: Postgres, schema: str
) -> None:
    other = PostgresStore(server.url(schema))
    with pytest.raises(ConfigError, match="samples"):
        await other.open((Collection("samples", (Field("colour", FieldType.TEXT),)),))
    await other.open(DECLARED)
    await other.close()


@pytest.mark.parametrize("name", ["memory_partitions", "drop table", "pg_things", "", "x" * 41])
async def test_a_collection_name_that_no_table_can_have_is_refused(
    server: Postgres, schema: str, name: str
) -> None:
    with pytest.raises(ConfigError, match="identifier"):
        await PostgresStore(server.url(schema)).open((Collection(name),))


async def test_two_schemas_of_one_database_are_two_stores(
    store: PostgresStore, server: Postgres, schema: str, raw: Raw
) -> None:
    other = PostgresStore(server.url(f"{schema}_b"))
    await other.open(DECLARED)
    await apply_all(other, put(record(1)))
    assert await query_ids(store) == []
    assert await query_ids(other) == [id_of(1)]
    await other.close()
    await raw("DROP SCHEMA {s}_b CASCADE")


@pytest.mark.parametrize(
    "server", [pytest.param("postgresql_pgvector", marks=backend("postgresql_pgvector"))], indirect=True
)
async def test_vectors_written_without_the_extension_are_found_once_it_is_there(
    store: PostgresStore, server: Postgres, schema: str, raw: Raw
) -> None:
    await apply_all(store, *[put(record(n, vector=pack_vector([1.0, n]))) for n in range(3)])
    await raw("UPDATE {s}.memory_samples SET embedding = NULL")
    again = PostgresStore(server.url(schema))
    await again.open(DECLARED)
    hits = await again.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 0.0])), 5))
    assert [h.head.key.id for h in hits] == [id_of(n) for n in range(3)]
    await again.close()


@pytest.mark.parametrize(
    "server", [pytest.param("postgresql_pgvector", marks=backend("postgresql_pgvector"))], indirect=True
)
async def test_vectors_that_are_damaged_do_not_keep_others_from_being_found(
    store: PostgresStore, server: Postgres, schema: str, raw: Raw
) -> None:
    await apply_all(store, *[put(record(n, vector=pack_vector([1.0, n]))) for n in range(5)])
    await raw("UPDATE {s}.memory_samples SET embedding = NULL")
    await raw(
        "UPDATE {s}.memory_samples SET vector = decode('0000000000000000', 'hex') WHERE id = ANY($1::uuid[])",
        [id_of(n) for n in (0, 1, 3)],
    )
    again = PostgresStore(server.url(schema), thresholds=Thresholds(embedded_at_once=2))
    await again.open(DECLARED)
    hits = await again.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 0.0])), 5))
    assert [h.head.key.id for h in hits] == [id_of(2), id_of(4)]
    await again.close()
