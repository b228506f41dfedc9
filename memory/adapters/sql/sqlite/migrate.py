"""Preparing the schema at open.

A current schema takes one look, any other one SQLite's lock of writers. Many processes
may do so at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from memory.adapters.sql.columns import checksum_column
from memory.adapters.sql.declared import Comparison
from memory.adapters.sql.migrate import Schema
from memory.adapters.sql.naming import BARE_FORM, IN_A_FILE, form_and_format, format_row
from memory.adapters.sql.sqlite.audit import reindex
from memory.adapters.sql.sqlite.errors import is_of_a_table
from memory.adapters.sql.sqlite.log import mark_commit
from memory.adapters.sql.sqlite.schema import system_tables, tables_of, words_table
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import table_of
from memory.ports.collections import Collection

_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
_VERSIONS = f"SELECT version_num FROM {IN_A_FILE.version}"  # noqa: S608
_DECLARED = f"SELECT name, declaration FROM {IN_A_FILE.registry}"  # noqa: S608
_DOUBTED = f"SELECT name FROM {IN_A_FILE.registry} WHERE indexed_to IS NOT NULL"  # noqa: S608


class SqliteSchema(Schema):
    forms = (BARE_FORM,)

    def __init__(self, store: str) -> None:
        super().__init__(store, "the file", "file", IN_A_FILE)

    def system(self) -> Sequence[sa.Table]:
        return _system()

    def of(self, collection: Collection) -> Sequence[sa.Table]:
        tables = tables_of(collection)
        return [tables.table] if tables.words is None else [tables.table, tables.words]

    def _make(self, connection: sa.Connection, table: sa.Table, there: Sequence[str]) -> None:
        if table.name not in there:
            driver = connection.connection.cursor()
            for statement in _creation(table):
                driver.execute(statement)


@cache
def _system() -> Sequence[sa.Table]:
    metadata = sa.MetaData()
    system_tables(metadata)
    return metadata.sorted_tables


@lru_cache(maxsize=512)
def _creation(table: sa.Table) -> Sequence[str]:
    """Return the statements that create the table with its indexes.

    They are kept for the next new file: compiling them takes longer than running them.
    """
    statements: list[str] = []

    def keep(ddl: Any, *_: object, **__: object) -> None:
        statements.append(str(ddl.compile(dialect=sqlite.dialect())))

    table.create(sa.create_mock_engine("sqlite://", keep), checkfirst=False)
    return statements


def make_ready(
    session: Session, schema: SqliteSchema, collections: Sequence[Collection]
) -> Mapping[str, Collection]:
    """Bring the file to the form that these collections need.

    This also rebuilds a word index that is lost, or that a write found damaged. Returns
    the collections as their tables are then.
    """
    found = look(session, schema, collections)
    if found is None or not found.is_ready or _collections_to_reindex(session, collections):
        session.run("BEGIN IMMEDIATE")
        try:
            found = schema.change(session.connection, collections)
            for collection in _collections_to_reindex(session, collections):
                _try_reindex(session, found.tables[collection.name])
            mark_commit(session)
            session.run("COMMIT")
        except BaseException:
            session.roll_back()
            raise
    return found.tables


def look(session: Session, schema: SqliteSchema, collections: Sequence[Collection]) -> Comparison | None:
    """Compare the existing tables; None where there are none yet."""
    if session.row(_THERE, (IN_A_FILE.version,)) is None:
        return None
    form, noted = versions(session)
    return schema.compare(str(form), noted, dict(session.rows(_DECLARED)), collections)


def versions(session: Session) -> tuple[str | None, str | None]:
    """Return the form of the tables, and the note of the format."""
    return form_and_format([row for (row,) in session.rows(_VERSIONS)])


def swap_format(session: Session, before: str | None, after: str) -> bool:
    """Replace the note of the format if it is still `before`.

    Call it in a write transaction.
    """
    if versions(session)[1] != before:
        return False
    if before is None:
        session.run(f"INSERT INTO {IN_A_FILE.version} (version_num) VALUES (?)", (format_row(after),))  # noqa: S608
    else:
        session.run(
            f"UPDATE {IN_A_FILE.version} SET version_num = ? WHERE version_num = ?",  # noqa: S608
            (format_row(after), format_row(before)),
        )
    return True


def tables_there(
    session: Session, schema: SqliteSchema, collections: Sequence[Collection]
) -> Mapping[str, Collection]:
    """Return the collections as their tables are now, after the file was opened."""
    found = look(session, schema, collections)
    return {} if found is None else found.tables


def complete(session: Session, schema: SqliteSchema, collections: Sequence[Collection]) -> None:
    """Let a session that only reads see tables in the form for writing.

    A file of an earlier release lacks fields and collections. Views of this session
    replace such tables: no record has a value there.
    """
    found = look(session, schema, collections)
    if found is None:
        return
    for growth in found.grown:
        was, now = schema.of(growth.was)[0], schema.of(growth.collection)[0]
        there = {c.name: f'"{c.name}"' for c in was.c} | {
            checksum_column(growth.collection): f'"{checksum_column(growth.was)}"'
        }
        columns = ", ".join([f'{there.get(c.name, "NULL")} AS "{c.name}"' for c in now.c])
        session.run(f"CREATE TEMP VIEW {now.name} AS SELECT {columns} FROM main.{now.name}")  # noqa: S608
    for table in [table for collection in found.new for table in schema.of(collection)]:
        columns = ", ".join([f'NULL AS "{c.name}"' for c in table.c])
        session.run(f"CREATE TEMP VIEW {table.name} AS SELECT {columns} WHERE 0")


def _collections_to_reindex(session: Session, collections: Sequence[Collection]) -> list[Collection]:
    doubted = {name for (name,) in session.rows(_DOUBTED)}
    return [c for c in collections if c.texts and (c.name in doubted or _lacks_word_index(session, c))]


def _lacks_word_index(session: Session, collection: Collection) -> bool:
    """Whether the word index is missing, or empty though records have words.

    An index that cannot be read is left to the audit.
    """
    words = words_table(collection)
    if session.row(_THERE, (words,)) is None:
        return True
    try:
        if session.row(f"SELECT 1 FROM {words} LIMIT 1") is not None:  # noqa: S608
            return False
        return session.row(f"SELECT 1 FROM {collection.name} WHERE length > 0 LIMIT 1") is not None  # noqa: S608
    except sqlite3.Error as exc:
        if not is_of_a_table(exc):
            raise
        return False


def _try_reindex(session: Session, collection: Collection) -> None:
    """Rebuild the word index if possible.

    If the file's damage does not allow it, the records are served all the same.
    """
    session.run("SAVEPOINT anew")
    try:
        reindex(session, table_of(session, collection))
    except (sqlite3.Error, sa.exc.DBAPIError) as exc:
        if not is_of_a_table(exc):
            raise
        session.run("ROLLBACK TO anew")
    session.run("RELEASE anew")
