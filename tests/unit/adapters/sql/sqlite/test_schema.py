"""The schema: what migrations make is what is declared, and opening is quick, repeatable and safe for many at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import sqlite

from memory.adapters.sql.declared import declaration
from memory.adapters.sql.sqlite.migrate import HEAD, VERSION_TABLE
from memory.adapters.sql.sqlite.schema import as_vocabulary, collection_table, system_tables, word_table, words_table
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import done, live, put, record
from memory.ports.record import Key
from tests.support.processes import finished, started
from tests.unit.adapters.sql.sqlite.helping import opened, raw, registered

OPEN = """
import asyncio, sys
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.contract.collections import DECLARED
async def main():
    store = SqliteStore("sqlite:///" + sys.argv[1])
    await store.open(DECLARED)
    print((await store.check()).ok, "alembic" in sys.modules)
    await store.close()
asyncio.run(main())
"""


def _declared(file: Path) -> sa.MetaData:
    """What this version makes for the collections that are there: those of today, and those that the first migrations made, as they were."""
    metadata = sa.MetaData()
    system_tables(metadata)
    for collection in registered(file):
        collection_table(metadata, collection)
        word_table(metadata, collection)
    return metadata


@pytest.fixture
async def migrated(tmp_path: Path) -> Path:
    """A file that Alembic brought here from nothing: one that has its table of versions, and no version in it."""
    path = tmp_path / "migrated.db"
    with raw(path) as connection:
        connection.execute(
            f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
        connection.commit()
    await (await opened(path)).close()
    return path


async def test_a_new_file_is_as_a_migrated_one(file: Path, migrated: Path) -> None:
    def schema(path: Path) -> tuple[dict[str, str], object, object]:
        with raw(path) as connection:
            made = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL")
            tables = {name: "".join(sql.split()) for name, sql in made}
            registry = connection.execute("SELECT name, declaration, indexed_to FROM memory_collections ORDER BY name").fetchall()
            return tables, registry, connection.execute("SELECT version_num FROM memory_schema_version").fetchall()

    for path in (file, migrated):
        store = SqliteStore(f"sqlite:///{path}")
        await store.open(registered(migrated))
        await store.close()
    assert {c.name for c in registered(migrated)} > {c.name for c in DECLARED}
    assert schema(file) == schema(migrated)


def test_making_a_new_file_does_not_load_alembic(file: Path) -> None:
    assert finished([started(OPEN, file)]) == ["True False\n"]


async def test_the_migrated_schema_is_the_declared_one(migrated: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{migrated}", poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True, "version_table": VERSION_TABLE})
        assert compare_metadata(context, _declared(migrated)) == []
    engine.dispose()


async def test_the_migrated_indexes_have_the_declared_conditions_and_columns(migrated: Path) -> None:
    declared = {
        str(index.name): " ".join(str(sa.schema.CreateIndex(index).compile(dialect=sqlite.dialect())).split())
        for table in _declared(migrated).tables.values()
        for index in table.indexes
    }
    with raw(migrated) as connection:
        made = {
            name: " ".join(sql.split())
            for name, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL")
        }
    assert made == declared


async def test_the_migrated_views_and_the_registry_are_the_declared_ones(migrated: Path) -> None:
    with raw(migrated) as connection:
        registry = dict(connection.execute("SELECT name, declaration FROM memory_collections"))
        made = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'view'")}
    assert {c.name: registry[c.name] for c in DECLARED} == {c.name: declaration(c) for c in DECLARED}
    assert made == {as_vocabulary(words_table(c)) for c in registered(migrated) if c.texts}


def test_the_newest_migration_is_the_one_that_open_looks_for() -> None:
    config = Config()
    config.set_main_option("script_location", "memory.adapters.sql.sqlite:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


async def test_opening_a_current_file_does_not_load_alembic(store: SqliteStore, file: Path) -> None:
    await store.close()
    assert finished([started(OPEN, file)]) == ["True False\n"]


@pytest.mark.thorough
def test_eight_processes_open_a_new_file_at_once(file: Path) -> None:
    processes = [started(OPEN, file) for _ in range(8)]
    assert all(line.startswith("True") for line in finished(processes))


def test_claims_are_readable_without_sqlalchemy() -> None:
    shown = "adapter.claims.durable, 'sqlalchemy' in sys.modules, 'numpy' in sys.modules"
    program = f"import sys; from memory.adapters.sql.sqlite import adapter; print({shown})"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "True False False\n"


async def test_a_file_of_a_later_version_is_refused_by_name(store: SqliteStore, file: Path) -> None:
    await store.close()
    with raw(file) as connection:
        connection.execute("UPDATE memory_schema_version SET version_num = '9999'")
    with pytest.raises(ConfigError, match="9999"):
        await opened(file)


async def test_a_collection_of_someone_else_gets_a_table_of_its_own(file: Path) -> None:
    notes = Collection(
        "notes",
        (Field("kind", FieldType.TEXT, True), Field("version_label", FieldType.TAGS, True), Field("body", FieldType.BYTES)),
        (TextPart("text", 1.0),),
    )
    for _ in range(2):
        store = SqliteStore(f"sqlite:///{file}")
        await store.open((notes, SAMPLES))
        note = record(fields={"kind": "a", "version_label": ("x", "y"), "body": b"\0\xff"}, texts={"text": "words"})
        await done(store, put(note, collection=notes))
        assert (await live(store, collection=notes)).fields == note.fields
        await store.close()


async def test_a_collection_declared_otherwise_than_its_table_was_is_refused(store: SqliteStore, file: Path) -> None:
    await store.close()
    other = SqliteStore(f"sqlite:///{file}")
    with pytest.raises(ConfigError, match="samples"):
        await other.open((Collection("samples", (Field("colour", FieldType.TEXT),)),))
    await other.open(DECLARED)
    assert await other.get(SAMPLES, [Key("a", "b")]) == [None]
    await other.close()


@pytest.mark.parametrize("name", ["memory_partitions", "drop table", "sqlite_things", ""])
async def test_a_collection_name_that_no_table_can_have_is_refused(file: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="identifier"):
        await SqliteStore(f"sqlite:///{file}").open((Collection(name),))
