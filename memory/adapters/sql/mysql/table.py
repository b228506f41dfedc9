"""One collection's statements: how its rows are found, stored and set aside, and its words with them.

A row's words stand in a table of their own (`words`), in the order in which searches read them: an index that finds and counts exactly our words, of
exactly one partition. What changes a row changes them in the same transaction. Only a single new record is stored by one statement; it says of itself
that its words are still to come, searches read such rows themselves, and every few of them are taken up together (`pending`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from memory.adapters.sql.mysql.asking import MyConditions, MyShaper
from memory.adapters.sql.mysql.connection import Ahead, Connection, ahead
from memory.adapters.sql.mysql.rows import HEAD_DECODERS, KIND, NUMBER, PARTITION, VERSION, Content, Layout, Row, layout_of, shown
from memory.adapters.sql.mysql.schema import table_of
from memory.adapters.sql.mysql.several import in_list, packets, padded, portions
from memory.adapters.sql.mysql.thresholds import Thresholds
from memory.adapters.sql.mysql.words import Indexed, WordTable
from memory.adapters.sql.server.shelf import Shelf, Spoiled
from memory.adapters.sql.shapes import Shape, Values
from memory.adapters.sql.values import CORRUPT
from memory.domain.time import micros
from memory.ports.clock import system_clock
from memory.ports.collections import Collection
from memory.ports.pace import paced
from memory.ports.query import Everywhere, Order, Tenant, Where
from memory.ports.record import Key, Tombstone


class MyShelf(Shelf[Connection]):
    """The statements of one collection. `packet` is the largest statement the server takes, in bytes."""

    dialect: ClassVar[sa.Dialect] = mysql.dialect(paramstyle="qmark")
    layout: Layout
    thresholds: Thresholds

    def __init__(self, collection: Collection, collation: str, packet: int, thresholds: Thresholds) -> None:
        layout = layout_of(collection)
        shaper = MyShaper(collection, layout.at, thresholds.values_written_out)
        super().__init__(collection, table_of(collection, collation), layout, shaper, layout.columns, HEAD_DECODERS, thresholds)
        self.packet = packet
        self.words = WordTable(collection, layout.parts, packet, thresholds) if collection.texts else None
        table = f"`{self.name}`"
        stored = layout.stored_columns
        columns = ", ".join([f"`{c}`" for c in layout.columns])
        self._find = f"SELECT {columns} FROM {table} WHERE tenant = ? AND id = ?"  # noqa: S608
        self._find_many = f"SELECT {columns} FROM {table} WHERE tenant = ? AND id IN "  # noqa: S608
        self._at = f"SELECT {columns} FROM {table} WHERE number IN "  # noqa: S608
        self._insert = f"INSERT INTO {table} ({', '.join([f'`{c}`' for c in stored])}) "
        self._row = in_list(len(stored))
        self._over = _on_duplicate(stored)
        self._over_keeping = _on_duplicate([c for c in stored if c not in ("words", "lexemes")])
        number = (
            "(SELECT CAST(? AS SIGNED) FROM memory_partitions AS p WHERE p.number = ? AND p.tenant = ? AND p.scope = ? "
            "AND (p.generation = ? OR (? AND p.generation < ?)) LOCK IN SHARE MODE)"
        )
        self.put_absent = f"{self._insert} VALUES ({number}, {', '.join('?' * (len(stored) - 1))})"
        kept = ", ".join([f"`{c}` = ?" for c in stored if c not in ("number", "words", "lexemes")])
        self._swap = f"UPDATE {table} SET {kept} WHERE number = ? AND {layout.columns[-1]} = ?"  # noqa: S608
        self._bare = f"{self._swap} AND record_kind <> '{CORRUPT}'"
        self._delete = f"DELETE FROM {table} WHERE number IN "  # noqa: S608
        texts = "".join([f", `text_{p.name}`" for p in collection.texts])
        self.pending = f"SELECT number, partition_no, role, words{texts} FROM {table} WHERE lexemes = 0"  # noqa: S608
        self._indexed = f"UPDATE {table} SET lexemes = ? WHERE number IN "  # noqa: S608
        of = f"q.collection = '{self.name}'"
        self.any_aside = f"EXISTS (SELECT 1 FROM memory_quarantine AS q WHERE {of})"  # noqa: S608
        self._aside = (
            f"SELECT q.tenant, q.id FROM memory_quarantine AS q JOIN {table} AS t ON t.number = q.number "  # noqa: S608
            f"WHERE {of} AND t.record_kind = '{CORRUPT}'"
        )
        self._problem = f"SELECT q.problem FROM memory_quarantine AS q WHERE {of} AND q.number = ?"  # noqa: S608
        self._forget_aside = f"DELETE FROM memory_quarantine WHERE collection = '{self.name}' AND number IN "  # noqa: S608
        self._set_aside = (
            f"REPLACE INTO memory_quarantine (collection, number, tenant, id, partition_no, problem, found_at, content) "  # noqa: S608
            f"VALUES ('{self.name}', ?, ?, ?, ?, ?, ?, ?)"
        )

    def conditions(self) -> MyConditions:
        return MyConditions(self.table)

    def walked(self, statement: sa.Select[Any], where: Shape, order: Sequence[Order]) -> sa.Select[Any]:
        """Both servers would rather look up the partition and begin at its newest record, however far behind the page is."""
        if where[0] == "partitions" and where[1] == 1 and [o.field for o in order] == ["created_at"]:
            return statement.with_hint(self.table, f"FORCE INDEX (`ix_{self.name}_created_at`)", "mysql")
        return statement

    def shown(self, text: Any) -> str:
        return shown(text)

    @property
    def matched_columns(self) -> Sequence[sa.ColumnElement[Any]]:
        return (self.table.c.number,)

    # -- finding ------------------------------------------------------------------------------------------------------

    async def read(self, connection: Connection, sql: str, values: Values) -> Sequence[Row]:
        return await connection.fetch(sql, *values)

    async def find(self, connection: Connection, key: Key) -> Row | None:
        return await connection.fetchrow(self._find, key.tenant, key.id)

    async def find_all(self, connection: Connection, keys: Sequence[Key], *, lock: bool = False) -> dict[Key, Row]:
        """The rows under the keys; locked in the order of their keys where asked."""
        by_tenant: dict[str, list[str]] = {}
        for key in sorted(keys):
            by_tenant.setdefault(key.tenant, []).append(key.id)
        found: dict[Key, Row] = {}
        for tenant, ids in by_tenant.items():
            for some in portions(ids, self.thresholds.listed):
                wanted = padded(some)
                sql = f"{self._find_many}{in_list(len(wanted))}{' ORDER BY id FOR UPDATE' if lock else ''}"
                found |= {self.key(row): row for row in await connection.fetch(sql, tenant, *wanted)}
        return found

    async def at_numbers(self, connection: Connection, numbers: Sequence[int]) -> list[Row]:
        rows: list[Row] = []
        for some in portions(numbers, self.thresholds.listed):
            wanted = padded(some)
            rows += await connection.fetch(f"{self._at}{in_list(len(wanted))}", *wanted)
        return rows

    async def matching(self, connection: Connection, sql: str, values: Values) -> AsyncIterator[Sequence[tuple[Row, bool]]]:
        wanted = {number: bool(passes) for number, passes in await connection.fetch(sql, *values)}
        for some in portions(list(wanted), self.thresholds.listed):
            yield [(row, wanted[row[NUMBER]]) for row in await self.at_numbers(connection, some)]

    # -- storing ------------------------------------------------------------------------------------------------------

    async def insert(self, connection: Connection, contents: Iterable[tuple[Content, int]], segments: Iterator[int]) -> None:
        """Store new rows under these numbers, and their words in these segments, of which every `thresholds.segment` rows take one.

        The rows are made as they are asked for, while the server works. Fails with error 1062 where something stands under a key already.
        """
        await self._store(connection, contents, "", segments)

    async def replace(self, connection: Connection, contents: Sequence[tuple[Content, int]], segments: Iterator[int]) -> None:
        """Store rows over those of these numbers, and their words in new segments."""
        await self.forget_words(connection, [number for _, number in contents])
        await self._store(connection, contents, self._over, segments)

    async def restate(self, connection: Connection, contents: Sequence[tuple[Content, int]]) -> None:
        """Store rows that say the same with other bookkeeping: their words, and where these are, stay as they are."""
        await self._store(connection, contents, self._over_keeping, repeat(0))

    async def swap(self, connection: Connection, content: Content, was: Row) -> bool:
        """Replace exactly the row that was read by one that says the same with other bookkeeping; whether it still stood there."""
        return await self._swapped(connection, self._swap, content, was)

    async def delete(self, connection: Connection, numbers: Sequence[int]) -> None:
        await self.forget_words(connection, numbers)
        await self._for_each(connection, self._delete, numbers)

    async def _swapped(self, connection: Connection, sql: str, content: Content, was: Row) -> bool:
        values = self.layout.sealed(content, was[NUMBER], 0)
        stored, checksum = values[1:-4], was[-1]
        if stored[-1] == checksum:
            return True  # the row is like that already
        size, owing = values[-3], values[-2]
        return await connection.change(sql, *stored, size, owing, was[NUMBER], checksum) > 0

    async def _store(self, connection: Connection, contents: Iterable[tuple[Content, int]], over: str, segments: Iterator[int]) -> None:
        """Store rows, and their words in the next of these segments; in none where that is 0."""
        left = iter(contents)
        async with ahead(connection) as sending:
            while first := next(left, None):
                await self._store_together(sending, chain((first,), islice(left, self.thresholds.segment - 1)), over, segments)

    async def _store_together(self, sending: Ahead, contents: Iterator[tuple[Content, int]], over: str, segments: Iterator[int]) -> None:
        segment, indexed, most = 0, list[Indexed](), self.thresholds.rows_at_once
        while some := [one async for one in paced(islice(contents, most))]:
            worded = [Indexed(n, c.row[PARTITION], c.words, c.counts) for c, n in some if c.counts and c.row[PARTITION] is not None]
            if worded and not indexed:
                segment = next(segments)
            indexed += worded
            rows = [self.layout.sealed(content, number, segment) async for content, number in paced(some)]
            for portion in packets(rows, most, self.packet // 2, max(map(self.layout.packed_size, rows))):
                await sending.send(f"{self._insert} VALUES {', '.join([self._row] * len(portion))}{over}", list(chain.from_iterable(portion)))
        if self.words is not None and segment:
            await self.words.add(sending.send, segment, indexed)

    # -- words --------------------------------------------------------------------------------------------------------

    async def forget_words(self, connection: Connection, numbers: Sequence[int], was: int | None = None) -> None:
        """Before their rows, which are locked, are changed. `was` is the partition of those whose rows name none any more."""
        if self.words is not None:
            await self.words.forget(connection, numbers, was)

    async def say_indexed(self, connection: Connection, numbers: Sequence[int], segment: int | None) -> None:
        """Say of rows in which segment their words are; None where they have none."""
        await self._for_each(connection, self._indexed, numbers, segment)

    async def derive_anew(self, connection: Connection, row: Row) -> None:
        """Make anew what is derived from a row that is locked and stands as it was read: it waits to be indexed."""
        number = row[NUMBER]
        content = self.layout.anew(self.layout.read(row), row)
        await self.forget_words(connection, [number], row[PARTITION])
        words, size, owing, _ = self.layout.sealed(content, number, 0)[-4:]
        sql = f"UPDATE `{self.name}` SET words = ?, bytes = ?, owing = ?, lexemes = ? WHERE number = ?"  # noqa: S608
        await connection.change(sql, words, size, owing, 0 if content.counts else None, number)

    # -- tombstones, and rows set aside -------------------------------------------------------------------------------

    async def bury(self, connection: Connection, graves: Sequence[tuple[Row, Tombstone]]) -> None:
        contents = [(self.layout.tombstone(tombstone), row[NUMBER]) async for row, tombstone in paced(graves)]
        await self.replace(connection, contents, repeat(0))
        await self.forget_aside(connection, [row for row, _ in graves])

    async def set_aside(self, connection: Connection, spoiled: Spoiled) -> None:
        row = spoiled.row
        if not await self._swapped(connection, self._bare, self.layout.corrupt(spoiled.key, row[VERSION]), row):
            return
        found_at = micros(system_clock())
        kept = json.dumps(dict(zip(self.layout.columns, map(_plain, row), strict=False)))
        key = spoiled.key
        await connection.change(self._set_aside, row[NUMBER], key.tenant, key.id, row[PARTITION], spoiled.problem, found_at, kept)
        await self.forget_words(connection, [row[NUMBER]], row[PARTITION])
        await self.say_indexed(connection, [row[NUMBER]], None)

    async def forget_aside(self, connection: Connection, rows: Sequence[Row]) -> None:
        """What was set aside of these rows, where anything was."""
        await self._for_each(connection, self._forget_aside, [row[NUMBER] for row in rows if row[KIND] == CORRUPT.encode()])

    async def aside(self, connection: Connection, where: Where, partitions: Sequence[int]) -> list[Key]:
        rows: list[tuple[Any, ...]] = []
        if isinstance(where, Everywhere):
            rows += await connection.fetch(self._aside)
        elif isinstance(where, Tenant):
            rows += await connection.fetch(f"{self._aside} AND q.tenant = ?", where.tenant)
        else:
            for some in portions(partitions, self.thresholds.listed):
                wanted = padded(some)
                rows += await connection.fetch(f"{self._aside} AND q.partition_no IN {in_list(len(wanted))}", *wanted)
        return sorted([Key(shown(tenant), shown(record_id)) for tenant, record_id in rows])

    async def problem(self, connection: Connection, key: Key) -> str | None:
        row = await self.find(connection, key)
        problem = None if row is None else await connection.fetchval(self._problem, row[NUMBER])
        return None if problem is None else shown(problem)

    async def _for_each(self, connection: Connection, sql: str, numbers: Sequence[int], *before: Any) -> None:
        for some in portions(sorted(numbers), self.thresholds.listed):
            wanted = padded(some)
            await connection.change(f"{sql}{in_list(len(wanted))}", *before, *wanted)


def _on_duplicate(columns: Sequence[str]) -> str:
    return " ON DUPLICATE KEY UPDATE " + ", ".join([f"`{c}` = VALUES(`{c}`)" for c in columns if c != "number"])


def _plain(value: Any) -> Any:
    """A value of an unreadable row as JSON holds it."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
