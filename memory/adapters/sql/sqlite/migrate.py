"""Making the schema ready at open: one look when it is current, a lock when it is not.

A new file gets the schema as it is declared today; Alembic, which takes longer to load than all else together, brings older ones here. A test
holds both ways to the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from memory.adapters.sql.declared import declaration, undeclared
from memory.adapters.sql.sqlite.schema import system_tables, tables_of
from memory.adapters.sql.sqlite.session import Session
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection

HEAD = "0001"
"""The newest migration in `migrations/versions`."""
VERSION_TABLE = "memory_schema_version"

_REVISION = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608
_DECLARED = "SELECT name, declaration FROM memory_collections"


def make_ready(session: Session, store: str, collections: Sequence[Collection], create_words: Callable[[sa.Connection, Collection], None]) -> None:
    """Bring the schema to this version and make the tables these collections need. Many processes may do so at once."""
    for collection in collections:
        tables_of(collection)  # refuses a name that no table can have
    if _revision(session) == HEAD and not _missing(session, store, collections):
        return
    session.run("BEGIN IMMEDIATE")
    try:
        if not _has_versions(session):
            _create(session)
        elif (found := _revision(session)) != HEAD:
            _migrate(session, store, found)
        for collection in _missing(session, store, collections):
            tables_of(collection).table.create(session.connection)
            create_words(session.connection, collection)
            session.run("INSERT INTO memory_collections (name, declaration, indexed_to) VALUES (?, ?, 0)", (collection.name, declaration(collection)))
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
