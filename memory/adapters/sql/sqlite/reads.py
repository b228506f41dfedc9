"""Reading by key and by query, and what a query matches for counting and deleting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from memory.adapters.sql.shapes import walks
from memory.adapters.sql.sqlite.partitions import numbers_of
from memory.adapters.sql.sqlite.rows import ID, OWED, TENANT
from memory.adapters.sql.sqlite.session import Session, chunked
from memory.adapters.sql.sqlite.shelf import Found, Shelf, shelf_of
from memory.adapters.sql.sqlite.statements import matches, page, totals
from memory.adapters.sql.sqlite.writes import Hand
from memory.adapters.sql.values import CORRUPT, decode_owed
from memory.ports.collections import Collection
from memory.ports.deciding import carried
from memory.ports.query import Count, Everywhere, Head, Page, Partitions, Query, Where, encode_cursor
from memory.ports.record import Corrupt, Key, Stored, Tombstone


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A row found unreadable, to be set aside by the next write transaction."""

    shelf: Shelf
    number: int
    key: Key
    problem: str


def get(session: Session, collection: Collection, keys: Sequence[Key]) -> tuple[list[Stored | None], list[Spoiled]]:
    """What stands under each key, and what was found unreadable just now."""
    shelf = shelf_of(session, collection)
    answers: list[Stored | None] = []
    spoiled: list[Spoiled] = []
    for key in keys:
        found = shelf.find(session, key)
        stored = None if found is None else shelf.stored(session, found, key)
        if found is not None and isinstance(stored, Corrupt) and found.kind != CORRUPT:
            spoiled.append(Spoiled(shelf, found.number, key, stored.problem))
        answers.append(stored)
    return answers, spoiled


def set_aside(session: Session, spoiled: Sequence[Spoiled]) -> None:
    """Move rows that are still unreadable out of the way: a copy into the quarantine, a bare row in their place."""
    hand = Hand(session)
    for one in spoiled:
        for found in one.shelf.at(session, [one.number]):
            if found.kind != CORRUPT and isinstance(one.shelf.stored(session, found, one.key), Corrupt):
                hand.set_aside(one.shelf, found, one.key, one.problem)
    hand.finish()


# -- queries ----------------------------------------------------------------------------------------------------------


def query(session: Session, query: Query) -> tuple[Page, list[Spoiled]]:
    """One page, and what was found unreadable while reading it: then the page is to be read again."""
    shelf = shelf_of(session, query.collection)
    partitions = _partitions(session, query.where)
    if partitions == []:
        return Page(()), []
    found, more = _rows(session, shelf, query, partitions or ())
    answers: list[Stored] = []
    spoiled: list[Spoiled] = []
    heads: list[Head] = []
    if query.select is not None:
        reader = shelf.heads(query.select)
        heads = [head for row in found if (head := reader.read(row.row)) is not None]
    for row in found if query.select is None else ():
        stored = shelf.layout.read(row.row)
        if isinstance(stored, Corrupt):
            spoiled.append(Spoiled(shelf, row.number, stored.key, stored.problem))
        else:
            answers.append(stored)
    cursor = None
    if more and found:
        last = found[-1].row
        cursor = encode_cursor(shelf.shaper.position(query.order, last), last[ID])
    corrupt = shelf.aside(session, query.where, partitions or ())
    corrupt += [s.key for s in spoiled if s.key not in corrupt]
    return Page(tuple(answers), cursor, tuple(corrupt), tuple(heads)), spoiled


def _rows(session: Session, shelf: Shelf, query: Query, partitions: Sequence[int]) -> tuple[list[Found], bool]:
    """The rows of a page in order, and whether there are more behind it."""
    limit = query.limit
    if query.select is None and len(partitions) == 1 and walks(query.order):  # an index brings them in order
        rows = [Found(r[0], r[1:]) for r in page(session, shelf, query, partitions, limit + 1, None)]
        return rows[:limit], len(rows) > limit
    # Sorting wide rows is slow: the page is found first by number, then read.
    take = limit + 1
    while True:
        if query.select is None:
            chosen = [n for (n,) in page(session, shelf, query, partitions, take, ())]
            by_number = {f.number: f for f in shelf.at(session, chosen)}
            rows_in_order, ended = [by_number[n] for n in chosen if n in by_number], len(chosen) < take
        else:
            rows_in_order = _narrow(session, shelf, query, query.select, partitions, take)
            ended = len(rows_in_order) < take
        if ended:
            return rows_in_order, False
        if not isinstance(query.where, Everywhere):
            return rows_in_order[:limit], True
        # A cursor names no tenant: records of several tenants under one id and one sort value stay on one page, or some would be lost.
        places = [(*[shelf.shaper.value_in(f.row, o.field) for o in query.order], f.row[ID]) for f in rows_in_order]
        end = limit
        while end < len(places) and places[end] == places[end - 1]:
            end += 1
        if end < len(places):
            return rows_in_order[:end], True
        take *= 2


def _narrow(session: Session, shelf: Shelf, query: Query, select: frozenset[str], partitions: Sequence[int], take: int) -> list[Found]:
    """The rows of a page of heads, of which only the columns that these take are read."""
    heads = shelf.heads(select)
    columns = heads.with_order(query.order)
    return [Found(r[0], heads.widened(columns, r[1:])) for r in page(session, shelf, query, partitions, take, columns)]


def _partitions(session: Session, where: Where) -> list[int] | None:
    """The numbers of the asked partitions; None where the question is wider than partitions."""
    return numbers_of(session, where) if isinstance(where, Partitions) else None


def count(session: Session, query: Query) -> Count:
    shelf = shelf_of(session, query.collection)
    partitions = _partitions(session, query.where)
    if partitions == []:
        return Count(0, 0)
    return Count(*totals(session, shelf, query, partitions or ()))


def delete_matching(session: Session, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]) -> int:
    """Tombstones for what matches and for every corrupt record there, whatever the filter."""
    shelf = shelf_of(session, query.collection)
    partitions = _partitions(session, query.where)
    if partitions == []:
        return 0
    hand = Hand(session)
    asked = matches(session, shelf, query, partitions or ())
    buried = 0
    for chunk in chunked(list(asked), session.thresholds.buried_at_once):
        for found in shelf.at(session, chunk):
            sound = shelf.layout.is_sound(found.row)
            if asked[found.number] or not sound:
                owed = carried(decode_owed(found.row[OWED]), carry) if sound else ()
                hand.bury(shelf, found, replace(_tombstone(found, version, discard_at, sound), owed=owed))
                buried += 1
    for key in shelf.aside(session, query.where, partitions or ()):
        found_aside = shelf.find(session, key)
        if found_aside is not None and found_aside.kind == CORRUPT:
            hand.bury(shelf, found_aside, _tombstone(found_aside, version, discard_at, sound=False))
            buried += 1
    hand.finish()
    return buried


def _tombstone(found: Found, version: int, discard_at: datetime | None, sound: bool) -> Tombstone:
    """Above what was stored. A corrupt row's version counts only where it can be true."""
    stored = found.version if sound or 0 < found.version < 2 * max(version, 1) else 0
    return Tombstone(Key(str(found.row[TENANT]), str(found.row[ID])), max(stored + 1, version), discard_at=discard_at)
