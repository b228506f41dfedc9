"""Making the schema ready at open: one look when it is current; Alembic, under a lock, when it is not.

The lock is GET_LOCK's, which ends with its connection: many processes may open an empty database at once. The servers' DDL is not transactional:
each step is repeatable (`steps`), and what says that it is done is written last, so a crash in the middle leaves what the next opening completes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from memory.adapters.sql.declared import declaration, undeclared
from memory.adapters.sql.mysql.config import MySqlConfig
from memory.adapters.sql.mysql.connection import Connection, dial
from memory.adapters.sql.mysql.flavour import Flavour
from memory.adapters.sql.mysql.schema import OPTIONS, table_of
from memory.adapters.sql.mysql.steps import made
from memory.domain.errors import ConfigError, StoreTimeout
from memory.ports.collections import Collection

HEAD = "0002"
"""The newest migration in `migrations/versions`."""
VERSION_TABLE = "memory_schema_version"
PATIENCE = 60
"""Seconds to wait for another process that is making the schema ready."""

_THERE = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN (?, 'memory_collections')"


async def make_ready(connection: Connection, config: MySqlConfig, store: str, flavour: Flavour, collections: Sequence[Collection]) -> None:
    """Bring the schema to this version and make the tables these collections need. Many processes may do so at once."""
    for collection in collections:
        table_of(collection, flavour.collation)  # refuses a name that no table can have
    if await connection.fetchval(_THERE, VERSION_TABLE) == 2:
        revision = await connection.fetchval(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608
        rows = await connection.fetch("SELECT name, declaration FROM memory_collections")
        declared = {name.decode(): text.decode() for name, text in rows}
        if revision == HEAD.encode() and not undeclared(declared, store, collections, "database"):
            return
    await _change(config, store, flavour, collections)


async def _change(config: MySqlConfig, store: str, flavour: Flavour, collections: Sequence[Collection]) -> None:
    patience = {"read_timeout": PATIENCE + config.command_timeout}  # for one step
    connect = partial(dial, config, use_unicode=True, autocommit=False, **patience)
    engine = create_async_engine("mysql+asyncmy://", async_creator=connect, poolclass=NullPool)
    name = "memory-tiers:" + blake2b(config.database.encode(), digest_size=16).hexdigest()  # locks are the server's, not a database's
    try:
        async with engine.connect() as connection:
            got = await connection.scalar(sa.text("SELECT GET_LOCK(:name, :patience)"), {"name": name, "patience": PATIENCE})
            if not got:
                raise StoreTimeout(store, "another process has been changing the schema for too long; try again")
            await connection.run_sync(_change_locked, config.database, store, flavour, collections)
            await connection.commit()
            await connection.execute(sa.text("SELECT RELEASE_LOCK(:name)"), {"name": name})
    finally:
        await engine.dispose()


def _change_locked(connection: sa.Connection, database: str, store: str, flavour: Flavour, collections: Sequence[Collection]) -> None:
    _migrate(connection, database, store, flavour)
    registry = sa.table("memory_collections", sa.column("name"), sa.column("declaration"))
    declared = {_text(name): _text(said) for name, said in connection.execute(sa.select(registry.c.name, registry.c.declaration))}
    for collection in undeclared(declared, store, collections, "database"):
        for table in table_of(collection, flavour.collation).metadata.sorted_tables:
            made(connection, table)
        connection.execute(registry.insert().values(name=collection.name, declaration=declaration(collection)))


def _migrate(connection: sa.Connection, database: str, store: str, flavour: Flavour) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    found = None
    if sa.inspect(connection).has_table(VERSION_TABLE):
        found = connection.execute(sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE))).scalar()
    if found == HEAD:
        return
    config = Config()
    config.set_main_option("script_location", "memory.adapters.sql.mysql:migrations")
    config.attributes["connection"] = connection
    config.attributes["collation"] = flavour.collation
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise ConfigError(
            f"store '{store}': the database '{database}' is at version {found}, which this version of memory-tiers does not know (it knows {HEAD}); "
            "upgrade memory-tiers"
        )
    version = sa.Column("version_num", sa.dialects.mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), primary_key=True)
    made(connection, sa.Table(VERSION_TABLE, sa.MetaData(), version, **OPTIONS))  # Alembic names the key as the servers do not
    command.upgrade(config, "head")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
