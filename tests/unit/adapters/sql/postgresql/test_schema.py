"""The schema: what migrations make is what is declared, and opening is quick, repeatable and safe for many at once."""

from __future__ import annotations

import subprocess
import sys

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from memory.adapters.sql.declared import declaration
from memory.adapters.sql.postgresql.config import parse
from memory.adapters.sql.postgresql.connection import connect
from memory.adapters.sql.postgresql.migrate import HEAD, VERSION_TABLE
from memory.adapters.sql.postgresql.schema import collection_table, system_tables
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.adapters.sql.postgresql.thresholds import Thresholds
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, asked, done, id_of, live, put, record
from memory.ports.query import Eq, In, Near, Search, within
from memory.ports.record import pack_vector
from tests.support.postgres_servers import Postgres
from tests.support.processes import finished, started
from tests.unit.adapters.sql.postgresql.conftest import ON_SERVER, Raw, backend

pytestmark = ON_SERVER

OPEN = """
import asyncio, sys
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.ports.contract.collections import DECLARED
async def main():
    store = PostgresStore(sys.argv[1])
    await store.open(DECLARED)
    print((await store.check()).ok, "alembic" in sys.modules)
    await store.close()
asyncio.run(main())
"""


def test_the_newest_migration_is_the_one_that_open_looks_for() -> None:
    config = Config()
    config.set_main_option("script_location", "memory.adapters.sql.postgresql:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


async def test_the_migrated_schema_is_the_declared_one(store: PostgresStore, server: Postgres, schema: str, raw: Raw) -> None:
    declared = sa.MetaData(schema=schema)
    system_tables(declared)
    for collection in DECLARED:
        collection_table(declared, collection)

    def ours(thing: object, name: str | None, kind: str, *_: object) -> bool:
        return kind != "table" or getattr(thing, "schema", None) == schema

    def compare(connection: sa.Connection) -> list[object]:
        options = {
            "compare_type": True,
            "version_table": VERSION_TABLE,
            "version_table_schema": schema,
            "include_schemas": True,
            "include_object": ours,
        }
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), declared))

    config = parse("s", server.url(schema), {})
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: connect(config), poolclass=NullPool)
    async with engine.connect() as connection:
        assert await connection.run_sync(compare) == []
    await engine.dispose()
    # What Alembic does not compare: conditions, included columns, collations.
    indexes = {name: sql.replace(f"{schema}.", "") for name, sql in await raw("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = '{s}'")}
    await raw("CREATE SCHEMA {s}_declared")
    again = create_async_engine("postgresql+asyncpg://", async_creator=lambda: connect(config), poolclass=NullPool)
    other = sa.MetaData(schema=f"{schema}_declared")
    system_tables(other)
    for collection in DECLARED:
        collection_table(other, collection)
    async with again.connect() as connection:
        await connection.run_sync(other.create_all)
        await connection.commit()
    await again.dispose()
    made = {
        name: sql.replace(f"{schema}_declared.", "")
        for name, sql in await raw("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = '{s}_declared'")
    }
    del indexes["memory_schema_version_pkc"]
    assert indexes == made
    columns = "SELECT table_name, column_name, collation_name FROM information_schema.columns WHERE table_schema = $1 ORDER BY 1, 2"
    migrated = [tuple(row) for row in await raw(columns, schema) if row[0] != VERSION_TABLE]
    assert migrated == [tuple(row) for row in await raw(columns, f"{schema}_declared")]
    await raw("DROP SCHEMA {s}_declared CASCADE")


async def test_the_registry_is_what_is_declared(store: PostgresStore, raw: Raw) -> None:
    assert dict(await raw("SELECT name, declaration FROM {s}.memory_collections")) == {c.name: declaration(c) for c in DECLARED}


async def test_eight_processes_open_an_empty_database_at_once(server: Postgres, schema: str, raw: Raw) -> None:
    lines = finished([started(OPEN, server.url(schema)) for _ in range(8)])
    assert all(line.startswith("True") for line in lines)
    assert finished([started(OPEN, server.url(schema))]) == ["True False\n"], "opening a current schema does not load Alembic"
    await raw("DROP SCHEMA {s} CASCADE")


async def test_a_schema_of_a_later_version_is_refused_by_name(store: PostgresStore, server: Postgres, schema: str, raw: Raw) -> None:
    await raw("UPDATE {s}.memory_schema_version SET version_num = '9999'")
    with pytest.raises(ConfigError, match="9999"):
        await PostgresStore(server.url(schema)).open(DECLARED)
    assert not (await store.check()).ok


async def test_a_collection_of_someone_else_gets_a_table_of_its_own(server: Postgres, schema: str, raw: Raw) -> None:
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
        note = record(fields={"kind": True, "version_label": ("x", "y"), "body": b"\0\xff", "words": "w"}, texts={"text": "words"})
        await done(store, put(note, collection=notes))
        assert (await live(store, collection=notes)).fields == note.fields
        for part in (Eq("kind", True), Eq("kind", 1), Eq("words", "w"), In("words", ("v", "w")), Eq("body", b"\0\xff")):
            assert await asked(store, part=part, collection=notes) == [id_of(1)]
        await store.close()
    await raw("DROP SCHEMA {s} CASCADE")


async def test_a_collection_declared_otherwise_than_its_table_was_is_refused(store: PostgresStore, server: Postgres, schema: str) -> None:
    other = PostgresStore(server.url(schema))
    with pytest.raises(ConfigError, match="samples"):
        await other.open((Collection("samples", (Field("colour", FieldType.TEXT),)),))
    await other.open(DECLARED)
    await other.close()


@pytest.mark.parametrize("name", ["memory_partitions", "drop table", "pg_things", "", "x" * 41])
async def test_a_collection_name_that_no_table_can_have_is_refused(server: Postgres, schema: str, name: str) -> None:
    with pytest.raises(ConfigError, match="identifier"):
        await PostgresStore(server.url(schema)).open((Collection(name),))


async def test_two_schemas_of_one_database_are_two_stores(store: PostgresStore, server: Postgres, schema: str, raw: Raw) -> None:
    other = PostgresStore(server.url(f"{schema}_b"))
    await other.open(DECLARED)
    await done(other, put(record(1)))
    assert await asked(store) == []
    assert await asked(other) == [id_of(1)]
    await other.close()
    await raw("DROP SCHEMA {s}_b CASCADE")


@pytest.mark.parametrize("server", [pytest.param("postgresql_pgvector", marks=backend("postgresql_pgvector"))], indirect=True)
async def test_vectors_written_without_the_extension_are_found_once_it_is_there(
    store: PostgresStore, server: Postgres, schema: str, raw: Raw
) -> None:
    await done(store, *[put(record(n, vector=pack_vector([1.0, n]))) for n in range(3)])
    await raw("UPDATE {s}.samples SET embedding = NULL")
    again = PostgresStore(server.url(schema))
    await again.open(DECLARED)
    hits = await again.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 0.0])), 5))
    assert [h.head.key.id for h in hits] == [id_of(n) for n in range(3)]
    await again.close()


@pytest.mark.parametrize("server", [pytest.param("postgresql_pgvector", marks=backend("postgresql_pgvector"))], indirect=True)
async def test_vectors_that_are_damaged_do_not_keep_others_from_being_found(store: PostgresStore, server: Postgres, schema: str, raw: Raw) -> None:
    await done(store, *[put(record(n, vector=pack_vector([1.0, n]))) for n in range(5)])
    await raw("UPDATE {s}.samples SET embedding = NULL")
    await raw("UPDATE {s}.samples SET vector = decode('0000000000000000', 'hex') WHERE id = ANY($1::text[])", [id_of(n) for n in (0, 1, 3)])
    again = PostgresStore(server.url(schema), thresholds=Thresholds(embedded_at_once=2))
    await again.open(DECLARED)
    hits = await again.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0, 0.0])), 5))
    assert [h.head.key.id for h in hits] == [id_of(2), id_of(4)]
    await again.close()


def test_importing_the_package_loads_no_driver() -> None:
    program = "import sys, memory.adapters.sql, memory.adapters.sql.postgresql; print('asyncpg' in sys.modules, 'sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False False\n"
