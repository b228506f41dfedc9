"""The store on PostgreSQL."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import asyncpg
import sqlalchemy as sa

from memory.adapters.sql.bodies import body_indexes
from memory.adapters.sql.naming import TableNames, form_and_format
from memory.adapters.sql.postgresql.audit import audit_registries, audit_rows
from memory.adapters.sql.postgresql.batch import PgBatch, write_one
from memory.adapters.sql.postgresql.candidates import candidates
from memory.adapters.sql.postgresql.config import CLAIMS, parse
from memory.adapters.sql.postgresql.connection import (
    Connection,
    connect,
    goodbye,
    is_failover_error,
    no_room,
    still_good,
)
from memory.adapters.sql.postgresql.errors import MAY_NOT_WRITE, is_collision, translate
from memory.adapters.sql.postgresql.extension import embed_the_rest, speak
from memory.adapters.sql.postgresql.filters import PgConditions
from memory.adapters.sql.postgresql.migrate import DatabaseInspection, PgSchema, look, make_ready, may_write
from memory.adapters.sql.postgresql.partitions import PgDirectory
from memory.adapters.sql.postgresql.schema import indexed_part
from memory.adapters.sql.postgresql.search import search
from memory.adapters.sql.postgresql.settings import Settings
from memory.adapters.sql.postgresql.table import PgTable
from memory.adapters.sql.postgresql.thresholds import THRESHOLDS, Thresholds
from memory.adapters.sql.server.pool import PoolOptions
from memory.adapters.sql.server.store import AuditPage, ServerStore
from memory.adapters.sql.shapes import is_comparable
from memory.ports.base import Question
from memory.ports.batch import BatchRollback
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.query import Condition, Hit, JsonPath, Page, Query, Search, has_json, widen
from memory.ports.record import JsonValue
from memory.ports.server_probe import expect_server
from memory.ports.store import Health
from memory.ports.writes import Outcome, Put, Write

_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c JOIN pg_namespace AS n"
    " ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname = ANY($2::text[])"
)

log = logging.getLogger(__name__)
T = TypeVar("T")
_NUMBER = re.compile(r"\s*[+-]?\d+\s*")
_HURRIED = "SET LOCAL lock_timeout = '100ms'"
"""The lock timeout of a call that several callers share.

A put that would wait, such as for a process that hangs within a transaction, then does
not delay the others.
"""


def _is_of_fields(part: Condition) -> bool:
    return not isinstance(part, JsonPath)


def _key_of(kind: str, column: Any) -> Any:
    return indexed_part(column) if kind == "text" else column


class PostgresStore(ServerStore[Connection, PgTable]):
    """Records in a PostgreSQL database of version 13 or later.

    Each collection has one table, in a schema of its own. See `PostgresConfig` for
    options.

    Many processes may use it at once. Acknowledged writes are as safe as the server's
    settings make them: with `fsync` or `synchronous_commit` off, the store does not
    claim to be durable. Searches by meaning need the extension pgvector.
    """

    claims: ClassVar[Capabilities] = CLAIMS
    _thresholds: Thresholds

    def __init__(
        self, url: str, name: str = "postgresql", *, thresholds: Thresholds = THRESHOLDS, **options: JsonValue
    ) -> None:
        self.config = parse(name, url, options)
        self._pg_directory = PgDirectory(self.config.schema, TableNames(self.config.prefix), thresholds)
        super().__init__(name, self._pg_directory, thresholds)
        self._found: DatabaseInspection | None = None
        self._settings: Settings | None = None

    # -- life --------------------------------------------------------------------------

    def _reads_json(self, part: JsonPath) -> bool:
        """In a path of PostgreSQL, a number also selects an element of a list."""
        return is_comparable(part) and not any(map(_NUMBER.fullmatch, part.parts))

    async def _open(self, collections: Sequence[Collection]) -> None:
        place, schema = self.config.addresses[0], self.config.schema
        connection = await expect_server(
            "PostgreSQL",
            self.name,
            *place,
            connect(self.config),
            self._server_said,
            lambda made: made.terminate(),
        )
        try:
            self._settings = await Settings.read(connection, self.name)
            pg_schema = PgSchema(self.name, schema, self.config.prefix)
            self._found = await make_ready(connection, self.config, pg_schema, collections)
            names = self.directory.names = pg_schema.names
            self._stored = {growth.collection.name: growth.was for growth in self._found.comparison.grown}
            self._reads_only = bool(self._stored) or not await may_write(connection, pg_schema, collections)
            if self._found.namespace:
                await speak(connection, self._found.namespace)
                with contextlib.suppress(*MAY_NOT_WRITE):  # searches by words still work
                    for collection in collections:
                        if collection.vector:
                            table, most = names.table(collection.name), self._thresholds.embedded_at_once
                            await embed_the_rest(connection, schema, table, self._found.namespace, most)
            self._tables = self._make_tables(self._found.comparison.tables)
            if not self._reads_only:
                with contextlib.suppress(*MAY_NOT_WRITE):
                    await self._index_bodies(connection)
        finally:
            await goodbye(connection)
        self._take_format(pg_schema.noted)
        self._capabilities = self._settings.limit(self.claims)
        if not self._found.namespace:
            self._capabilities = replace(self._capabilities, semantic=False, max_vector_dims=None)
        self._lend(
            PoolOptions(
                size=self.config.pool_size,
                patience=self.config.pool_timeout,
                connect_patience=self.config.connect_timeout,
                call_patience=self.config.command_timeout,
                connect=lambda: connect(self.config),
                greet=self._greet,
                goodbye=goodbye,
                still_good=still_good,
                moved=is_failover_error,
                no_room=no_room,
            )
        )
        self._epoch = "" if self._capabilities.durable else self._settings.started

    def _make_tables(self, collections: Mapping[str, Collection]) -> dict[str, PgTable]:
        namespace = self._found.namespace if self._found is not None else ""
        vector_type = f'"{namespace}".vector' if namespace else ""
        names, schema, stored = self.directory.names, self.config.schema, self._stored
        tables = {
            name: PgTable(c, names, schema, vector_type, self._thresholds, stored.get(name))
            for name, c in collections.items()
        }
        for name, paths in self.json_paths.items():
            tables[name].shaper.json_paths = paths
        return tables

    async def _index_bodies(self, connection: Connection) -> None:
        """Make the indexes on values in bodies that are missing.

        Writers of the table wait meanwhile. The statistics of a new index are made at
        once, because the server would choose it wrongly without them. If a damaged body
        is no JSON, there is no index until an audit has repaired it and the store is
        opened again.
        """
        for name, paths in self.json_paths.items():
            table, labels = self._tables[name].table, partial(self.directory.names.index, "ix", name)
            for index in body_indexes(table, paths, PgConditions, labels, _key_of):
                made = sa.schema.CreateIndex(index, if_not_exists=True)
                place = f'"{self.config.schema}"."{index.name}"'
                try:
                    if await connection.fetchval("SELECT to_regclass($1)", place) is not None:
                        continue
                    await connection.execute(str(made.compile(dialect=PgTable.dialect)))
                    await connection.execute(f"ANALYZE {self._tables[name].qualified}")
                except asyncpg.DataError as error:
                    log.warning("store '%s': no index on %s was made: %s", self.name, name, error)
                except (asyncpg.UniqueViolationError, asyncpg.DuplicateTableError):
                    continue  # another process was faster

    async def _look_again(self, connection: Connection) -> Mapping[str, Collection]:
        schema = PgSchema(self.name, self.config.schema, self.config.prefix)
        comparison = (await look(connection, schema, tuple(self._collections.values()))).comparison
        self._stored = {growth.collection.name: growth.was for growth in comparison.grown}
        return comparison.tables

    def _is_outgrown(self, error: Exception) -> bool:
        return isinstance(error, asyncpg.UndefinedColumnError)

    async def _greet(self, connection: Connection) -> None:
        """Prepare each new connection.

        It may lead to another run of the server, or to another database.
        """
        self.directory.forget()
        if self._found is not None and self._found.namespace:
            await speak(connection, self._found.namespace)
        if not self._capabilities.durable and self._settings is not None:
            self._epoch = (await Settings.read(connection, self.name)).started

    async def _vital_signs(self, connection: Connection) -> Health:
        assert self._found is not None  # noqa: S101 - it is open
        settings, names = await Settings.read(connection, self.name), self.directory.names
        form, _ = await self._versions(connection)
        size = await self._size(connection)
        facts: dict[str, JsonValue] = {
            "schema": form,
            "bytes": size,
            "pool": self.config.pool_size,
            **settings.facts,
        }
        facts["pgvector"] = (
            self._found.extension if self._found.namespace else f"off: {self._found.extension}"
        )
        in_quarantine = await connection.fetchval(
            f"SELECT count(*) FROM {self._quoted_name(names.quarantine)}"  # noqa: S608
        )
        where = [
            self.config.place,
            *(["it takes no writes: a standby, or a server that is read only"] if settings.read_only else []),
        ]
        ok = form == str(names.form) and not settings.read_only
        return Health(
            ok,
            "; ".join(where),
            f"PostgreSQL {settings.version}",
            self._epoch,
            facts,
            int(in_quarantine),
        )

    # -- work --------------------------------------------------------------------------

    async def _carry_out(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if len(writes) == 1:
            write = writes[0]
            return [
                await self.with_connection(
                    lambda connection: write_one(connection, self.table, self._pg_directory, write)
                )
            ]
        try:
            return await self.with_connection(lambda connection: self._batch(connection, writes, together))
        except BatchRollback as undone:
            return undone.outcomes

    async def _put_shared(self, puts: Sequence[Put]) -> list[Outcome]:
        if len(puts) == 1:
            return await self._carry_out(puts, together=False)
        return await self.with_connection(
            lambda connection: self._batch(connection, puts, together=False, hurried=True)
        )

    async def _batch(
        self, connection: Connection, writes: Sequence[Write], together: bool, *, hurried: bool = False
    ) -> list[Outcome]:
        batch = PgBatch(connection, self.table, self._pg_directory, writes, self._thresholds.rows_in_one)
        await batch.prepare()

        async def work() -> list[Outcome]:
            if hurried:
                await connection.execute(_HURRIED)
            return await batch.carry_out(together)

        return await self._in_transaction(connection, work)

    async def _query(self, query: Query) -> Page:
        return await self._or_wider(super()._query, query)

    async def _search(self, wanted: Search) -> list[Hit]:
        return await self._or_wider(
            lambda asked: self.with_connection(
                lambda connection: search(connection, self.table(asked.collection), self._pg_directory, asked)
            ),
            wanted,
        )

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        return await self._or_wider(
            lambda wanted: self.with_connection(
                lambda connection: candidates(
                    connection, self.table(wanted.collection), self._pg_directory, wanted
                )
            ),
            asked,
        )

    async def _or_wider(self, ask: Callable[[Question], Awaitable[T]], asked: Question) -> T:
        """Ask, and again without comparisons in bodies if a damaged body is no JSON.

        PostgreSQL 15 cannot check a text before it reads it as JSON.
        """
        try:
            return await ask(asked)
        except asyncpg.DataError:
            if asked.filter is None or not has_json(asked.filter):
                raise
            return await ask(replace(asked, filter=widen(asked.filter, _is_of_fields)))

    # -- upkeep ------------------------------------------------------------------------

    def _audit_steps(
        self, table: PgTable, repair: bool
    ) -> Sequence[Callable[[Connection, Any], Awaitable[AuditPage]]]:
        return [
            lambda connection, after: audit_rows(connection, table, after, repair),
            lambda connection, _: audit_registries(connection, table, repair),
        ]

    async def _vacuum(self) -> int:
        """Run PostgreSQL's own VACUUM on our tables.

        It frees room for other rows, and gives room back to the disk only at the end of
        a file.
        """

        async def vacuum(connection: Connection) -> int:
            before = await self._size(connection)
            names = self.directory.names
            for name in [
                *map(names.table, await self._names(connection)),
                names.partitions,
                names.quarantine,
            ]:
                await connection.execute(f"VACUUM {self._quoted_name(name)}")
            return max(0, before - await self._size(connection))

        return await self.with_connection(vacuum)

    async def _size(self, connection: Connection) -> int:
        tables = self.directory.names.all_of(await self._names(connection))
        return int(await connection.fetchval(_SIZE, self.config.schema, tables))

    def _quoted_name(self, table: str) -> str:
        """Return the name of a table as statements write it."""
        return f'"{self.config.schema}"."{table}"'

    async def _versions(
        self, connection: Connection, *, locked: bool = False
    ) -> tuple[str | None, str | None]:
        select = f"SELECT version_num FROM {self._quoted_name(self.directory.names.version)}{' FOR UPDATE' * locked}"  # noqa: S608
        return form_and_format([row for (row,) in await connection.fetch(select)])

    async def _put_version(self, connection: Connection, row: str, before: str | None) -> None:
        table = self._quoted_name(self.directory.names.version)
        if before is None:
            await connection.execute(f"INSERT INTO {table} (version_num) VALUES ($1)", row)  # noqa: S608
        else:
            await connection.execute(
                f"UPDATE {table} SET version_num = $1 WHERE version_num = $2",  # noqa: S608
                row,
                before,
            )

    async def _names(self, connection: Connection) -> list[str]:
        return [
            str(name)
            for (name,) in await connection.fetch(
                f"SELECT name FROM {self._quoted_name(self.directory.names.registry)}"  # noqa: S608
            )
        ]

    # -- the driver's ------------------------------------------------------------------

    def _translate_driver(self, error: Exception) -> Exception | None:
        return translate(self.name, self.config.place, error)

    def _is_collision(self, error: Exception) -> bool:
        return is_collision(error)

    def _server_said(self, error: BaseException) -> bool:
        return isinstance(error, asyncpg.PostgresError)

    async def _begin(self, connection: Connection) -> None:
        await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")

    async def _commit(self, connection: Connection) -> None:
        await connection.execute("COMMIT")

    async def _roll_back(self, connection: Connection) -> None:
        await connection.execute("ROLLBACK")
