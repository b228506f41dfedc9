"""Brings the schema up to date at open, under a lock; a current one is only inspected.

The lock is GET_LOCK's, which ends with its connection. So many processes may open an
empty database at once. The servers' DDL is not transactional. Columns and indexes are
added while others read and write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import ClassVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from memory.adapters.sql.declared import Comparison
from memory.adapters.sql.migrate import Schema
from memory.adapters.sql.mysql.config import MySqlConfig
from memory.adapters.sql.mysql.connection import Connection, dial
from memory.adapters.sql.mysql.errors import is_denied, is_read_only
from memory.adapters.sql.mysql.flavour import Flavour
from memory.adapters.sql.mysql.schema import system_tables, table_of
from memory.adapters.sql.naming import BARE_FORM, FORM, TableNames, form_and_format
from memory.domain.errors import StoreTimeout
from memory.ports.collections import Collection

PATIENCE = 60
"""Seconds to wait for another process that is making the schema ready."""

_THERE = (
    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN (?, ?)"
)


class MySqlSchema(Schema):
    whole: ClassVar[bool] = False
    forms = (BARE_FORM, FORM)

    def __init__(self, store: str, config: MySqlConfig, flavour: Flavour) -> None:
        super().__init__(
            store, f"the database '{config.database}'", "prefix or database", TableNames(config.prefix)
        )
        self._collation = flavour.collation

    def system(self) -> Sequence[sa.Table]:
        metadata = sa.MetaData()
        system_tables(metadata, self._collation, self.names)
        return metadata.sorted_tables

    def of(self, collection: Collection) -> Sequence[sa.Table]:
        table = table_of(collection, self._collation, self.names)
        return [table, *[other for other in table.metadata.sorted_tables if other is not table]]


async def make_ready(
    connection: Connection, config: MySqlConfig, schema: MySqlSchema, collections: Sequence[Collection]
) -> Comparison:
    """Make the schema that these collections need, and return the resulting tables.

    Many processes may do so at once. If the result still has `grown` tables, the user
    may not change them: read them in their old form.
    """
    found = await look(connection, schema, collections)
    if found is not None and found.is_ready:
        return found
    try:
        return replace(await _change(config, schema, collections), new=(), grown=())
    except Exception as error:
        if found is None or found.new or not (is_read_only(error) or is_denied(error)):
            raise
        if is_denied(error) and not await may_only_read(connection, schema.names.registry):
            raise  # its writes would lack these fields
        return found


async def may_only_read(connection: Connection, table: str) -> bool:
    """Whether the user may not change a table.

    A server that takes no writes now, such as a replica, may take them later.
    """
    refusal = await refusal_of_writes(connection, table)
    return refusal is not None and is_denied(refusal)


async def refusal_of_writes(connection: Connection, table: str) -> Exception | None:
    """Return the error with which the server refuses to change a table, if it does.

    The server checks rights even for a statement that matches no row.
    """
    try:
        await connection.tell(f"UPDATE `{table}` SET name = name WHERE 1 = 0")  # noqa: S608
    except Exception as error:
        if is_denied(error) or is_read_only(error):
            return error
        raise
    return None


async def look(
    connection: Connection, schema: MySqlSchema, collections: Sequence[Collection]
) -> Comparison | None:
    """Compare the database with the collections; None before the tables exist."""
    form, noted, told = None, None, {}
    names = schema.names
    if await connection.fetchval(_THERE, names.version, names.registry) == 2:
        form, noted = form_and_format(
            [row.decode() for (row,) in await connection.fetch(f"SELECT version_num FROM `{names.version}`")]  # noqa: S608
        )
        told = {
            name.decode(): said.decode()
            for name, said in await connection.fetch(f"SELECT name, declaration FROM `{names.registry}`")  # noqa: S608
        }
    comparison = schema.compare(form, noted, told, collections)
    return None if form is None else comparison


async def _change(config: MySqlConfig, schema: MySqlSchema, collections: Sequence[Collection]) -> Comparison:
    patience = {"read_timeout": PATIENCE + config.command_timeout}  # for one step
    connect = partial(dial, config, use_unicode=True, autocommit=False, **patience)
    engine = create_async_engine("mysql+asyncmy://", async_creator=connect, poolclass=NullPool)
    name = (
        "memory-tiers:" + blake2b(config.database.encode(), digest_size=16).hexdigest()
    )  # locks belong to the server, not to a database
    try:
        async with engine.connect() as connection:
            got = await connection.scalar(
                sa.text("SELECT GET_LOCK(:name, :patience)"), {"name": name, "patience": PATIENCE}
            )
            if not got:
                raise StoreTimeout(
                    schema.store, "another process has been changing the schema for too long; try again"
                )
            found = await connection.run_sync(schema.change, collections)
            first = f"INSERT INTO `{schema.names.numbers}` (name, given) VALUES ('records', 0) ON DUPLICATE KEY UPDATE given = given"  # noqa: S608
            await connection.execute(sa.text(first))
            await connection.commit()
            await connection.execute(sa.text("SELECT RELEASE_LOCK(:name)"), {"name": name})
            return found
    finally:
        await engine.dispose()
