"""One collection's statements: how its rows and their words are found and stored.

They also move rows into the quarantine. A row's words are in a table of their own
(`words`), in the order in which searches read them. It is an index that finds and
counts exactly our words, of exactly one partition. The transaction that changes a row
changes its words too. Only a single new record is stored by one statement. It is marked
as waiting for its words, searches read such rows themselves, and several of them are
indexed together (`pending`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any, ClassVar, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from memory.adapters.sql.codec import Codec, id_bytes
from memory.adapters.sql.mysql.codec import TYPES, to_text
from memory.adapters.sql.mysql.connection import Connection, StatementPipeline, ahead
from memory.adapters.sql.mysql.filters import MyConditions, MyShaper
from memory.adapters.sql.mysql.schema import table_of
from memory.adapters.sql.mysql.thresholds import Thresholds
from memory.adapters.sql.mysql.words import IndexedRow, WordTable
from memory.adapters.sql.naming import TableNames
from memory.adapters.sql.several import in_list, packets, pad_to_power_of_two, portions
from memory.adapters.sql.shapes import Shape, Values
from memory.adapters.sql.table import Columns, DamagedRow, Table
from memory.domain.time import micros
from memory.ports import lexical
from memory.ports.batch import StoredRow
from memory.ports.clock import system_clock
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Everywhere, Order, Tenant, Where
from memory.ports.record import Key
from memory.ports.rows import CORRUPT, RECORD, Row, corrupt_row

Numbered: TypeAlias = tuple[Row, int, int | None]
"""A row to store, its number, and the partition's number if it is a record."""
NUMBER, PARTITION = -2, -1
"""Positions of these values in the columns read of a row."""
DERIVED = ("words", "bytes", "partition_no", "length", "owing", "lexemes")
"""The columns behind a row's contents and its checksum."""


class MyTable(Table[Connection]):
    """The statements of one collection.

    `packet` is the largest statement the server takes, in bytes.
    """

    dialect: ClassVar[sa.Dialect] = mysql.dialect(paramstyle="qmark")
    beside: ClassVar[tuple[str, ...]] = ("number", "partition_no")
    thresholds: Thresholds

    def __init__(
        self,
        collection: Collection,
        names: TableNames,
        collation: str,
        packet: int,
        thresholds: Thresholds,
        actual: Collection | None = None,
    ) -> None:
        codec = Codec(collection, TYPES, actual)
        shaper = MyShaper(collection, codec.at, TYPES, thresholds.values_written_out)
        super().__init__(codec, shaper, table_of(collection, collation, names, actual), thresholds)
        self.names = names
        self.quoted = f"`{self.table.name}`"
        self.packet = packet
        self.words = WordTable(collection, names, packet, thresholds) if collection.texts else None
        table, quarantine = self.quoted, f"`{names.quarantine}`"
        stored = ("number", *codec.columns, *DERIVED)
        columns = ", ".join([f"`{c}`" for c in self.columns])
        self._find = f"SELECT {columns} FROM {table} WHERE tenant = ? AND id = ?"  # noqa: S608
        self._find_many = f"SELECT {columns} FROM {table} WHERE tenant = ? AND id IN "  # noqa: S608
        self._at = f"SELECT {columns} FROM {table} WHERE number IN "  # noqa: S608
        self._insert = f"INSERT INTO {table} ({', '.join([f'`{c}`' for c in stored])}) "
        self._row = in_list(len(stored))
        self._over = _on_duplicate(stored[1:])
        self._over_keeping = _on_duplicate((*codec.columns, "owing"))
        number = (
            f"(SELECT CAST(? AS SIGNED) FROM `{names.partitions}` AS p WHERE p.number = ? AND p.tenant = ? AND p.scope = ? "  # noqa: S608
            "AND (p.generation = ? OR (? AND p.generation < ?)) LOCK IN SHARE MODE)"
        )
        self.put_absent = f"{self._insert} VALUES ({number}, {', '.join('?' * (len(stored) - 1))})"
        self._swap = self._exactly((*codec.columns, "owing"))
        self._bare = (
            f"{self._exactly((*codec.columns, 'bytes', 'partition_no', 'length', 'owing'))} AND row_type <>"
            f" '{CORRUPT}'"
        )
        self._delete = f"DELETE FROM {table} WHERE number IN "  # noqa: S608
        self.pending = f"SELECT number, partition_no, role, words FROM {table} WHERE lexemes = 0"  # noqa: S608
        self._indexed = f"UPDATE {table} SET lexemes = ? WHERE number IN "  # noqa: S608
        of = f"q.collection = '{self.name}'"
        self.any_quarantined = f"EXISTS (SELECT 1 FROM {quarantine} AS q WHERE {of})"  # noqa: S608
        self._quarantined = (
            f"SELECT q.tenant, q.id FROM {quarantine} AS q JOIN {table} AS t ON t.tenant = q.tenant AND t.id = q.id "  # noqa: S608
            f"WHERE {of} AND t.row_type = '{CORRUPT}'"
        )
        self._problem = f"SELECT q.problem FROM {quarantine} AS q WHERE {of} AND q.tenant = ? AND q.id = ?"  # noqa: S608
        self._forget = f"DELETE FROM {quarantine} WHERE collection = '{self.name}' AND tenant = ? AND id = ?"  # noqa: S608
        self._quarantine = (
            f"REPLACE INTO {quarantine} (collection, tenant, id, partition_no, problem, found_at, content) "  # noqa: S608
            f"VALUES ('{self.name}', ?, ?, ?, ?, ?, ?)"
        )

    def _exactly(self, columns: Sequence[str]) -> str:
        """Change these columns where the row still has this number and checksum."""
        return f"UPDATE {self.quoted} SET {', '.join([f'`{c}` = ?' for c in columns])} WHERE number = ? AND {self.checksum} = ?"  # noqa: S608

    def conditions(self) -> MyConditions:
        return MyConditions(self.table)

    def with_index_hint(
        self, statement: sa.Select[Any], where: Shape, order: Sequence[Order]
    ) -> sa.Select[Any]:
        """Return the statement with a hint at the index to walk along.

        Both servers would rather look up the partition and begin at its newest record,
        however far behind the page is.
        """
        if where[0] == "partitions" and where[1] == 1 and self.walks_partition(order):
            by = order[0].field
            label = by if by == "created_at" else f"order_{by}"
            return statement.with_hint(self.table, f"FORCE INDEX (`ix_{self.name}_{label}`)", "mysql")
        return statement

    @property
    def matched_columns(self) -> tuple[str, ...]:
        return ("number",)

    # -- finding -----------------------------------------------------------------------

    async def read(self, connection: Connection, sql: str, values: Values) -> Sequence[Columns]:
        return await connection.fetch(sql, *values)

    async def find(self, connection: Connection, key: Key) -> Columns | None:
        return await connection.fetchrow(self._find, key.tenant, id_bytes(key.id))

    async def find_all(
        self, connection: Connection, keys: Sequence[Key], *, lock: bool = False
    ) -> dict[Key, Columns]:
        by_tenant: dict[str, list[str]] = {}
        for key in sorted(keys):
            by_tenant.setdefault(key.tenant, []).append(key.id)
        found: dict[Key, Columns] = {}
        for tenant, ids in by_tenant.items():
            for some in portions(ids, self.thresholds.listed):
                wanted = pad_to_power_of_two(some)
                sql = f"{self._find_many}{in_list(len(wanted))}{' ORDER BY id FOR UPDATE' if lock else ''}"
                found |= {
                    self.codec.key(row): row
                    for row in await connection.fetch(sql, tenant, *map(id_bytes, wanted))
                }
        return found

    async def at_numbers(self, connection: Connection, numbers: Sequence[int]) -> list[Columns]:
        rows: list[Columns] = []
        for some in portions(numbers, self.thresholds.listed):
            wanted = pad_to_power_of_two(some)
            rows += await connection.fetch(f"{self._at}{in_list(len(wanted))}", *wanted)
        return rows

    async def lock_matches(
        self, connection: Connection, sql: str, values: Values
    ) -> AsyncIterator[Sequence[tuple[Columns, bool]]]:
        wanted = {number: bool(passes) for number, passes in await connection.fetch(sql, *values)}
        for some in portions(list(wanted), self.collection.at_once(self.thresholds.listed)):
            yield [(row, wanted[row[NUMBER]]) for row in await self.at_numbers(connection, some)]

    # -- storing -----------------------------------------------------------------------

    def values(self, row: Row, number: int, partition: int | None, segment: int) -> list[Any]:
        """Return the values of every stored column.

        `segment` is the segment of the row's words; 0 means that they wait to be
        indexed.
        """
        length = lexical.length(row.words) if row.words else 0
        lexemes = segment if length and partition is not None else None
        return [
            number,
            *self.codec.values(row, partition),
            partition,
            length,
            None if row.owed is None else 1,
            lexemes,
        ]

    async def insert(self, connection: Connection, rows: Iterable[Numbered], segments: Iterator[int]) -> None:
        """Store new rows, and their words in these segments.

        Every `thresholds.segment` rows take one segment. The rows are made on demand,
        while the server works. It fails with error 1062 where a key is taken already.
        """
        await self._store(connection, rows, "", segments)

    async def replace(
        self, connection: Connection, rows: Sequence[Numbered], segments: Iterator[int]
    ) -> None:
        """Store rows over those of these numbers, and their words in new segments."""
        await self.forget_words(connection, [number for _, number, _ in rows])
        await self._store(connection, rows, self._over, segments)

    async def restate(self, connection: Connection, rows: Sequence[Numbered]) -> None:
        """Store rows with the same contents and other bookkeeping.

        Their words, and the place of these, stay as they are.
        """
        await self._store(connection, rows, self._over_keeping, repeat(0))

    async def swap(self, connection: Connection, row: Row, was: Columns) -> bool:
        """Replace exactly the row that was read by one with other bookkeeping.

        The contents are the same. Returns whether the read row was still there.
        """
        said = self.codec.values(row, was[PARTITION])[: len(self.codec.columns)]
        if said[-1] == self.checksum_of(was):
            return True  # the row has these values already
        return (
            await connection.change(
                self._swap, *said, None if row.owed is None else 1, was[NUMBER], self.checksum_of(was)
            )
            > 0
        )

    async def delete(self, connection: Connection, numbers: Sequence[int]) -> None:
        await self.forget_words(connection, numbers)
        await self._for_each(connection, self._delete, numbers)

    async def _store(
        self, connection: Connection, rows: Iterable[Numbered], over: str, segments: Iterator[int]
    ) -> None:
        """Store rows, and their words in the next of these segments; none if 0."""
        left = iter(rows)
        async with ahead(connection) as sending:
            while first := next(left, None):
                await self._store_together(
                    sending, chain((first,), islice(left, self.thresholds.segment - 1)), over, segments
                )

    async def _store_together(
        self, sending: StatementPipeline, rows: Iterator[Numbered], over: str, segments: Iterator[int]
    ) -> None:
        segment, indexed, most = 0, list[IndexedRow](), self.thresholds.rows_at_once
        while some := [one async for one in iterate_cooperatively(islice(rows, most))]:
            worded = [
                IndexedRow(n, p, row.words)
                for row, n, p in some
                if row.words and p is not None and lexical.length(row.words)
            ]
            if worded and not indexed:
                segment = next(segments)
            indexed += worded
            values = [self.values(*one, segment) async for one in iterate_cooperatively(some)]
            for portion in packets(values, most, self.packet // 2, max(map(_packed_size, values))):
                await sending.send(
                    f"{self._insert} VALUES {', '.join([self._row] * len(portion))}{over}",
                    list(chain.from_iterable(portion)),
                )
        if self.words is not None and segment:
            await self.words.add(sending.send, segment, indexed)

    # -- words -------------------------------------------------------------------------

    async def forget_words(
        self, connection: Connection, numbers: Sequence[int], was: int | None = None
    ) -> None:
        """Delete the words of rows before the rows, which are locked, are changed.

        `was` is the partition of rows that name none any more.
        """
        if self.words is not None:
            await self.words.forget(connection, numbers, was)

    async def say_indexed(self, connection: Connection, numbers: Sequence[int], segment: int) -> None:
        """Note in rows which segment has their words."""
        await self._for_each(connection, self._indexed, numbers, segment)

    async def take_up(self, connection: Connection, segment: int) -> int:
        """Index the words of some waiting records as one segment; return how many.

        It skips records that somebody else is indexing. Call it within a transaction.

        A record's words are some ten rows: together with the record they would need a
        transaction of four round trips. Left for later, sixty records' words are one
        segment and two statements.
        """
        most = self.thresholds.segment
        rows = await connection.fetch(
            f"{self.pending} AND partition_no IS NOT NULL ORDER BY number LIMIT {most} FOR UPDATE SKIP LOCKED"
        )
        if self.words is not None:
            await self.words.add(
                connection.send,
                segment,
                [IndexedRow(number, partition, words) for number, partition, _, words in rows],
            )
        await self.say_indexed(connection, [row[0] for row in rows], segment)
        return len(rows)

    def derived_values(self, columns: Columns) -> tuple[Any, ...] | None:
        """Return the values of `DERIVED` for this row, with its words still to index.

        Returns None for a row that cannot be read.
        """
        row, problem = self.read_row(columns)
        if problem and row.type != CORRUPT:
            return None
        texts = row.type == RECORD and self.collection.texts
        row = row._replace(words=lexical.index(self.collection, row.texts) if texts else None)
        return tuple(self.values(row, 0, columns[PARTITION], 0)[-len(DERIVED) :])

    async def derive_anew(self, connection: Connection, columns: Columns) -> None:
        """Rebuild a locked, unchanged row's derived data: it waits to be indexed."""
        number, values = columns[NUMBER], self.derived_values(columns)
        await self.forget_words(connection, [number], columns[PARTITION])
        changes = ", ".join([f"{name} = ?" for name in DERIVED])
        await connection.change(f"UPDATE {self.quoted} SET {changes} WHERE number = ?", *values or (), number)  # noqa: S608

    # -- tombstones, and the quarantine ------------------------------------------------

    async def delete_over(self, connection: Connection, tombstones: Sequence[tuple[StoredRow, Row]]) -> None:
        await self.replace(
            connection, [(row, held.token[NUMBER], None) for held, row in tombstones], repeat(0)
        )
        await self.forget_quarantined(connection, [held.token for held, _ in tombstones])

    async def quarantine(self, connection: Connection, unreadable: DamagedRow) -> None:
        columns, key = unreadable.columns, unreadable.key
        number, partition = columns[NUMBER], columns[PARTITION]
        said = self.codec.values(corrupt_row(key, self.codec.version(columns)))[: len(self.codec.columns)]
        if not await connection.change(
            self._bare, *said, 0, None, 0, None, number, self.checksum_of(columns)
        ):
            return
        kept = json.dumps(dict(zip(self.columns, map(_plain, columns), strict=False)))
        await connection.change(
            self._quarantine, said[0], said[1], partition, unreadable.problem, micros(system_clock()), kept
        )
        await self.forget_words(connection, [number], partition)
        await connection.change(
            f"UPDATE {self.quoted} SET lexemes = NULL, words = NULL WHERE number = ?",  # noqa: S608
            number,
        )

    async def forget_quarantined(self, connection: Connection, rows: Sequence[Columns]) -> None:
        """Delete the quarantined copies of these rows, if there are any."""
        for columns in rows:
            if self.codec.is_quarantined(columns):
                await connection.change(self._forget, columns[0], columns[1])

    async def quarantined_keys(
        self, connection: Connection, where: Where, partitions: Sequence[int]
    ) -> list[Key]:
        rows: list[tuple[Any, ...]] = []
        if isinstance(where, Everywhere):
            rows += await connection.fetch(self._quarantined)
        elif isinstance(where, Tenant):
            rows += await connection.fetch(f"{self._quarantined} AND q.tenant = ?", where.tenant)
        else:
            for some in portions(partitions, self.thresholds.listed):
                wanted = pad_to_power_of_two(some)
                rows += await connection.fetch(
                    f"{self._quarantined} AND q.partition_no IN {in_list(len(wanted))}", *wanted
                )
        return sorted(map(self.codec.key, rows))

    async def problem(self, connection: Connection, key: Key) -> str | None:
        problem = await connection.fetchval(self._problem, key.tenant, id_bytes(key.id))
        return None if problem is None else to_text(problem)

    async def _for_each(self, connection: Connection, sql: str, numbers: Sequence[int], *before: Any) -> None:
        for some in portions(sorted(numbers), self.thresholds.listed):
            wanted = pad_to_power_of_two(some)
            await connection.change(f"{sql}{in_list(len(wanted))}", *before, *wanted)


def _on_duplicate(columns: Sequence[str]) -> str:
    return " ON DUPLICATE KEY UPDATE " + ", ".join([f"`{c}` = VALUES(`{c}`)" for c in columns])


def _packed_size(values: Sequence[Any]) -> int:
    """Return a row's largest size in a packet in bytes: four for a character."""
    return 9 * len(values) + sum(
        [4 * len(v) if v.__class__ is str else len(v) for v in values if v.__class__ in (str, bytes)]
    )


def _plain(value: Any) -> Any:
    """Return a value of an unreadable row in a form that JSON can hold."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
