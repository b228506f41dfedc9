"""Reading by key and by query, and what a query matches for deleting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from memory.adapters.sql.columns import field_column
from memory.adapters.sql.server.places import Places
from memory.adapters.sql.server.questions import matches, page, totals
from memory.adapters.sql.server.shelf import Row, Shelf, Spoiled
from memory.ports.pace import paced
from memory.ports.query import Count, Everywhere, Page, Partitions, Query, Where, encode_cursor
from memory.ports.record import Corrupt, JsonValue, Key, Stored, Tombstone

AnyShelf: TypeAlias = Shelf[Any]
AnyPlaces: TypeAlias = Places[Any]


async def get(connection: Any, shelf: AnyShelf, keys: Sequence[Key]) -> tuple[list[Stored | None], list[Spoiled]]:
    """What stands under each key, and what was found unreadable just now."""
    if len(keys) == 1:
        row = await shelf.find(connection, keys[0])
        rows = {} if row is None else {keys[0]: row}
    else:
        rows = await shelf.find_all(connection, keys)
    answers: list[Stored | None] = []
    spoiled: list[Spoiled] = []
    async for key in paced(keys):
        found = rows.get(key)
        stored = None if found is None else shelf.layout.read(found)
        if found is not None and isinstance(stored, Corrupt):
            if shelf.is_aside(found):
                stored = Corrupt(key, await shelf.problem(connection, key) or "set aside earlier")
            else:
                stored = Corrupt(key, stored.problem)
                spoiled.append(Spoiled(found, key, stored.problem))
        answers.append(stored)
    return answers, spoiled


# -- queries ----------------------------------------------------------------------------------------------------------


async def partitions_of(connection: Any, places: AnyPlaces, where: Where) -> list[int] | None:
    """The numbers of the asked partitions; None where the question is wider than partitions."""
    return await places.numbers(connection, where) if isinstance(where, Partitions) else None


async def query(connection: Any, shelf: AnyShelf, places: AnyPlaces, query: Query) -> tuple[Page, list[Spoiled]]:
    """One page, and what was found unreadable while reading it: then the page is to be read again."""
    partitions = await partitions_of(connection, places, query.where)
    if partitions == []:
        return Page(()), []
    rows, more = await _rows(connection, shelf, query, partitions or ())
    answers: list[Stored] = []
    spoiled: list[Spoiled] = []
    async for row in paced(rows):
        stored = shelf.layout.read(row)
        if isinstance(stored, Corrupt):
            spoiled.append(Spoiled(row[:-1], stored.key, stored.problem))
        else:
            answers.append(stored)
    cursor = None
    if more and rows:
        cursor = encode_cursor(shelf.shaper.position(query.order, rows[-1]), shelf.key(rows[-1]).id)
    corrupt: list[Key] = []
    if not rows or rows[0][-1]:
        corrupt = await shelf.aside(connection, query.where, partitions or ())
    corrupt += [s.key for s in spoiled if s.key not in corrupt]
    return Page(tuple(answers), cursor, tuple(corrupt)), spoiled


async def _rows(connection: Any, shelf: AnyShelf, query: Query, partitions: Sequence[int]) -> tuple[Sequence[Row], bool]:
    """The rows of a page in order, and whether there are more behind it."""
    limit = query.limit
    take = limit + 1
    while True:
        question = page(shelf, query, partitions, take)
        rows = await shelf.read(connection, question.sql, question.arguments)
        if len(rows) < take:
            return rows, False
        if not isinstance(query.where, Everywhere):
            return rows[:limit], True
        # A cursor names no tenant: records of several tenants under one id and one sort value stay on one page, or some would be lost.
        places = [(*[shelf.shaper.value_in(row, o.field) for o in query.order], row[shelf.at["id"]]) for row in rows]
        end = limit
        while end < len(places) and places[end] == places[end - 1]:
            end += 1
        if end < len(places):
            return rows[:end], True
        take *= 2


async def count(connection: Any, shelf: AnyShelf, places: AnyPlaces, query: Query) -> Count:
    partitions = await partitions_of(connection, places, query.where)
    if partitions == []:
        return Count(0, 0)
    question = totals(shelf, query, partitions or ())
    ((records, size),) = await shelf.read(connection, question.sql, question.arguments)
    return Count(int(records), int(size))


# -- deleting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Burial:
    """What `delete_matching` was asked."""

    query: Query
    version: int
    discard_at: datetime | None
    keep: Sequence[str]


async def delete_matching(connection: Any, shelf: AnyShelf, places: AnyPlaces, burial: Burial) -> int:
    """Tombstones for what matches and for every corrupt record there, whatever the filter. Within a transaction."""
    where = burial.query.where
    partitions = await partitions_of(connection, places, where)
    if partitions == []:
        return 0
    question = matches(shelf, burial.query, partitions or (), shelf.matched_columns)
    buried = 0
    async for rows in shelf.matching(connection, question.sql, question.arguments):
        graves = [(row, t) async for row, wanted in paced(rows) if (t := _tombstone(shelf, row, wanted, burial)) is not None]
        await shelf.bury(connection, graves)
        buried += len(graves)
    left: list[tuple[Row, Tombstone]] = []
    for key in await shelf.aside(connection, where, partitions or ()):
        found = await shelf.find(connection, key)
        if found is not None and shelf.is_aside(found):
            left.append((found, Tombstone(key, _above(shelf.version(found), burial, sound=False), discard_at=burial.discard_at)))
    await shelf.bury(connection, left)
    return buried + len(left)


def _tombstone(shelf: AnyShelf, row: Row, wanted: bool, burial: Burial) -> Tombstone | None:
    """What is left of a row; None where it stays."""
    sound = not isinstance(shelf.layout.read(row), Corrupt)
    if sound and not wanted:
        return None
    note: dict[str, JsonValue] = {}
    if sound:
        note = {name: value for name in burial.keep if (value := shelf.field(row, field_column(name))) is not None}
    return Tombstone(shelf.key(row), _above(shelf.version(row), burial, sound=sound), note=note, discard_at=burial.discard_at)


def _above(version: int, burial: Burial, *, sound: bool) -> int:
    """Above what was stored. A corrupt row's version counts only where it can be true."""
    stored = version if sound or 0 < version < 2 * max(burial.version, 1) else 0
    return max(stored + 1, burial.version)
