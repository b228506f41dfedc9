"""One collection's statements: how its rows are found, stored and quarantined.

One statement stores a record and also asks for its partition's generation. It locks the
partition's row as a foreign key would. It re-reads that row, so that it sees a
generation raised by a transaction that has just committed. A raise waits for the puts
under way, and every later put sees it. `ON CONFLICT` and `UPDATE` decide their
conditions on the newest row, under its lock.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from hashlib import blake2b
from typing import Any, ClassVar
from uuid import UUID

import asyncpg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect

from memory.adapters.sql.codec import Codec
from memory.adapters.sql.naming import TableNames
from memory.adapters.sql.postgresql.codec import TYPES, array, escape, index_columns
from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.postgresql.filters import PgConditions, PgShaper
from memory.adapters.sql.postgresql.schema import parameter_of, table_of
from memory.adapters.sql.postgresql.thresholds import Thresholds
from memory.adapters.sql.shapes import Values
from memory.adapters.sql.table import Columns, DamagedRow, Table
from memory.domain.time import micros
from memory.ports.batch import StoredRow
from memory.ports.clock import system_clock
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Everywhere, Tenant, Where
from memory.ports.record import Key
from memory.ports.rows import CORRUPT, Row, corrupt_row
from memory.ports.writes import AtVersion

_SHARED = ("tenant", "row_type", "partition_no", "scope", "generation", "role", "tier", "accesses")
"""Columns that are alike in the rows of most batches.

Such rows are new records of one partition.
"""

# Conditions on an existing row, as an insert's `ON CONFLICT` decides them.
ABSENT = "DO NOTHING"
NEWER = "t.version < excluded.version AND t.owed IS NULL"
ALWAYS = "true"


class PgTable(Table[Connection]):
    """The statements of one collection in one schema.

    `vector_type` is pgvector's type, empty where there is none.
    """

    dialect: ClassVar[sa.Dialect] = asyncpg_dialect()  # type: ignore[no-untyped-call]
    thresholds: Thresholds

    def __init__(
        self,
        collection: Collection,
        names: TableNames,
        schema: str,
        vector_type: str,
        thresholds: Thresholds,
        actual: Collection | None = None,
    ) -> None:
        codec = Codec(collection, TYPES, actual)
        shaper = PgShaper(collection, codec.at, TYPES, thresholds.values_written_out)
        super().__init__(codec, shaper, table_of(collection, schema, names, actual), thresholds)
        self._indexed = self.keyed.union(*collection.indexes)
        self.schema = schema
        self._flushes = bool(collection.texts)
        lexemes = next((str(i.name) for i in self.table.indexes if "lexemes" in i.columns), "")
        self._flush = f"""SELECT gin_clean_pending_list('"{schema}"."{lexemes}"'::regclass)"""
        self.embeds = bool(vector_type) and collection.vector
        self.vector_type = vector_type
        self.derived = (
            "words",
            "bytes",
            "partition_no",
            *(("length", "counts", "lexemes") if collection.texts else ()),
        )
        self._stored = [
            (name, *parameter_of(self.table.c[name].type)) for name in (*codec.columns, *self.derived)
        ]
        self._stored += [("embedding", vector_type, "")] if self.embeds else []
        at = self._at = {name: i for i, (name, _, _) in enumerate(self._stored)}
        self._shared = tuple([at[name] for name in _SHARED])
        self._bytes = at["bytes"]
        self._tags = [at[name] for name, i in codec.at.items() if self._stored[i][2] == "text[]"]
        self._names = ", ".join([f'"{name}"' for name, _, _ in self._stored])
        self.qualified = f'"{schema}"."{self.table.name}"'
        self.partitions = f'"{schema}"."{names.partitions}"'
        self.quarantine_table = f'"{schema}"."{names.quarantine}"'
        self.chosen = ", ".join([f't."{name}"' for name in self.columns])
        sealed = f"t.{self.checksum}"
        this, these = (
            f"FROM {self.qualified} AS t WHERE t.tenant = $1 AND t.id = $2",
            f"FROM {self.qualified} AS t WHERE t.tenant = $1",
        )
        self.find_sql = f"SELECT {self.chosen} {this}"
        self.find_many_sql = f"SELECT {self.chosen} {these} AND t.id = ANY($2::uuid[])"
        self.find_locked_sql = f"{self.find_many_sql} ORDER BY t.id FOR UPDATE"
        # One row
        self.put_absent = self._put_one(ABSENT)
        self.put_newer = self._put_one(NEWER)
        self.put_always = self._put_one(ALWAYS)
        self.put_at = self._update_one(placed=True)
        self.delete_newer = self._forget_sql(self._insert_one(NEWER))
        self.delete_at = self._forget_sql(self._update_one(placed=False))
        self.remove = self._forget_sql(f"DELETE {this} AND {sealed} = $3")
        count, said = len(self._stored), len(codec.columns)
        row = f"SELECT {self._one()}"
        exactly = f"{self._update(row)} AND {sealed} = ${count + 1}"
        self.swap = f"{exactly} RETURNING true"
        self.restate = (
            f"{self._update(f'SELECT {self._one(said)}', most=said)} AND {sealed} = ${said + 1} RETURNING"
            " true"
        )
        self.delete_exactly = self._forget_sql(exactly)
        self.put_over = (
            f"{self._place()}{self._update(row, ', allowed')} AND {sealed} = ${count + 2} RETURNING true"
        )
        # Many rows
        self._many: dict[tuple[str, tuple[int, ...], frozenset[int]], str] = {}
        keys = "unnest($1::text[], $2::uuid[]) AS k(tenant, id)"
        self.remove_many = (
            f"DELETE FROM {self.qualified} AS t USING {keys} WHERE t.tenant = k.tenant AND t.id = k.id"  # noqa: S608
        )
        # Rows in the quarantine
        quarantine = self.quarantine_table
        of = f"q.collection = '{self.name}'"
        self._quarantine = self._quarantine_sql(row, quarantine)
        self.forget_sql = (
            f"DELETE FROM {quarantine} AS q USING {keys} WHERE {of} AND q.tenant = k.tenant AND q.id = k.id"  # noqa: S608
        )
        self.any_quarantined = f"EXISTS (SELECT FROM {quarantine} AS q WHERE {of})"
        self._problem = f"SELECT q.problem FROM {quarantine} AS q WHERE {of} AND q.tenant = $1 AND q.id = $2"  # noqa: S608
        self._quarantined = (
            f"SELECT q.tenant, q.id FROM {quarantine} AS q JOIN {self.qualified} AS t ON t.tenant = q.tenant AND t.id = q.id "  # noqa: S608
            f"WHERE {of} AND t.row_type = '{CORRUPT}' AND {{0}} ORDER BY q.tenant, q.id"
        )

    def conditions(self) -> PgConditions:
        return PgConditions(self.table, self._indexed)

    # -- finding -----------------------------------------------------------------------

    async def read(self, connection: Connection, sql: str, values: Values) -> Sequence[Columns]:
        rows: Sequence[Columns] = await connection.fetch(sql, *values)
        return rows

    async def find(self, connection: Connection, key: Key) -> Columns | None:
        row: Columns | None = await connection.fetchrow(self.find_sql, escape(key.tenant), key.id)
        return row

    async def find_all(
        self, connection: Connection, keys: Sequence[Key], *, lock: bool = False
    ) -> dict[Key, Columns]:
        by_tenant: dict[str, list[str]] = {}
        for key in keys:
            by_tenant.setdefault(key.tenant, []).append(key.id)
        sql = self.find_locked_sql if lock else self.find_many_sql
        found: dict[Key, Columns] = {}
        for tenant, ids in sorted(by_tenant.items()):
            found |= {
                self.codec.key(row): row for row in await connection.fetch(sql, escape(tenant), sorted(ids))
            }
        return found

    async def lock_matches(
        self, connection: Connection, sql: str, values: Values
    ) -> AsyncIterator[Sequence[tuple[Columns, bool]]]:
        # The server's own cursor, which ends with the transaction. The driver's would
        # leave a prepared statement on a pooler's connection. The driver caches the
        # result columns by the statement's text, so that each table with its columns
        # needs its own cursor name.
        cursor = "memory_" + blake2b(f"{self.qualified}{self.chosen}".encode(), digest_size=8).hexdigest()
        await connection.execute(f"DECLARE {cursor} NO SCROLL CURSOR FOR {sql}", *values)
        most = self.collection.at_once(self.thresholds.deleted_at_once)
        while rows := await connection.fetch(f"FETCH {most} FROM {cursor}"):
            yield [(row[:-1], row[-1]) for row in rows]
        await connection.execute(f"CLOSE {cursor}")

    # -- storing -----------------------------------------------------------------------

    def parameters(self, row: Row, partition: int | None) -> list[Any]:
        """Return the row's values as statements take them.

        `partition` is the number of a record's partition.
        """
        values = [*self.codec.values(row, partition), partition]
        for i in self._tags:
            if values[i] is not None:
                values[i] = array(values[i])
        if self.collection.texts:
            values += (
                (0, None, None)
                if row.words is None or partition is None
                else index_columns(partition, row.words)
            )
        if self.embeds:
            values.append(row.vector)
        return values

    def size_of(self, values: Sequence[Any]) -> int:
        """Return the size of a row's contents in bytes, from its parameters."""
        return int(values[self._bytes])

    def restate_parameters(self, row: Row, was: Columns) -> list[Any]:
        """Return the values for `restate`: the same contents with other bookkeeping."""
        return [
            *self.parameters(row._replace(words=None), was[-1])[: len(self.codec.columns)],
            self.checksum_of(was),
        ]

    async def delete_over(self, connection: Connection, tombstones: Sequence[tuple[StoredRow, Row]]) -> None:
        most = self.thresholds.deleted_at_once
        for start in range(0, len(tombstones), most):
            rows = [
                self.parameters(row, None)
                async for _, row in iterate_cooperatively(tombstones[start : start + most])
            ]
            sql, columns = self.insert_many(ALWAYS, rows)
            await connection.fetch(sql, *columns)
            await connection.execute(self.forget_sql, [row[0] for row in rows], [row[1] for row in rows])

    async def flush_lexemes(self, connection: Connection) -> None:
        """Have the index of words take in its list of single writes, if it may.

        A standby and a user who does not own the index cannot; searches are slower.
        """
        if self._flushes:
            try:
                await connection.fetchval(self._flush)
            except asyncpg.PostgresError:
                self._flushes = False

    # -- the quarantine ----------------------------------------------------------------

    async def quarantine(self, connection: Connection, unreadable: DamagedRow) -> None:
        columns = unreadable.columns
        kept = json.dumps(dict(zip(self.columns, map(_plain, columns), strict=False)))
        values = self.parameters(corrupt_row(unreadable.key, self.codec.version(columns)), None)
        await connection.fetchval(
            self._quarantine,
            *values,
            self.checksum_of(columns),
            columns[-1],
            unreadable.problem,
            micros(system_clock()),
            kept,
        )

    async def quarantined_keys(
        self, connection: Connection, where: Where, partitions: Sequence[int]
    ) -> list[Key]:
        if isinstance(where, Everywhere):
            rows = await connection.fetch(self._quarantined.format("true"))
        elif isinstance(where, Tenant):
            rows = await connection.fetch(self._quarantined.format("q.tenant = $1"), escape(where.tenant))
        else:
            rows = await connection.fetch(
                self._quarantined.format("q.partition_no = ANY($1::bigint[])"), list(partitions)
            )
        return [self.codec.key(row) for row in rows]

    async def problem(self, connection: Connection, key: Key) -> str | None:
        problem: str | None = await connection.fetchval(self._problem, escape(key.tenant), key.id)
        return problem

    # -- parts of statements -----------------------------------------------------------

    def _one(self, most: int | None = None) -> str:
        """Select the columns of one row, or the first of them, one parameter each."""
        return ", ".join(
            [
                f'{_cast(f"${i}::{kind}", to)} AS "{name}"'
                for i, (name, kind, to) in enumerate(self._stored[:most], 1)
            ]
        )

    def _on_conflict(self, condition: str) -> str:
        if condition == ABSENT:
            return "ON CONFLICT (id, tenant) DO NOTHING"
        changes = ", ".join([f'"{name}" = excluded."{name}"' for name, _, _ in self._stored])
        return f"ON CONFLICT (id, tenant) DO UPDATE SET {changes} WHERE {condition}"

    def _place(self) -> str:
        """Lock the partition of the row, and check that its generation lets the row in.

        Where the generation was given, only exactly that one does.
        """
        given = f"${len(self._stored) + 1}::boolean"
        number, tenant, scope, generation = (
            f"${self._at[name] + 1}" for name in ("partition_no", "tenant", "scope", "generation")
        )
        return (
            f"WITH place AS MATERIALIZED (SELECT p.generation FROM {self.partitions} AS p "  # noqa: S608
            f"WHERE p.number = {number}::bigint AND p.tenant = {tenant}::text AND p.scope = {scope}::text FOR"
            " SHARE), "
            f"allowed AS MATERIALIZED (SELECT 1 FROM place WHERE place.generation = {generation}::bigint "
            f"OR ({given} AND place.generation < {generation}::bigint)) "
        )

    def _put_one(self, condition: str) -> str:
        insert = f"INSERT INTO {self.qualified} AS t ({self._names}) SELECT {self._one()} FROM allowed"  # noqa: S608
        return f"{self._place()}{insert} {self._on_conflict(condition)} RETURNING true"

    def _insert_one(self, condition: str) -> str:
        return (
            f"INSERT INTO {self.qualified} AS t ({self._names}) SELECT {self._one()}"
            f" {self._on_conflict(condition)}"
        )

    def _forget_sql(self, change: str) -> str:
        """Make the same change of one row, and delete its copy in the quarantine.

        Nothing of a deleted record stays readable.
        """
        forget = f"DELETE FROM {self.quarantine_table} AS q USING done"  # noqa: S608
        which = f"q.collection = '{self.name}' AND q.tenant = done.tenant AND q.id = done.id"
        return f"WITH done AS ({change} RETURNING t.tenant, t.id), gone AS ({forget} WHERE {which}) SELECT true FROM done"  # noqa: S608

    def _quarantine_sql(self, row: str, quarantine: str) -> str:
        """Replace exactly the unreadable row by a bare row, and keep its contents."""
        first = len(self._stored) + 1
        change = (
            f"{self._update(row)} AND t.{self.checksum} = ${first} AND t.row_type <> '{CORRUPT}' RETURNING"
            " t.tenant, t.id"
        )
        names = ("partition_no", "problem", "found_at", "content")
        kinds = ("bigint", "text", "bigint", "text")
        values = ", ".join([f"${first + i}::{kind}" for i, kind in enumerate(kinds, 1)])
        again = ", ".join([f"{name} = excluded.{name}" for name in names])
        return (
            f"WITH done AS ({change}) INSERT INTO {quarantine} (collection, tenant, id, {', '.join(names)}) "  # noqa: S608
            f"SELECT '{self.name}', done.tenant, done.id, {values} FROM done "
            f"ON CONFLICT (collection, tenant, id) DO UPDATE SET {again} RETURNING true"
        )

    def insert_many(self, condition: str, rows: Sequence[Sequence[Any]]) -> tuple[str, list[Any]]:
        """Return a statement that stores these rows in order, and its arguments.

        The rows have distinct keys. There is one argument per column: a list, or the
        one value where the rows share all of `_SHARED`. A single row has the values
        themselves. Columns without a value are left out.
        """
        columns = list(zip(*rows, strict=True))
        given = tuple([i for i, values in enumerate(columns) if values.count(None) < len(values)])
        alike = all(columns[i].count(columns[i][0]) == len(rows) for i in self._shared)
        shared = frozenset(given if len(rows) == 1 else self._shared if alike else ())
        sql = self._many.get((condition, given, shared))
        if sql is None:
            if len(self._many) >= self.thresholds.statements_kept:
                self._many.clear()
            sql = self._many[(condition, given, shared)] = self._insert_many(condition, given, shared)
        return sql, [columns[i][0] if i in shared else columns[i] for i in given]

    def _insert_many(self, condition: str, given: Sequence[int], shared: frozenset[int]) -> str:
        stored = [
            (f"${n}::{self._stored[i][1]}", *self._stored[i], i in shared) for n, i in enumerate(given, 1)
        ]
        arrays = ", ".join([f"{value}[]" for value, _, _, _, once in stored if not once])
        apart = ", ".join([f'"{name}"' for _, name, _, _, once in stored if not once])
        names = ", ".join([f'"{name}"' for _, name, _, _, _ in stored])
        chosen = ", ".join(
            [_cast(value if once else f'r."{name}"', to) for value, name, _, to, once in stored]
        )
        rows = f" FROM unnest({arrays}) AS r({apart})" if arrays else ""
        insert = f"INSERT INTO {self.qualified} AS t ({names}) SELECT {chosen}{rows}"
        return f"{insert} {self._on_conflict(condition)} RETURNING t.tenant, t.id"

    def update_many(self, rows: Sequence[Sequence[Any]], there: Sequence[AtVersion]) -> tuple[str, list[Any]]:
        """Return a statement that replaces rows, and its arguments.

        Each row replaces the existing one if that has its version and no pending step.
        """
        columns = list(zip(*rows, strict=True))
        given = tuple([i for i, values in enumerate(columns) if values.count(None) < len(values)])
        sql = self._many.get(("", given, frozenset()))
        if sql is None:
            sql = self._many[("", given, frozenset())] = self._update_many(given)
        roles, tiers = (
            [None if one is None else escape(one) for one in some]
            for some in ([at.role for at in there], [at.tier for at in there])
        )
        return sql, [*(columns[i] for i in given), [at.version for at in there], roles, tiers]

    def _update_many(self, given: Sequence[int]) -> str:
        kinds = [*(self._stored[i][1] for i in given), "bigint", "text", "text"]
        names = [f'"{self._stored[i][0]}"' for i in given]
        arrays = ", ".join([f"${n}::{kind}[]" for n, kind in enumerate(kinds, 1)])
        values = {i: _cast(f"r.{name}", self._stored[i][2]) for i, name in zip(given, names, strict=True)}
        changes = ", ".join(
            [f'"{name}" = {values.get(i, "DEFAULT")}' for i, (name, _, _) in enumerate(self._stored)]
        )
        return (
            f"UPDATE {self.qualified} AS t SET {changes} "  # noqa: S608
            f"FROM unnest({arrays}) AS r({', '.join(names)}, at_version, at_role, at_tier) WHERE t.tenant ="
            " r.tenant AND t.id = r.id "
            f"AND {_stands_at('r.at_version', 'r.at_role', 'r.at_tier')} RETURNING t.tenant, t.id"
        )

    def _update(self, rows: str, also: str = "", most: int | None = None) -> str:
        changes = ", ".join([f'"{name}" = r."{name}"' for name, _, _ in self._stored[:most]])
        return f"UPDATE {self.qualified} AS t SET {changes} FROM ({rows}) AS r{also} WHERE t.tenant = r.tenant AND t.id = r.id"  # noqa: S608

    def _update_one(self, placed: bool) -> str:
        """Match a live copy or a tombstone of exactly that version.

        It has no pending step. Its role and tier must match too, where they are given.
        """
        at = len(self._stored) + (2 if placed else 1)
        version, role, tier = f"${at}::bigint", f"${at + 1}::text", f"${at + 2}::text"
        update = self._update(f"SELECT {self._one()}", ", allowed" if placed else "")
        changed = f"{update} AND {_stands_at(version, role, tier)}"
        return f"{self._place()}{changed} RETURNING true" if placed else changed


def _stands_at(version: str, role: str, tier: str) -> str:
    """Match `AtVersion`, for rows without a pending step."""
    live = (
        f"t.row_type = 'record' AND ({role} IS NULL OR t.role = {role}) AND ({tier} IS NULL OR t.tier ="
        f" {tier})"
    )
    dead = f"t.row_type = 'tombstone' AND {role} IS NULL AND {tier} IS NULL"
    return f"t.version = {version} AND t.owed IS NULL AND ({live} OR {dead})"


def _cast(value: str, to: str) -> str:
    return f"{value}::{to}" if to else value


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return str(value) if isinstance(value, UUID) else value
