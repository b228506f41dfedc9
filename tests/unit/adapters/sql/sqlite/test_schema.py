"""The schema: it is made from what is declared, grows with it, and opening is quick,
repeatable and safe for many at once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.adapters.sql.declared import declaration
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import apply_all, fetch_record, key_of, put, record
from tests.support.depth import drawn
from tests.unit.adapters.sql.growing import (
    WIDE,
    an_open_store_goes_on_with_every_kind_of_call,
    fill,
    judge,
    open_in_processes,
    processes_at_once_add_fields_once,
)
from tests.unit.adapters.sql.sqlite.helping import opened, raw

PROCESSES = drawn(8, 3)


def _described(path: Path) -> tuple[dict[str, set[str]], dict[str, str], list[object]]:
    """The columns of each table in no order, its indexes, views and triggers, and what
    is told of it.
    """
    with raw(path) as connection:
        made = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql NOT NULL").fetchall()
        columns = {
            name: {str(c[1:]) for c in connection.execute(f"PRAGMA table_info({name})")}
            for kind, name, _ in made
            if kind == "table"
        }
        others = {name: " ".join(sql.split()) for kind, name, sql in made if kind != "table"}
        return (
            columns,
            others,
            connection.execute("SELECT name FROM memory_collections ORDER BY name").fetchall(),
        )


async def test_a_filled_file_grows_into_what_a_new_one_is_made_as(
    store: SqliteStore, file: Path, tmp_path: Path
) -> None:
    before = await fill(store)
    await store.close()
    grown, new = SqliteStore(f"sqlite:///{file}"), SqliteStore(f"sqlite:///{tmp_path / 'new.db'}")
    for each in (grown, new):
        await each.open(WIDE)
    await judge(grown, before)
    (columns, others, told), (new_columns, new_others, new_told) = (
        _described(file),
        _described(tmp_path / "new.db"),
    )
    assert (columns, told) == (new_columns, new_told)
    # The index that pages are read along spares rows from being read by the fields in
    # it; those that came later are not: it would be built anew.
    assert others.pop("ix_samples_created_at") != new_others.pop("ix_samples_created_at")
    several = "ix_samples_several_0"
    assert {name: sql for name, sql in others.items() if name != several} == {
        name: sql for name, sql in new_others.items() if name != several
    }
    assert several in others
    for each in (grown, new):
        await each.close()


async def test_an_order_that_an_earlier_program_took_the_note_of_away_is_noted_again(
    store: SqliteStore, file: Path
) -> None:
    """A program of before there were orders tells what it knows of the table, and
    leaves its index.
    """
    await fill(store)
    await store.close()
    for _ in range(2):
        later = SqliteStore(f"sqlite:///{file}")
        await later.open(WIDE)
        await later.close()
        indexed = _described(file)[1]
        assert "ix_more_samples_order_updated_at" in indexed
        with raw(file) as connection:
            told = dict(connection.execute("SELECT name, declaration FROM memory_collections").fetchall())
            assert '"orders":["updated_at"]' in told[MORE_SAMPLES.name]
            connection.execute(
                "UPDATE memory_collections SET declaration = ? WHERE name = ?",
                (declaration(MORE_SAMPLES), MORE_SAMPLES.name),
            )


async def test_a_file_tells_what_its_tables_were_made_for(store: SqliteStore, file: Path) -> None:
    with raw(file) as connection:
        assert dict(connection.execute("SELECT name, declaration FROM memory_collections")) == {
            c.name: declaration(c) for c in DECLARED
        }


@pytest.mark.thorough
def test_processes_open_a_new_file_at_once(file: Path) -> None:
    assert open_in_processes(SqliteStore, f"sqlite:///{file}", PROCESSES) == ["True\n"] * PROCESSES


@pytest.mark.thorough
async def test_processes_that_open_a_filled_file_with_fields_more_at_once_add_them_once(
    store: SqliteStore, file: Path
) -> None:
    await processes_at_once_add_fields_once(store, SqliteStore(f"sqlite:///{file}"), f"sqlite:///{file}")


async def test_a_store_that_was_open_goes_on_with_every_kind_of_call_when_the_tables_have_grown(
    store: SqliteStore, file: Path
) -> None:
    await an_open_store_goes_on_with_every_kind_of_call(store, SqliteStore(f"sqlite:///{file}"))


@pytest.mark.parametrize(
    ("version", "what_to_do"),
    [("9999", "upgrade"), ("0001", "export its records"), ("0002", "export its records")],
)
async def test_a_file_of_another_version_is_refused_by_name(
    store: SqliteStore, file: Path, version: str, what_to_do: str
) -> None:
    await store.close()
    with raw(file) as connection:
        connection.execute(
            "UPDATE memory_schema_version SET version_num = ? WHERE version_num NOT LIKE 'format %'",
            (version,),
        )
    with pytest.raises(ConfigError, match=f"{version}.*{what_to_do}"):
        await opened(file)


async def test_a_collection_of_someone_else_gets_a_table_of_its_own(file: Path) -> None:
    notes = Collection(
        "notes",
        (
            Field("kind", FieldType.TEXT, True),
            Field("version_label", FieldType.TAGS, True),
            Field("body", FieldType.BYTES),
        ),
        (TextPart("text", 1.0),),
    )
    for _ in range(2):
        store = SqliteStore(f"sqlite:///{file}")
        await store.open((notes, SAMPLES))
        note = record(
            fields={"kind": "a", "version_label": ("x", "y"), "body": b"\0\xff"}, texts={"text": "words"}
        )
        await apply_all(store, put(note, collection=notes))
        assert (await fetch_record(store, collection=notes)).fields == note.fields
        await store.close()


async def test_a_collection_declared_otherwise_than_its_table_was_is_refused(
    store: SqliteStore, file: Path
) -> None:
    await store.close()
    other = SqliteStore(f"sqlite:///{file}")
    with pytest.raises(ConfigError, match="samples"):
        await other.open((Collection("samples", (Field("colour", FieldType.TEXT),)),))
    await other.open(DECLARED)
    assert await other.get(SAMPLES, [key_of(1)]) == [None]
    await other.close()


@pytest.mark.parametrize("name", ["memory_partitions", "drop table", "sqlite_things", ""])
async def test_a_collection_name_that_no_table_can_have_is_refused(file: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="identifier"):
        await SqliteStore(f"sqlite:///{file}").open((Collection(name),))
