"""Reading by key and by query, and what a query matches for counting and deleting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory.adapters.sql.shapes import walks
from memory.adapters.sql.sqlite import quarantine
from memory.adapters.sql.sqlite.batch import Batch
from memory.adapters.sql.sqlite.codec import Derived
from memory.adapters.sql.sqlite.filters import page, totals
from memory.adapters.sql.sqlite.partitions import numbers_of
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import Found, Table, found_in, table_of
from memory.ports.collections import Collection
from memory.ports.query import Count, Everywhere, Head, Page, Partitions, Query, Where, encode_cursor
from memory.ports.record import Corrupt, Key, Stored
from memory.ports.rows import stored_of


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
        if found is not None and isinstance(stored, Corrupt) and not table.is_quarantined(found):
            unreadable.append(Unreadable(table, found.number, key, stored.problem))
        answers.append(stored)
    return answers, unreadable


def into_quarantine(session: Session, unreadable: Sequence[Unreadable]) -> None:
    """Move rows that still cannot be read out of the way."""
    batch = Batch(session)
    for one in unreadable:
        for found in one.table.at(session, [one.number]):
            if not one.table.is_quarantined(found) and one.table.held(session, found, one.key).problem:
                batch.quarantine(one.table, found, one.key, one.problem)
    batch.finish()


# -- queries ----------------------------------------------------------------------------------------------------------


def query(session: Session, query: Query) -> tuple[Page, list[Unreadable]]:
    """One page, and what was found unreadable while reading it: then the page is to be read again."""
    table = table_of(session, query.collection)
    partitions = _partitions(session, query.where)
    if partitions == []:
        return Page(()), []
    selection = None if query.select is None else table.selection(query.select)
    columns = None if selection is None else selection.with_order(query.order)
    at = table.codec.at if columns is None else {name: i for i, name in enumerate(columns)}
    found, more = _rows(session, table, query, partitions or (), columns, at)
    answers: list[Stored] = []
    unreadable: list[Unreadable] = []
    heads: list[Head] = []
    for row in found:
        if selection is not None and columns is not None:
            head = selection.read(dict(zip(columns, row.values, strict=True)))
            heads += [] if head is None else [head]
            continue
        said, problem = table.row(row)
        stored = Corrupt(table.key(row), problem) if problem else stored_of(table.collection, said)
        if isinstance(stored, Corrupt):
            unreadable.append(Unreadable(table, row.number, stored.key, stored.problem))
        else:
            answers.append(stored)
    cursor = None
    if more and found:
        last = found[-1].values
        cursor = encode_cursor(table.shaper.position(query.order, last, at), table.shaper.shown("id", last[at["id"]]))
    corrupt = quarantine.keys(session, table.name, query.where, partitions or ())
    corrupt += [s.key for s in unreadable if s.key not in corrupt]
    return Page(tuple(answers), cursor, tuple(corrupt), tuple(heads)), unreadable


def _rows(
    session: Session, table: Table, query: Query, partitions: Sequence[int], columns: tuple[str, ...] | None, at: Mapping[str, int]
) -> tuple[list[Found], bool]:
    """The rows of a page in order, these columns of them or all, and whether there are more behind it."""
    limit = query.limit
    if columns is None and len(partitions) == 1 and walks(query.order):  # an index brings them in order
        rows = [found_in(row) for row in page(session, table, query, partitions, limit + 1, None)]
        return rows[:limit], len(rows) > limit
    # Sorting wide rows is slow: the page is found first by number, then read.
    take = limit + 1
    while True:
        narrow = page(session, table, query, partitions, take, columns or ())
        if columns is None:
            by_number = {f.number: f for f in table.at(session, [number for (number,) in narrow])}
            found = [by_number[number] for (number,) in narrow if number in by_number]
        else:
            found = [Found(row[0], Derived(), row[1:]) for row in narrow]
        if len(narrow) < take:
            return found, False
        if not isinstance(query.where, Everywhere):
            return found[:limit], True
        # A cursor names no tenant: records of several tenants under one id and one sort value stay on one page, or some would be lost.
        places = [(*[table.shaper.value_in(f.values, o.field, at) for o in query.order], f.values[at["id"]]) for f in found]
        end = limit
        while end < len(places) and places[end] == places[end - 1]:
            end += 1
        if end < len(places):
            return found[:end], True
        take *= 2


def _partitions(session: Session, where: Where) -> list[int] | None:
    """The numbers of the asked partitions; None where the question is wider than partitions."""
    return numbers_of(session, where) if isinstance(where, Partitions) else None


def count(session: Session, query: Query) -> Count:
    table = table_of(session, query.collection)
    partitions = _partitions(session, query.where)
    if partitions == []:
        return Count(0, 0)
    return Count(*totals(session, table, query, partitions or ()))
