"""Making the schema ready at open: one look when it is current, a lock when it is not.

A new file gets the schema as it is declared today; Alembic, which takes longer to load than all else together, brings older ones here. A test
holds both ways to the same result.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import sqlalchemy as sa

from memory.adapters.sql.declared import declaration, undeclared
from memory.adapters.sql.sqlite.errors import is_of_a_table
from memory.adapters.sql.sqlite.indexing import create_words, index_anew
from memory.adapters.sql.sqlite.schema import system_tables, tables_of
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.shelf import shelf_of
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection

HEAD = "0003"
"""The newest migration in `migrations/versions`."""
VERSION_TABLE = "memory_schema_version"

_REVISION = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608
_DECLARED = "SELECT name, declaration FROM memory_collections"
_DOUBTED = "SELECT name FROM memory_collections WHERE indexed_to IS NOT NULL"


def make_ready(session: Session, store: str, collections: Sequence[Collection]) -> None:
    """Bring the schema to this version, make the tables these collections need, and index words anew where a write found their index damaged.

    Many processes may do so at once.
    """
    for collection in collections:
        tables_of(collection)  # refuses a name that no table can have
    if _revision(session) == HEAD and not _missing(session, store, collections) and not _doubted(session, collections):
        return
    session.run("BEGIN IMMEDIATE")
    try:
        if not _has_versions(session):
            _create(session)
        elif (found := _revision(session)) != HEAD:
            _migrate(session, store, found)
        for collection in _missing(session, store, collections):
            tables_of(collection).table.create(session.connection)
            create_words(session, collection)
            session.run("INSERT INTO memory_collections (name, declaration) VALUES (?, ?)", (collection.name, declaration(collection)))
        for collection in _doubted(session, collections):
            _index_anew(session, collection)
        session.run("COMMIT")
    except BaseException:
        session.run("ROLLBACK")
        raise


def _has_versions(session: Session) -> bool:
    return session.row("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (VERSION_TABLE,)) is not None


def _create(session: Session) -> None:
    """The adapter's own tables in a file that has none of them, and the version that Alembic will go on from."""
    metadata = sa.MetaData()
    system_tables(metadata)
    key = sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc")
    sa.Table(VERSION_TABLE, metadata, sa.Column("version_num", sa.String(32), nullable=False), key)
    metadata.create_all(session.connection, checkfirst=False)
    session.run(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (?)", (HEAD,))  # noqa: S608


def _revision(session: Session) -> str | None:
    if not _has_versions(session):
        return None
    row = session.row(_REVISION)
    return str(row[0]) if row else None


def _missing(session: Session, store: str, collections: Sequence[Collection]) -> list[Collection]:
    return undeclared(dict(session.rows(_DECLARED)), store, collections, "file")


def _doubted(session: Session, collections: Sequence[Collection]) -> list[Collection]:
    doubted = {name for (name,) in session.rows(_DOUBTED)}
    return [c for c in collections if c.name in doubted and c.texts]


def _index_anew(session: Session, collection: Collection) -> None:
    """Where the file's damage does not allow it, the records are served all the same."""
    session.run("SAVEPOINT anew")
    try:
        index_anew(session, shelf_of(collection))
    except (sqlite3.Error, sa.exc.DBAPIError) as exc:
        if not is_of_a_table(exc):
            raise
        session.run("ROLLBACK TO anew")
    session.run("RELEASE anew")


def _migrate(session: Session, store: str, found: str | None) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "memory.adapters.sql.sqlite:migrations")
    config.attributes["connection"] = session.connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise ConfigError(
            f"store '{store}': the schema is at version {found}, which this version of memory-tiers does not know (it knows {HEAD}); "
            "upgrade memory-tiers"
        )
    command.upgrade(config, "head")
