"""Reading by key and by query, and deleting the matches of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from memory.adapters.sql.partitions import Directory
from memory.adapters.sql.questions import due_question, matches, page, passing_at_most, totals
from memory.adapters.sql.shapes import Shape, Values, bounds_in, by_body
from memory.adapters.sql.table import Columns, DamagedRow, Table
from memory.ports.batch import StoredRow, slot_of
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Count, Everywhere, Head, Page, Partitions, Query, Under, Where, encode_cursor
from memory.ports.record import Corrupt, Key, Stored
from memory.ports.rows import Row, row_of
from memory.ports.write_decision import tombstone_over

AnyTable: TypeAlias = Table[Any]
AnyDirectory: TypeAlias = Directory[Any]


async def get(
    connection: Any, table: AnyTable, keys: Sequence[Key]
) -> tuple[list[Stored | None], list[DamagedRow]]:
    """Return the record under each key, and the rows found unreadable just now."""
    unreadable: list[DamagedRow] = []
    if len(keys) == 1:
        return [
            await _decode_stored(
                connection, table, keys[0], await table.find(connection, keys[0]), unreadable
            )
        ], unreadable
    rows = await table.find_all(connection, keys)
    return [
        await _decode_stored(connection, table, key, rows.get(key), unreadable)
        async for key in iterate_cooperatively(keys)
    ], unreadable


async def _decode_stored(
    connection: Any, table: AnyTable, key: Key, found: Columns | None, unreadable: list[DamagedRow]
) -> Stored | None:
    """Return the contents of the row found under the key.

    A row that cannot be read just now is added to `unreadable`.
    """
    if found is None:
        return None
    stored = slot_of(table.collection, key, table.held_in(found, key)).stored_value
    if not isinstance(stored, Corrupt):
        return stored
    if table.codec.is_quarantined(found):
        return Corrupt(key, await table.problem(connection, key) or stored.problem)
    unreadable.append(DamagedRow(found, key, stored.problem))
    return Corrupt(key, stored.problem)


# -- queries ---------------------------------------------------------------------------


async def partitions_of(connection: Any, directory: AnyDirectory, where: Where) -> list[int] | None:
    """Return the numbers of the requested partitions; None for a wider query."""
    return await directory.numbers(connection, where) if isinstance(where, Partitions | Under) else None


async def query(
    connection: Any, table: AnyTable, directory: AnyDirectory, query: Query
) -> tuple[Page, list[DamagedRow]]:
    """Return one page, and the rows found unreadable while reading it.

    With unreadable rows, the page must be read again.
    """
    partitions = await partitions_of(connection, directory, query.where)
    if partitions == []:
        return Page(()), []
    selection = None if query.select is None else table.selection(query.select)
    columns = table.columns if selection is None else selection.with_order(query.order)
    at = {name: i for i, name in enumerate(columns)}
    rows, more = await _rows(connection, table, query, partitions or (), columns, at)
    answers: list[Stored] = []
    unreadable: list[DamagedRow] = []
    heads: list[Head] = []
    if selection is not None:
        heads = [
            head
            async for row in iterate_cooperatively(rows)
            if (head := selection.read(dict(zip(columns, row, strict=False)))) is not None
        ]
    async for row in iterate_cooperatively(rows if selection is None else ()):
        stored = table.stored_in(row)
        if isinstance(stored, Corrupt):
            unreadable.append(DamagedRow(row[:-1], stored.key, stored.problem))
        else:
            answers.append(stored)
    cursor = None
    if more and rows:
        last = rows[-1]
        cursor = encode_cursor(
            table.shaper.position(query.order, last, at), table.shaper.field_value("id", last[at["id"]])
        )
    corrupt: list[Key] = []
    if not rows or rows[0][-1]:
        corrupt = await table.quarantined_keys(connection, query.where, partitions or ())
    corrupt += [u.key for u in unreadable if u.key not in corrupt]
    return Page(tuple(answers), cursor, tuple(corrupt), tuple(heads)), unreadable


async def _bound_of_few(connection: Any, table: AnyTable, query: Query) -> Shape | None:
    """Return a bound of the query on an indexed value in bodies that few rows pass."""
    most = table.few_passing
    if not most or not table.shaper.json_paths or by_body(table.shaper.filter(query.filter, [])):
        return None
    for bound in bounds_in(query.filter):
        values: Values = []
        shape = table.shaper.filter(bound, values)
        if bound.parts in table.shaper.json_paths:
            asked = passing_at_most(table, shape, values, most)
            ((passing,),) = await table.read(connection, asked.sql, asked.arguments)
            if passing < most:
                return shape
    return None


async def _rows(
    connection: Any,
    table: AnyTable,
    query: Query,
    partitions: Sequence[int],
    columns: tuple[str, ...],
    at: Mapping[str, int],
) -> tuple[Sequence[Columns], bool]:
    """Return the rows of a page in order, and whether there are more after it."""
    limit = query.limit
    take = limit + 1
    few = await _bound_of_few(connection, table, query)
    chosen = table.paged_columns(query, partitions, columns, few)
    while True:
        question = page(table, query, partitions, take, chosen, few)
        rows = await table.read(connection, question.sql, question.arguments)
        full = len(rows) == take
        if chosen != columns:
            rows = await table.read_page(connection, rows)
        if not full:
            return rows, False
        if not isinstance(query.where, Everywhere):
            return rows[:limit], True
        # A cursor has no tenant. So records of several tenants with one id and one sort
        # value stay on one page; otherwise some would be lost.
        places = [
            (*[table.shaper.value_in(row, o.field, at) for o in query.order], row[at["id"]]) for row in rows
        ]
        end = limit
        while end < len(places) and places[end] == places[end - 1]:
            end += 1
        if end < len(places):
            return rows[:end], True
        take *= 2


async def may_be_due(
    connection: Any, tables: Sequence[AnyTable], now: datetime, expired: Mapping[Collection, datetime]
) -> bool:
    """Whether a row in one of these tables may be due, see `Store.due`."""
    if not tables:
        return False
    asked = due_question(
        tables, [table.collection in expired for table in tables], [now, max(expired.values(), default=now)]
    )
    ((found,),) = await tables[0].read(connection, asked.sql, asked.arguments)
    return bool(found)


async def count(connection: Any, table: AnyTable, directory: AnyDirectory, query: Query) -> Count:
    partitions = await partitions_of(connection, directory, query.where)
    if partitions == []:
        return Count(0, 0)
    question = totals(table, query, partitions or ())
    ((records, size),) = await table.read(connection, question.sql, question.arguments)
    return Count(int(records), int(size))


# -- deleting --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deletion:
    """The arguments of `delete_matching`."""

    query: Query
    version: int
    discard_at: datetime | None
    carry: frozenset[str]


async def delete_matching(
    connection: Any, table: AnyTable, directory: AnyDirectory, deletion: Deletion
) -> int:
    """Replace matches with tombstones, and every corrupt record there too.

    Corrupt records go even if the filter does not match them. Call it within a
    transaction.
    """
    where = deletion.query.where
    partitions = await partitions_of(connection, directory, where)
    if partitions == []:
        return 0
    question = matches(table, deletion.query, partitions or (), table.matched_columns)
    deleted = 0
    async for rows in table.lock_matches(connection, question.sql, question.arguments):
        tombstones = [
            t
            async for row, wanted in iterate_cooperatively(rows)
            if (t := _tombstone(table, table.codec.key(row), row, wanted, deletion)) is not None
        ]
        await table.delete_over(connection, tombstones)
        deleted += len(tombstones)
    left: list[tuple[StoredRow, Row]] = []
    for key in await table.quarantined_keys(connection, where, partitions or ()):
        found = await table.find(connection, key)
        if (
            found is not None
            and table.codec.is_quarantined(found)
            and (t := _tombstone(table, key, found, True, deletion)) is not None
        ):
            left.append(t)
    await table.delete_over(connection, left)
    return deleted + len(left)


def _tombstone(
    table: AnyTable, key: Key, columns: Columns, wanted: bool, deletion: Deletion
) -> tuple[StoredRow, Row] | None:
    """Return a held row and its tombstone; None where the row stays."""
    held = table.held_in(columns, key)
    slot = slot_of(table.collection, key, held)
    if not wanted and not isinstance(slot.stored_value, Corrupt):
        return None
    return held, row_of(
        table.collection, tombstone_over(key, slot, deletion.version, deletion.discard_at, deletion.carry)
    )
