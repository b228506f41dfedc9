"""Reading by key and by query, and what a query matches for deleting."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory.adapters.sql.columns import field_column
from memory.adapters.sql.postgresql.places import Places
from memory.adapters.sql.postgresql.pool import Connection
from memory.adapters.sql.postgresql.questions import matches, page, totals
from memory.adapters.sql.postgresql.rows import ID, KIND, PARTITION, TENANT, VERSION, Content, Row
from memory.adapters.sql.postgresql.shelf import ALWAYS, Shelf
from memory.adapters.sql.postgresql.values import checked, unescape
from memory.adapters.sql.postgresql.writing import parameters
from memory.adapters.sql.values import CORRUPT
from memory.ports.clock import system_clock
from memory.ports.query import Count, Everywhere, Page, Partitions, Query, Tenant, Where, encode_cursor
from memory.ports.record import Corrupt, JsonValue, Key, Stored, Tombstone

MOST_ROWS = 500
"""Rows deleted by one statement."""


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A row found unreadable, as it was read: to be set aside."""

    shelf: Shelf
    row: Row
    key: Key
    problem: str


async def get(connection: Connection, shelf: Shelf, keys: Sequence[Key]) -> tuple[list[Stored | None], list[Spoiled]]:
    """What stands under each key, and what was found unreadable just now."""
    rows: dict[Key, Row] = {}
    if len(keys) == 1:
        row = await connection.fetchrow(shelf.find, checked(keys[0].tenant), checked(keys[0].id))
        rows = {} if row is None else {keys[0]: row}
    else:
        wanted: dict[str, list[str]] = {}
        for key in keys:
            wanted.setdefault(key.tenant, []).append(checked(key.id))
        for tenant, ids in wanted.items():
            rows |= {Key(tenant, unescape(r[ID])): r for r in await connection.fetch(shelf.find_many, checked(tenant), ids)}
    answers: list[Stored | None] = []
    spoiled: list[Spoiled] = []
    for key in keys:
        found = rows.get(key)
        stored = None if found is None else shelf.layout.read(found)
        if found is not None and isinstance(stored, Corrupt):
            if found[KIND] == CORRUPT:
                problem = await connection.fetchval(shelf.problem, checked(key.tenant), checked(key.id))
                stored = Corrupt(key, str(problem or "set aside earlier"))
            else:
                spoiled.append(Spoiled(shelf, found, key, stored.problem))
        answers.append(stored)
    return answers, spoiled


async def set_aside(connection: Connection, spoiled: Sequence[Spoiled]) -> None:
    """Move rows that still read as they did out of the way: a copy into the quarantine, a bare row in their place."""
    for one in spoiled:
        content = Content(one.shelf.layout.corrupt(one.key, one.row[VERSION]).row)
        kept = json.dumps(dict(zip(one.shelf.layout.columns, map(_plain, one.row), strict=False)))
        values = parameters(one.shelf, content)
        await connection.fetchval(one.shelf.set_aside, *values, one.row[-1], one.row[PARTITION], one.problem, system_clock(), kept)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value.isoformat() if isinstance(value, datetime) else value


# -- queries ----------------------------------------------------------------------------------------------------------


async def partitions_of(connection: Connection, places: Places, where: Where) -> list[int] | None:
    """The numbers of the asked partitions; None where the question is wider than partitions."""
    return await places.numbers(connection, where) if isinstance(where, Partitions) else None


async def query(connection: Connection, shelf: Shelf, places: Places, query: Query) -> tuple[Page, list[Spoiled]]:
    """One page, and what was found unreadable while reading it: then the page is to be read again."""
    partitions = await partitions_of(connection, places, query.where)
    if partitions == []:
        return Page(()), []
    rows, more = await _rows(connection, shelf, query, partitions or ())
    answers: list[Stored] = []
    spoiled: list[Spoiled] = []
    for row in rows:
        stored = shelf.layout.read(row)
        if isinstance(stored, Corrupt):
            spoiled.append(Spoiled(shelf, row[:-1], stored.key, stored.problem))
        else:
            answers.append(stored)
    cursor = None
    if more and rows:
        cursor = encode_cursor(shelf.shaper.position(query.order, rows[-1]), unescape(rows[-1][ID]))
    corrupt: list[Key] = []
    if not rows or rows[0][-1]:
        corrupt = await aside(connection, shelf, query.where, partitions or ())
    corrupt += [s.key for s in spoiled if s.key not in corrupt]
    return Page(tuple(answers), cursor, tuple(corrupt)), spoiled


async def _rows(connection: Connection, shelf: Shelf, query: Query, partitions: Sequence[int]) -> tuple[Sequence[Row], bool]:
    """The rows of a page in order, and whether there are more behind it."""
    limit = query.limit
    take = None if limit is None else limit + 1
    while True:
        question = page(shelf, query, partitions, take)
        rows = await connection.fetch(question.sql, *question.arguments)
        if limit is None or take is None or len(rows) < take:
            return rows, False
        if not isinstance(query.where, Everywhere):
            return rows[:limit], True
        # A cursor names no tenant: records of several tenants under one id and one sort value stay on one page, or some would be lost.
        places = [(*[shelf.shaper.value_in(row, o.field) for o in query.order], row[ID]) for row in rows]
        end = limit
        while end < len(places) and places[end] == places[end - 1]:
            end += 1
        if end < len(places):
            return rows[:end], True
        take *= 2


async def aside(connection: Connection, shelf: Shelf, where: Where, partitions: Sequence[int]) -> list[Key]:
    """The keys of the rows set aside there."""
    if isinstance(where, Everywhere):
        rows = await connection.fetch(shelf.aside.format("true"))
    elif isinstance(where, Tenant):
        rows = await connection.fetch(shelf.aside.format("q.tenant = $1"), checked(where.tenant))
    else:
        rows = await connection.fetch(shelf.aside.format("q.partition_no = ANY($1::bigint[])"), list(partitions))
    return [Key(unescape(tenant), unescape(record_id)) for tenant, record_id in rows]


async def count(connection: Connection, shelf: Shelf, places: Places, query: Query) -> Count:
    partitions = await partitions_of(connection, places, query.where)
    if partitions == []:
        return Count(0, 0)
    question = totals(shelf, query, partitions or ())
    records, size = await connection.fetchrow(question.sql, *question.arguments)
    return Count(int(records), int(size))


# -- deleting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Burial:
    """What `delete_matching` was asked."""

    query: Query
    version: int
    discard_at: datetime | None
    keep: Sequence[str]


async def delete_matching(connection: Connection, shelf: Shelf, places: Places, burial: Burial) -> int:
    """Tombstones for what matches and for every corrupt record there, whatever the filter. Within a transaction."""
    query = burial.query
    partitions = await partitions_of(connection, places, query.where)
    if partitions == []:
        return 0
    question = matches(shelf, query, partitions or ())
    cursor = await connection.cursor(question.sql, *question.arguments)
    buried = 0
    while rows := await cursor.fetch(MOST_ROWS):
        tombstones = [t for row in rows if (t := _tombstone(shelf, row[:-1], row[-1], burial)) is not None]
        await _bury(connection, shelf, tombstones)
        buried += len(tombstones)
    keys = await aside(connection, shelf, query.where, partitions or ())
    left: list[Tombstone] = []
    for key in keys:
        row = await connection.fetchrow(shelf.find, checked(key.tenant), checked(key.id))
        if row is not None and row[KIND] == CORRUPT:
            left.append(Tombstone(key, _above(row[VERSION], burial, sound=False), discard_at=burial.discard_at))
    await _bury(connection, shelf, left)
    return buried + len(left)


async def _bury(connection: Connection, shelf: Shelf, tombstones: Sequence[Tombstone]) -> None:
    for start in range(0, len(tombstones), MOST_ROWS):
        some = tombstones[start : start + MOST_ROWS]
        rows = [parameters(shelf, shelf.layout.tombstone(tombstone)) for tombstone in some]
        sql, columns = shelf.insert_many(ALWAYS, rows)
        await connection.fetch(sql, *columns)
        await connection.execute(shelf.forget_aside, [r[TENANT] for r in rows], [r[ID] for r in rows])


def _tombstone(shelf: Shelf, row: Row, wanted: bool, burial: Burial) -> Tombstone | None:
    """What is left of a row; None where it stays."""
    stored = shelf.layout.read(row)
    sound = not isinstance(stored, Corrupt)
    if sound and not wanted:
        return None
    note: dict[str, JsonValue] = {}
    if sound:
        values = {name: row[shelf.layout.at[field_column(name)]] for name in burial.keep}
        note = {name: unescape(value) for name, value in values.items() if value is not None}
    key = Key(unescape(row[TENANT]), unescape(row[ID]))
    return Tombstone(key, _above(row[VERSION], burial, sound=sound), note=note, discard_at=burial.discard_at)


def _above(version: int, burial: Burial, *, sound: bool) -> int:
    """Above what was stored. A corrupt row's version counts only where it can be true."""
    stored = version if sound or 0 < version < 2 * max(burial.version, 1) else 0
    return max(stored + 1, burial.version)
