"""The schema: it is made from what is declared, grows with it, and opening is quick,
repeatable and safe for many at once.
"""

from __future__ import annotations

import re

import pytest

from memory.adapters.sql.declared import declaration
from memory.adapters.sql.mysql.flavour import MARIADB
from memory.adapters.sql.mysql.schema import table_of
from memory.adapters.sql.mysql.store import MySqlStore
from memory.adapters.sql.naming import TableNames
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import apply_all, fetch_record, hit_ids, id_of, put, query_ids, record
from memory.ports.query import Eq, In
from tests.support.depth import drawn
from tests.support.mysql_servers import MySqlServer
from tests.unit.adapters.sql.growing import (
    WIDE,
    an_open_store_goes_on_with_every_kind_of_call,
    fill,
    judge,
    open_in_processes,
    processes_at_once_add_fields_once,
)
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER, Raw

pytestmark = ON_SERVER


async def _described(server: MySqlServer, database: str) -> dict[str, str]:
    """Every table as the server itself describes it, its keys in order."""
    tables = await server.run_sql(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", database
    )
    described = {}
    for (name,) in tables:
        ((_, sql),) = await server.run_sql(f"SHOW CREATE TABLE `{name}`", database=database)
        described[name] = "\n".join(
            sorted(line.strip(" ,") for line in re.sub(r" AUTO_INCREMENT=\d+", "", sql).splitlines())
        )
    return described


FOREIGN = (
    "CREATE TABLE memory_settings (tenant VARCHAR(200), id INT, scope VARCHAR(200), version INT, theme TEXT,"
    " PRIMARY KEY (id))"
)


@pytest.mark.parametrize(
    "table",
    [FOREIGN, "CREATE TABLE memory_samples (id INT)", "CREATE TABLE memory_words_samples (word TEXT)"],
)
async def test_a_table_of_another_program_is_refused_before_anything_is_made(
    server: MySqlServer, database: str, table: str
) -> None:
    await server.run_sql(table, database=database)
    before = await _described(server, database)
    name = table.split()[2]
    collections = (*DECLARED, Collection("settings"))
    with pytest.raises(
        ConfigError, match=f"has a table '{name}' that is not of this program.*nothing was created"
    ):
        await MySqlStore(server.url(database)).open(collections)
    assert await _described(server, database) == before


async def test_a_filled_database_grows_into_what_a_new_one_is_made_as(
    store: MySqlStore, server: MySqlServer, database: str
) -> None:
    before = await fill(store)
    other = f"{database}_new"
    await server.fresh(other)
    grown, new = MySqlStore(server.url(database)), MySqlStore(server.url(other))
    for each in (grown, new):
        await each.open(WIDE)
    assert await _described(server, database) == await _described(server, other)
    await judge(grown, before)
    for each in (grown, new):
        await each.close()
    await server.drop(other)


async def test_processes_that_open_a_filled_database_with_fields_more_at_once_add_them_once(
    store: MySqlStore, server: MySqlServer, database: str
) -> None:
    await processes_at_once_add_fields_once(store, MySqlStore(server.url(database)), server.url(database))


async def test_a_store_that_was_open_goes_on_with_every_kind_of_call_when_the_tables_have_grown(
    store: MySqlStore, server: MySqlServer, database: str
) -> None:
    await an_open_store_goes_on_with_every_kind_of_call(store, MySqlStore(server.url(database)))


@pytest.mark.parametrize("lost", ["the registry", "an index and the registry"])
async def test_an_opening_completes_what_a_crash_in_the_middle_of_adding_fields_left(
    store: MySqlStore, server: MySqlServer, database: str, raw: Raw, lost: str
) -> None:
    """The statement that adds columns is whole; indexes come after it, and what is told
    of the table last.
    """
    before = await fill(store)
    ((told,),) = await raw("SELECT declaration FROM memory_collections WHERE name = 'samples'")
    grown = MySqlStore(server.url(database))
    await grown.open(WIDE)
    await grown.close()
    described = await _described(server, database)
    await raw("UPDATE memory_collections SET declaration = %s WHERE name = 'samples'", told)
    if lost != "the registry":
        await raw("DROP INDEX ix_samples_field_colour ON memory_samples")
    again = MySqlStore(server.url(database))
    await again.open(WIDE)
    assert await _described(server, database) == described
    await judge(again, before)
    await again.close()


async def test_the_registry_is_what_is_declared(store: MySqlStore, raw: Raw) -> None:
    rows = await raw("SELECT name, declaration FROM memory_collections")
    assert {bytes(name).decode(): said for name, said in rows} == {c.name: declaration(c) for c in DECLARED}


async def test_processes_open_an_empty_database_at_once(server: MySqlServer, database: str) -> None:
    lines = open_in_processes(MySqlStore, server.url(database), drawn(8, 3))
    assert all(line.startswith("True") for line in lines), lines


@pytest.mark.parametrize("lost", ["a table", "an index", "the registry", "the version"])
async def test_an_opening_completes_what_a_crash_in_the_middle_of_the_first_left(
    server: MySqlServer, database: str, raw: Raw, lost: str
) -> None:
    """Each statement that makes something commits by itself: the version comes last."""
    whole = MySqlStore(server.url(database))
    await whole.open(DECLARED)
    await apply_all(whole, put(record(1, texts={"content": "lantern"})))
    await whole.close()
    before = await _described(server, database)
    await raw("DELETE FROM memory_schema_version")
    if lost == "a table":
        await raw("DROP TABLE memory_plain")
    elif lost == "an index":
        await raw("DROP INDEX ix_samples_created_at ON memory_samples")
    elif lost == "the registry":
        await raw("DELETE FROM memory_collections")
    again = MySqlStore(server.url(database))
    await again.open(DECLARED)
    assert await _described(server, database) == before
    assert (await again.check()).ok
    assert await hit_ids(again, "lantern") == {id_of(1)}
    await again.close()


@pytest.mark.parametrize(("version", "what_to_do"), [("9999", "upgrade"), ("0001", "export its records")])
async def test_a_schema_of_another_version_is_refused_by_name(
    store: MySqlStore, server: MySqlServer, database: str, raw: Raw, version: str, what_to_do: str
) -> None:
    await raw(
        "UPDATE memory_schema_version SET version_num = %s WHERE version_num NOT LIKE 'format %%'", version
    )
    with pytest.raises(ConfigError, match=f"{version}.*{what_to_do}"):
        await MySqlStore(server.url(database)).open(DECLARED)
    assert not (await store.check()).ok


async def test_a_collection_of_someone_else_gets_tables_of_its_own(
    server: MySqlServer, database: str
) -> None:
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
        fields = {
            "kind": True,
            "version_label": ("x", "y"),
            "body": b"\0\xff",
            "words": "w",
            "unindexed": 0.5,
        }
        note = record(fields=fields, texts={"text": "words"})
        await apply_all(store, put(note, collection=notes))
        assert (await fetch_record(store, collection=notes)).fields == note.fields
        for part in (
            Eq("kind", True),
            Eq("words", "w"),
            In("words", ("v", "w")),
            Eq("body", b"\0\xff"),
            Eq("unindexed", 0.5),
        ):
            assert await query_ids(store, part=part, collection=notes) == [id_of(1)]
        await store.close()


async def test_no_collection_shares_a_table_with_the_words_of_another(
    server: MySqlServer, database: str
) -> None:
    notes, words = [Collection(name, (), (TextPart("content", 1.0),)) for name in ("notes", "notes_words")]
    store = MySqlStore(server.url(database))
    await store.open((notes, words))
    await apply_all(
        store,
        put(record(1, texts={"content": "lantern"}), collection=notes),
        put(record(2, texts={"content": "candle"}), collection=words),
    )
    assert (await fetch_record(store, 1, collection=notes)).texts == {"content": "lantern"}
    assert (await fetch_record(store, 2, collection=words)).texts == {"content": "candle"}
    await store.close()


async def test_a_collection_declared_otherwise_than_its_table_was_is_refused(
    store: MySqlStore, server: MySqlServer, database: str
) -> None:
    other = MySqlStore(server.url(database))
    with pytest.raises(ConfigError, match="samples"):
        await other.open((Collection("samples", (Field("colour", FieldType.TEXT),)),))
    await other.open(DECLARED)
    await other.close()


@cells("name", ["memory_partitions", "drop table", "", "x" * 41, "größe"], shared=True)
def test_a_collection_name_that_no_table_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="plain ASCII identifier"):
        table_of(Collection(name), MARIADB.collation, TableNames())
