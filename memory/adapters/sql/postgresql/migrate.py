"""Brings the schema up to date at open, in one transaction under a lock.

A current schema is only inspected. The lock is an advisory one that ends with the
transaction. So many processes may open an empty database at once, also through a
PgBouncer in transaction mode.

A new column, NULL in every row, changes only the catalogue. Writers of its table wait
while its index is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import sqlalchemy as sa
from asyncpg.exceptions import ReadOnlySQLTransactionError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from memory.adapters.sql.declared import Comparison
from memory.adapters.sql.migrate import Schema
from memory.adapters.sql.naming import BARE_FORM, FORM, TableNames, form_and_format
from memory.adapters.sql.postgresql.config import PostgresConfig
from memory.adapters.sql.postgresql.connection import Connection, connect
from memory.adapters.sql.postgresql.errors import MAY_NOT_WRITE
from memory.adapters.sql.postgresql.extension import AVAILABLE, CREATE, INSTALLED, add_column
from memory.adapters.sql.postgresql.schema import TYPES, table_of
from memory.adapters.sql.schema import system_tables
from memory.adapters.sql.server.errors import original
from memory.ports.collections import Collection

_MAY_WRITE = (
    "SELECT coalesce(bool_or(has_table_privilege(name, 'UPDATE')), false) FROM unnest($1::text[]) AS name"
)
_EMBEDDED = (
    "SELECT table_name FROM information_schema.columns WHERE table_schema = $1 AND column_name = 'embedding'"
)


class PgSchema(Schema):
    forms = (BARE_FORM, FORM)

    def __init__(self, store: str, schema: str, prefix: str) -> None:
        super().__init__(store, f"the schema '{schema}'", "prefix or schema", TableNames(prefix))
        self.schema = schema

    def system(self) -> Sequence[sa.Table]:
        metadata = sa.MetaData(schema=self.schema)
        system_tables(metadata, TYPES, self.names)
        return metadata.sorted_tables

    def of(self, collection: Collection) -> Sequence[sa.Table]:
        return [table_of(collection, self.schema, self.names)]


@dataclass(frozen=True, slots=True)
class DatabaseInspection:
    """The state of the database.

    `form` is the form of its tables, None without tables. `namespace` is the schema of
    pgvector, empty where it is not installed.
    """

    form: str | None
    comparison: Comparison
    embedded: frozenset[str]
    namespace: str
    extension: str
    """The extension's version, or why it is not used."""
    can_be_installed: bool


async def make_ready(
    connection: Connection, config: PostgresConfig, schema: PgSchema, collections: Sequence[Collection]
) -> DatabaseInspection:
    """Make the schema that these collections need.

    Many processes may do so at once.
    """
    found = await look(connection, schema, collections)
    if _is_ready(found, schema.names, collections):
        return found
    try:
        problem = await _change(config, schema, collections)
    except DBAPIError as error:
        if found.form is None or found.comparison.new or not isinstance(original(error), MAY_NOT_WRITE):
            raise
        if (
            found.comparison.grown
            and not isinstance(original(error), ReadOnlySQLTransactionError)
            and await may_write(connection, schema, collections)
        ):
            raise  # its writes would lack these fields
        return found  # its tables can be read as they are
    found = await look(connection, schema, collections)
    return replace(found, extension=problem) if problem and not found.namespace else found


async def may_write(connection: Connection, schema: PgSchema, collections: Sequence[Collection]) -> bool:
    """Whether the role may change any of the tables."""
    tables = [f'"{schema.schema}"."{schema.names.table(collection.name)}"' for collection in collections]
    return bool(await connection.fetchval(_MAY_WRITE, tables))


async def look(
    connection: Connection, schema: PgSchema, collections: Sequence[Collection]
) -> DatabaseInspection:
    form, noted, told = None, None, {}
    version, registry = (
        f'"{schema.schema}"."{name}"' for name in (schema.names.version, schema.names.registry)
    )
    if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", version):
        form, noted = form_and_format(
            [row for (row,) in await connection.fetch(f"SELECT version_num FROM {version}")]  # noqa: S608
        )
        told = dict(await connection.fetch(f"SELECT name, declaration FROM {registry}"))  # noqa: S608
    comparison = schema.compare(form, noted, told, collections)
    embedded = frozenset([name for (name,) in await connection.fetch(_EMBEDDED, schema.schema)])
    installed = await connection.fetchrow(INSTALLED)
    available = installed is None and await connection.fetchval(AVAILABLE) is not None
    why = (
        "the extension vector is not available on this server"
        if not available
        else "the extension vector could not be created"
    )
    namespace, version = installed or ("", why)
    return DatabaseInspection(form, comparison, embedded, namespace, version, available)


def _is_ready(found: DatabaseInspection, names: TableNames, collections: Sequence[Collection]) -> bool:
    unembedded = [
        c for c in collections if found.namespace and c.vector and names.table(c.name) not in found.embedded
    ]
    return (
        found.form is not None and found.comparison.is_ready and not found.can_be_installed and not unembedded
    )


# -- changes ---------------------------------------------------------------------------


async def _change(config: PostgresConfig, schema: PgSchema, collections: Sequence[Collection]) -> str:
    """Make the necessary changes.

    Returns why the extension could not be created; empty if that did not fail.
    """
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: connect(config), poolclass=NullPool
    )
    try:
        async with engine.connect() as connection:
            await connection.execute(
                sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _lock_key(config.schema)}
            )
            problem = await connection.run_sync(_change_locked, schema, collections)
            await connection.commit()
            return problem
    finally:
        await engine.dispose()


def _lock_key(schema: str) -> int:
    return int.from_bytes(
        blake2b(f"memory-tiers:{schema}".encode(), digest_size=8).digest(), "big", signed=True
    )


def _change_locked(connection: sa.Connection, schema: PgSchema, collections: Sequence[Collection]) -> str:
    if not connection.execute(
        sa.text("SELECT 1 FROM pg_namespace WHERE nspname = :name"), {"name": schema.schema}
    ).first():
        connection.execute(sa.schema.CreateSchema(schema.schema))
    schema.change(connection, collections)
    return _install_extension(connection, schema, collections)


def _install_extension(connection: sa.Connection, schema: PgSchema, collections: Sequence[Collection]) -> str:
    """Create pgvector if the role may do so, and add its column to tables.

    Without that right, searches by meaning are off.
    """
    if not connection.execute(sa.text(INSTALLED)).first():
        if not connection.execute(sa.text(AVAILABLE)).first():
            return ""
        try:
            with connection.begin_nested():
                connection.execute(sa.text(CREATE))
        except SQLAlchemyError as exc:
            return (
                f"the extension vector could not be created ({type(exc).__name__}); ask an administrator for"
                " CREATE EXTENSION vector"
            )
    found = connection.execute(sa.text(INSTALLED)).first()
    if found is not None:
        for collection in collections:
            names, name = schema.names, collection.name
            column = add_column(
                schema.schema, names.table(name), names.index("ix", name, "unembedded"), found[0]
            )
            for statement in column if collection.vector else ():
                connection.execute(sa.text(statement))
    return ""
