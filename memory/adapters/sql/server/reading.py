"""Reading by key and by query, and what a query matches for deleting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from memory.adapters.sql.server.partitions import Directory
from memory.adapters.sql.server.questions import matches, page, totals
from memory.adapters.sql.server.table import Columns, Table, Unreadable
from memory.ports.batch import slot_of
from memory.ports.deciding import tombstone_over
from memory.ports.pace import paced
from memory.ports.query import Count, Everywhere, Head, Page, Partitions, Query, Where, encode_cursor
from memory.ports.record import Corrupt, Key, Stored
from memory.ports.rows import Row, row_of

AnyTable: TypeAlias = Table[Any]
AnyDirectory: TypeAlias = Directory[Any]


async def get(connection: Any, table: AnyTable, keys: Sequence[Key]) -> tuple[list[Stored | None], list[Unreadable]]:
    """What stands under each key, and what was found unreadable just now."""
    if len(keys) == 1:
        columns = await table.find(connection, keys[0])
        rows = {} if columns is None else {keys[0]: columns}
    else:
        rows = await table.find_all(connection, keys)
    answers: list[Stored | None] = []
    unreadable: list[Unreadable] = []
    async for key in paced(keys):
        found = rows.get(key)
        stored = None if found is None else table.stored(found)
        if found is not None and isinstance(stored, Corrupt):
            if table.codec.is_quarantined(found):
                stored = Corrupt(key, await table.problem(connection, key) or stored.problem)
            else:
                stored = Corrupt(key, stored.problem)
                unreadable.append(Unreadable(found, key, stored.problem))
        answers.append(stored)
    return answers, unreadable


# -- queries ----------------------------------------------------------------------------------------------------------


async def partitions_of(connection: Any, directory: AnyDirectory, where: Where) -> list[int] | None:
    """The numbers of the asked partitions; None where the question is wider than partitions."""
    return await directory.numbers(connection, where) if isinstance(where, Partitions) else None


async def query(connection: Any, table: AnyTable, directory: AnyDirectory, query: Query) -> tuple[Page, list[Unreadable]]:
    """One page, and what was found unreadable while reading it: then the page is to be read again."""
    partitions = await partitions_of(connection, directory, query.where)
    if partitions == []:
        return Page(()), []
    selection = None if query.select is None else table.selection(query.select)
    columns = table.columns if selection is None else selection.with_order(query.order)
    at = {name: i for i, name in enumerate(columns)}
    rows, more = await _rows(connection, table, query, partitions or (), columns, at)
    answers: list[Stored] = []
    unreadable: list[Unreadable] = []
    heads: list[Head] = []
    if selection is not None:
        heads = [head async for row in paced(rows) if (head := selection.read(dict(zip(columns, row, strict=False)))) is not None]
    async for row in paced(rows if selection is None else ()):
        stored = table.stored(row)
        if isinstance(stored, Corrupt):
            unreadable.append(Unreadable(row[:-1], stored.key, stored.problem))
        else:
            answers.append(stored)
    cursor = None
    if more and rows:
        last = rows[-1]
        cursor = encode_cursor(table.shaper.position(query.order, last, at), table.shaper.shown("id", last[at["id"]]))
    corrupt: list[Key] = []
    if not rows or rows[0][-1]:
        corrupt = await table.quarantined(connection, query.where, partitions or ())
    corrupt += [u.key for u in unreadable if u.key not in corrupt]
    return Page(tuple(answers), cursor, tuple(corrupt), tuple(heads)), unreadable


async def _rows(
    connection: Any, table: AnyTable, query: Query, partitions: Sequence[int], columns: tuple[str, ...], at: Mapping[str, int]
) -> tuple[Sequence[Columns], bool]:
    """The rows of a page in order, and whether there are more behind it."""
    limit = query.limit
    take = limit + 1
    while True:
        question = page(table, query, partitions, take, columns)
        rows = await table.read(connection, question.sql, question.arguments)
        if len(rows) < take:
            return rows, False
        if not isinstance(query.where, Everywhere):
            return rows[:limit], True
        # A cursor names no tenant: records of several tenants under one id and one sort value stay on one page, or some would be lost.
        places = [(*[table.shaper.value_in(row, o.field, at) for o in query.order], row[at["id"]]) for row in rows]
        end = limit
        while end < len(places) and places[end] == places[end - 1]:
            end += 1
        if end < len(places):
            return rows[:end], True
        take *= 2


async def count(connection: Any, table: AnyTable, directory: AnyDirectory, query: Query) -> Count:
    partitions = await partitions_of(connection, directory, query.where)
    if partitions == []:
        return Count(0, 0)
    question = totals(table, query, partitions or ())
    ((records, size),) = await table.read(connection, question.sql, question.arguments)
    return Count(int(records), int(size))


# -- deleting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deletion:
    """What `delete_matching` was asked."""

    query: Query
    version: int
    discard_at: datetime | None
    carry: frozenset[str]


async def delete_matching(connection: Any, table: AnyTable, directory: AnyDirectory, deletion: Deletion) -> int:
    """Tombstones for what matches and for every corrupt record there, whatever the filter. Within a transaction."""
    where = deletion.query.where
    partitions = await partitions_of(connection, directory, where)
    if partitions == []:
        return 0
    question = matches(table, deletion.query, partitions or (), table.matched_columns)
    deleted = 0
    async for rows in table.matching(connection, question.sql, question.arguments):
        tombstones = [(row, t) async for row, wanted in paced(rows) if (t := _tombstone(table, row, wanted, deletion)) is not None]
        await table.delete_over(connection, tombstones)
        deleted += len(tombstones)
    left: list[tuple[Columns, Row]] = []
    for key in await table.quarantined(connection, where, partitions or ()):
        found = await table.find(connection, key)
        if found is not None and table.codec.is_quarantined(found) and (row := _tombstone(table, found, True, deletion)) is not None:
            left.append((found, row))
    await table.delete_over(connection, left)
    return deleted + len(left)


def _tombstone(table: AnyTable, columns: Columns, wanted: bool, deletion: Deletion) -> Row | None:
    """What is left of a row; None where it stays."""
    key = table.codec.key(columns)
    slot = slot_of(table.collection, key, table.held(columns))
    if not wanted and not isinstance(slot.stored, Corrupt):
        return None
    return row_of(table.collection, tombstone_over(key, slot, deletion.version, deletion.discard_at, deletion.carry))
