"""Making the schema ready at open: one look when it is current; Alembic, in one transaction and under a lock, when it is not.

The lock is an advisory one that ends with the transaction: many processes may open an empty database at once, also through a PgBouncer in
transaction mode. PostgreSQL's DDL is transactional: a migration is there as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from memory.adapters.sql.declared import declaration, undeclared
from memory.adapters.sql.postgresql.config import PostgresConfig
from memory.adapters.sql.postgresql.connection import Connection, connect
from memory.adapters.sql.postgresql.extension import AVAILABLE, CREATE, INSTALLED, add_column
from memory.adapters.sql.postgresql.schema import table_of
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection

HEAD = "0002"
"""The newest migration in `migrations/versions`."""
VERSION_TABLE = "memory_schema_version"

_EMBEDDED = "SELECT table_name FROM information_schema.columns WHERE table_schema = $1 AND column_name = 'embedding'"


@dataclass(frozen=True, slots=True)
class Found:
    """What a look at the database found. `namespace` is where pgvector is, empty where it is not installed."""

    revision: str | None
    declared: dict[str, str]
    embedded: frozenset[str]
    namespace: str
    extension: str
    """The extension's version, or why it is not used."""
    can_be_installed: bool


async def make_ready(connection: Connection, config: PostgresConfig, store: str, collections: Sequence[Collection]) -> Found:
    """Bring the schema to this version and make the tables these collections need. Many processes may do so at once."""
    for collection in collections:
        table_of(collection, config.schema)  # refuses a name that no table can have
    found = await _look(connection, config.schema)
    if _is_ready(found, store, collections):
        return found
    problem = await _change(config, store, collections)
    found = await _look(connection, config.schema)
    if problem and not found.namespace:
        return Found(found.revision, found.declared, found.embedded, "", problem, found.can_be_installed)
    return found


async def _look(connection: Connection, schema: str) -> Found:
    qualified = f'"{schema}"'
    revision, declared = None, {}
    if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{qualified}.{VERSION_TABLE}"):
        revision = await connection.fetchval(f"SELECT version_num FROM {qualified}.{VERSION_TABLE}")  # noqa: S608
        if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{qualified}.memory_collections"):
            declared = dict(await connection.fetch(f"SELECT name, declaration FROM {qualified}.memory_collections"))  # noqa: S608
    embedded = frozenset([name for (name,) in await connection.fetch(_EMBEDDED, schema)])
    installed = await connection.fetchrow(INSTALLED)
    available = installed is None and await connection.fetchval(AVAILABLE) is not None
    told = "the extension vector is not available on this server" if not available else "the extension vector could not be created"
    namespace, version = installed or ("", told)
    return Found(revision, declared, embedded, namespace, version, available)


def _is_ready(found: Found, store: str, collections: Sequence[Collection]) -> bool:
    if found.revision != HEAD or undeclared(found.declared, store, collections, "schema"):
        return False
    return not found.can_be_installed and not _unembedded(found, collections)


def _unembedded(found: Found, collections: Sequence[Collection]) -> list[Collection]:
    """The collections whose vectors the extension could hold, but has no column for."""
    return [c for c in collections if found.namespace and c.vector and c.name not in found.embedded]


# -- changes ----------------------------------------------------------------------------------------------------------


async def _change(config: PostgresConfig, store: str, collections: Sequence[Collection]) -> str:
    """Change what is to be changed; why the extension could not be created, where that was tried and failed."""
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: connect(config), poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            await connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _lock_key(config.schema)})
            problem = await connection.run_sync(_change_locked, config.schema, store, collections)
            await connection.commit()
            return problem
    finally:
        await engine.dispose()


def _lock_key(schema: str) -> int:
    return int.from_bytes(blake2b(f"memory-tiers:{schema}".encode(), digest_size=8).digest(), "big", signed=True)


def _change_locked(connection: sa.Connection, schema: str, store: str, collections: Sequence[Collection]) -> str:
    if not connection.execute(sa.text("SELECT 1 FROM pg_namespace WHERE nspname = :name"), {"name": schema}).first():
        connection.execute(sa.schema.CreateSchema(schema))
    _migrate(connection, schema, store)
    registry = sa.table("memory_collections", sa.column("name"), sa.column("declaration"), schema=schema)
    rows = connection.execute(sa.select(registry.c.name, registry.c.declaration))
    declared = {str(row.name): str(row.declaration) for row in rows}
    for collection in undeclared(declared, store, collections, "schema"):
        table_of(collection, schema).create(connection)
        connection.execute(registry.insert().values(name=collection.name, declaration=declaration(collection)))
    return _install_extension(connection, schema, collections)


def _migrate(connection: sa.Connection, schema: str, store: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    found = None
    if connection.execute(sa.text("SELECT to_regclass(:name)"), {"name": f'"{schema}".{VERSION_TABLE}'}).scalar():
        found = connection.execute(sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE, schema=schema))).scalar()
    if found == HEAD:
        return
    config = Config()
    config.set_main_option("script_location", "memory.adapters.sql.postgresql:migrations")
    config.attributes["connection"] = connection
    config.attributes["schema"] = schema
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise ConfigError(
            f"store '{store}': the schema '{schema}' is at version {found}, which this version of memory-tiers does not know (it knows {HEAD}); "
            "upgrade memory-tiers"
        )
    command.upgrade(config, "head")


def _install_extension(connection: sa.Connection, schema: str, collections: Sequence[Collection]) -> str:
    """Create pgvector where it may be created, and give tables its column. Without the right to do so searches by meaning are off."""
    if not connection.execute(sa.text(INSTALLED)).first():
        if not connection.execute(sa.text(AVAILABLE)).first():
            return ""
        try:
            with connection.begin_nested():
                connection.execute(sa.text(CREATE))
        except SQLAlchemyError as exc:
            return f"the extension vector could not be created ({type(exc).__name__}); ask an administrator for CREATE EXTENSION vector"
    found = connection.execute(sa.text(INSTALLED)).first()
    if found is not None:
        for collection in collections:
            for statement in add_column(schema, collection.name, found[0]) if collection.vector else ():
                connection.execute(sa.text(statement))
    return ""
