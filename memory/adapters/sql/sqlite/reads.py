"""Reading by key and by query, and what a query matches for counting and deleting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory.adapters.sql.shapes import walks
from memory.adapters.sql.sqlite import quarantine
from memory.adapters.sql.sqlite.batch import Batch
from memory.adapters.sql.sqlite.codec import ID
from memory.adapters.sql.sqlite.filters import page, totals
from memory.adapters.sql.sqlite.partitions import numbers_of
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import Found, Table, table_of
from memory.ports.collections import Collection
from memory.ports.query import Count, Everywhere, Head, Page, Partitions, Query, Where, encode_cursor
from memory.ports.record import Corrupt, Key, Stored
from memory.ports.rows import CORRUPT


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row found corrupt, to be moved into the quarantine by the next write transaction."""

    table: Table
    number: int
    key: Key
    problem: str


def get(session: Session, collection: Collection, keys: Sequence[Key]) -> tuple[list[Stored | None], list[Unreadable]]:
    """What stands under each key, and what was found unreadable just now."""
    table = table_of(session, collection)
    answers: list[Stored | None] = []
    unreadable: list[Unreadable] = []
    for key in keys:
        found = table.find(session, key)
        stored = None if found is None else table.stored(session, found, key)
        if found is not None and isinstance(stored, Corrupt) and found.type != CORRUPT:
            unreadable.append(Unreadable(table, found.number, key, stored.problem))
        answers.append(stored)
    return answers, unreadable


def into_quarantine(session: Session, unreadable: Sequence[Unreadable]) -> None:
    """Move rows that still cannot be read out of the way."""
    batch = Batch(session)
    for one in unreadable:
        for found in one.table.at(session, [one.number]):
            if found.type != CORRUPT and one.table.held(session, found, one.key).problem:
                batch.quarantine(one.table, found, one.key, one.problem)
    batch.finish()


# -- queries ----------------------------------------------------------------------------------------------------------


def query(session: Session, query: Query) -> tuple[Page, list[Unreadable]]:
    """One page, and what was found unreadable while reading it: then the page is to be read again."""
    table = table_of(session, query.collection)
    partitions = _partitions(session, query.where)
    if partitions == []:
        return Page(()), []
    found, more = _rows(session, table, query, partitions or ())
    answers: list[Stored] = []
    unreadable: list[Unreadable] = []
    heads: list[Head] = []
    if query.select is not None:
        reader = table.heads(query.select)
        heads = [head for row in found if (head := reader.read(row.values)) is not None]
    for row in found if query.select is None else ():
        stored = table.answered(row)
        if isinstance(stored, Corrupt):
            unreadable.append(Unreadable(table, row.number, stored.key, stored.problem))
        else:
            answers.append(stored)
    cursor = None
    if more and found:
        last = found[-1].values
        cursor = encode_cursor(table.shaper.position(query.order, last), last[ID])
    corrupt = quarantine.keys(session, table.name, query.where, partitions or ())
    corrupt += [s.key for s in unreadable if s.key not in corrupt]
    return Page(tuple(answers), cursor, tuple(corrupt), tuple(heads)), unreadable


def _rows(session: Session, table: Table, query: Query, partitions: Sequence[int]) -> tuple[list[Found], bool]:
    """The rows of a page in order, and whether there are more behind it."""
    limit = query.limit
    if query.select is None and len(partitions) == 1 and walks(query.order):  # an index brings them in order
        rows = [Found(r[0], r[1:]) for r in page(session, table, query, partitions, limit + 1, None)]
        return rows[:limit], len(rows) > limit
    # Sorting wide rows is slow: the page is found first by number, then read.
    take = limit + 1
    while True:
        if query.select is None:
            chosen = [n for (n,) in page(session, table, query, partitions, take, ())]
            by_number = {f.number: f for f in table.at(session, chosen)}
            rows_in_order, ended = [by_number[n] for n in chosen if n in by_number], len(chosen) < take
        else:
            rows_in_order = _narrow(session, table, query, query.select, partitions, take)
            ended = len(rows_in_order) < take
        if ended:
            return rows_in_order, False
        if not isinstance(query.where, Everywhere):
            return rows_in_order[:limit], True
        # A cursor names no tenant: records of several tenants under one id and one sort value stay on one page, or some would be lost.
        places = [(*[table.shaper.value_in(f.values, o.field) for o in query.order], f.values[ID]) for f in rows_in_order]
        end = limit
        while end < len(places) and places[end] == places[end - 1]:
            end += 1
        if end < len(places):
            return rows_in_order[:end], True
        take *= 2


def _narrow(session: Session, table: Table, query: Query, select: frozenset[str], partitions: Sequence[int], take: int) -> list[Found]:
    """The rows of a page of heads, of which only the columns that these take are read."""
    heads = table.heads(select)
    columns = heads.with_order(query.order)
    return [Found(r[0], heads.widened(columns, r[1:])) for r in page(session, table, query, partitions, take, columns)]


def _partitions(session: Session, where: Where) -> list[int] | None:
    """The numbers of the asked partitions; None where the question is wider than partitions."""
    return numbers_of(session, where) if isinstance(where, Partitions) else None


def count(session: Session, query: Query) -> Count:
    table = table_of(session, query.collection)
    partitions = _partitions(session, query.where)
    if partitions == []:
        return Count(0, 0)
    return Count(*totals(session, table, query, partitions or ()))
