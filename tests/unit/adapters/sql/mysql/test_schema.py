"""The schema: what migrations make is what is declared, and opening is quick, repeatable and safe for many at once."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import mysql

from memory.adapters.sql.declared import declaration
from memory.adapters.sql.mysql.flavour import MARIADB, MYSQL
from memory.adapters.sql.mysql.migrate import HEAD, VERSION_TABLE
from memory.adapters.sql.mysql.schema import collection_table, collection_words, system_tables, table_of
from memory.adapters.sql.mysql.store import MySqlStore
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import asked, done, hit_ids, id_of, live, put, record
from memory.ports.query import Eq, In
from tests.support import mysql_servers
from tests.support.mysql_servers import MySqlServer
from tests.support.processes import finished, started
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER, Raw

pytestmark = ON_SERVER

OPEN = """
import asyncio, sys
from memory.adapters.sql.mysql.store import MySqlStore
from memory.ports.contract.collections import DECLARED
async def main():
    store = MySqlStore(sys.argv[1])
    await store.open(DECLARED)
    print((await store.check()).ok, "alembic" in sys.modules)
    await store.close()
asyncio.run(main())
"""


def test_the_newest_migration_is_the_one_that_open_looks_for() -> None:
    config = Config()
    config.set_main_option("script_location", "memory.adapters.sql.mysql:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


async def _described(server: MySqlServer, database: str) -> dict[str, str]:
    """Every table as the server itself describes it, its keys in order."""
    tables = await server.run_sql("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", database)
    described = {}
    for (name,) in tables:
        ((_, sql),) = await server.run_sql(f"SHOW CREATE TABLE `{name}`", database=database)
        described[name] = "\n".join(sorted(line.strip(" ,") for line in re.sub(r" AUTO_INCREMENT=\d+", "", sql).splitlines()))
    return described


async def test_the_migrated_schema_is_the_declared_one(store: MySqlStore, server: MySqlServer, database: str) -> None:
    declared = sa.MetaData()
    collation = (MARIADB if mysql_servers.product() == "MariaDB" else MYSQL).collation
    system_tables(declared, collation)
    for collection in DECLARED:
        collection_table(declared, collection, collation)
        if collection.texts:
            collection_words(declared, collection)
    other = f"{database}_declared"
    await server.fresh(other)
    for table in declared.sorted_tables:
        await server.run_sql(str(sa.schema.CreateTable(table).compile(dialect=mysql.dialect())), database=other)
        for index in table.indexes:
            await server.run_sql(str(sa.schema.CreateIndex(index).compile(dialect=mysql.dialect())), database=other)
    migrated = await _described(server, database)
    del migrated[VERSION_TABLE]
    assert migrated == await _described(server, other)
    await server.drop(other)


async def test_the_registry_is_what_is_declared(store: MySqlStore, raw: Raw) -> None:
    rows = await raw("SELECT name, declaration FROM memory_collections")
    assert {bytes(name).decode(): said for name, said in rows} == {c.name: declaration(c) for c in DECLARED}


async def test_eight_processes_open_an_empty_database_at_once(server: MySqlServer, database: str) -> None:
    lines = finished([started(OPEN, server.url(database)) for _ in range(8)])
    assert all(line.startswith("True") for line in lines), lines
    assert finished([started(OPEN, server.url(database))]) == ["True False\n"], "opening a current schema does not load Alembic"


@pytest.mark.parametrize("lost", ["a table", "an index", "the registry", "the version"])
async def test_an_opening_completes_what_a_crash_in_the_middle_of_a_migration_left(server: MySqlServer, database: str, raw: Raw, lost: str) -> None:
    """Each statement of a migration commits by itself: the version comes last."""
    whole = MySqlStore(server.url(database))
    await whole.open(DECLARED)
    await done(whole, put(record(1, texts={"content": "lantern"})))
    await whole.close()
    before = await _described(server, database)
    await raw("DELETE FROM memory_schema_version")
    if lost == "a table":
        await raw("DROP TABLE memory_quarantine")
    elif lost == "an index":
        await raw("DROP INDEX ix_samples_created_at ON samples")
        await raw("DELETE FROM memory_collections WHERE name = 'samples'")  # which says that a table is made whole
    elif lost == "the registry":
        await raw("DELETE FROM memory_collections")
    again = MySqlStore(server.url(database))
    await again.open(DECLARED)
    assert await _described(server, database) == before
    assert (await again.check()).ok
    assert await hit_ids(again, "lantern") == {id_of(1)}
    await again.close()


async def test_a_schema_of_a_later_version_is_refused_by_name(store: MySqlStore, server: MySqlServer, database: str, raw: Raw) -> None:
    await raw("UPDATE memory_schema_version SET version_num = '9999'")
    with pytest.raises(ConfigError, match="9999"):
        await MySqlStore(server.url(database)).open(DECLARED)
    assert not (await store.check()).ok


async def test_a_collection_of_someone_else_gets_tables_of_its_own(server: MySqlServer, database: str) -> None:
    notes = Collection(
        "notes",
        (
            Field("kind", FieldType.BOOLEAN, True),
            Field("version_label", FieldType.TAGS, True),
            Field("body", FieldType.BYTES),
            Field("words", FieldType.TEXT, True),
            Field("unindexed", FieldType.REAL, True),
        ),
        (TextPart("text", 1.0),),
    )
    for _ in range(2):
        store = MySqlStore(server.url(database))
        await store.open((notes, SAMPLES))
        fields = {"kind": True, "version_label": ("x", "y"), "body": b"\0\xff", "words": "w", "unindexed": 0.5}
        note = record(fields=fields, texts={"text": "words"})
        await done(store, put(note, collection=notes))
        assert (await live(store, collection=notes)).fields == note.fields
        for part in (Eq("kind", True), Eq("kind", 1), Eq("words", "w"), In("words", ("v", "w")), Eq("body", b"\0\xff"), Eq("unindexed", 0.5)):
            assert await asked(store, part=part, collection=notes) == [id_of(1)]
        await store.close()


async def test_no_collection_shares_a_table_with_the_words_of_another(server: MySqlServer, database: str) -> None:
    notes, words = [Collection(name, (), (TextPart("content", 1.0),)) for name in ("notes", "notes_words")]
    store = MySqlStore(server.url(database))
    await store.open((notes, words))
    await done(store, put(record(1, texts={"content": "lantern"}), collection=notes), put(record(2, texts={"content": "candle"}), collection=words))
    assert (await live(store, 1, collection=notes)).texts == {"content": "lantern"}
    assert (await live(store, 2, collection=words)).texts == {"content": "candle"}
    await store.close()


async def test_a_collection_declared_otherwise_than_its_table_was_is_refused(store: MySqlStore, server: MySqlServer, database: str) -> None:
    other = MySqlStore(server.url(database))
    with pytest.raises(ConfigError, match="samples"):
        await other.open((Collection("samples", (Field("colour", FieldType.TEXT),)),))
    await other.open(DECLARED)
    await other.close()


@pytest.mark.parametrize("name", ["memory_partitions", "drop table", "", "x" * 41, "größe"])
def test_a_collection_name_that_no_table_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="plain ASCII identifier"):
        table_of(Collection(name), MARIADB.collation)
