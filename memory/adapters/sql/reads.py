"""Reading by key and by query, and what a query matches for counting and deleting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.filters import Asked, Condition
from memory.adapters.sql.partitions import Numbers
from memory.adapters.sql.rows import CORRUPT, ID, RECORD, TENANT
from memory.adapters.sql.session import Session
from memory.adapters.sql.shelf import Found, Shelf, shelf_of
from memory.adapters.sql.writes import Hand
from memory.ports.query import Count, Everywhere, Kind, Page, Partitions, Query, Tenant, Where, decode_cursor, encode_cursor
from memory.ports.record import Corrupt, Key, Role, Stored, Tombstone


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A row found unreadable, to be set aside by the next write transaction."""

    shelf: Shelf
    number: int
    key: Key
    problem: str


def get(session: Session, shelf: Shelf, keys: Sequence[Key]) -> tuple[list[Stored | None], list[Spoiled]]:
    """What stands under each key, and what was found unreadable just now."""
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


def restrictions(shelf: Shelf, where: Where, partitions: Sequence[int], roles: frozenset[Role], kinds: frozenset[Kind]) -> list[Condition]:
    """The conditions on where, role and kind."""
    table = shelf.table
    conditions: list[Condition] = []
    if isinstance(where, Partitions):
        conditions.append(table.c.partition_no == partitions[0] if len(partitions) == 1 else table.c.partition_no.in_(partitions))
    if isinstance(where, Partitions | Tenant):
        conditions.append(table.c.tenant == where.tenant)
    of_kind: list[Condition] = [table.c.record_kind == kind.value for kind in sorted(kinds) if kind is not Kind.RECORD]
    if Kind.RECORD in kinds:
        of_role = table.c.role.in_(sorted(role.value for role in roles))
        of_kind.append(sa.and_(table.c.record_kind == RECORD, of_role))
    return [*conditions, sa.or_(*of_kind)]


def query(session: Session, query: Query, numbers: Numbers) -> tuple[Page, list[Spoiled]]:
    """One page, and what was found unreadable while reading it: then the page is to be read again."""
    shelf = shelf_of(query.collection)
    partitions = _partitions(session, numbers, query.where)
    if partitions == []:
        return Page(()), []
    asked = Asked(shelf)
    tenants = isinstance(query.where, Everywhere)
    conditions = restrictions(shelf, query.where, partitions or (), query.roles, query.kinds)
    if query.filter is not None:
        conditions.append(asked.condition(query.filter))
    if query.cursor is not None:
        conditions.append(asked.after(query.order, decode_cursor(query.cursor, query.order)))
    ordering = asked.ordering(query.order, tenants)
    found, more = _rows(session, shelf, conditions, ordering, query.limit, asked, query)
    answers: list[Stored] = []
    spoiled: list[Spoiled] = []
    for row in found:
        stored = shelf.layout.read(row.row)
        if isinstance(stored, Corrupt):
            spoiled.append(Spoiled(shelf, row.number, stored.key, stored.problem))
        else:
            answers.append(stored)
    cursor = None
    if more and found:
        last = found[-1].row
        at = asked.position(query.order, [asked.value_in(last, o.field) for o in query.order], last[ID])
        cursor = encode_cursor(at.values, at.id)
    corrupt = shelf.aside(session, query.where, partitions or ())
    corrupt += [s.key for s in spoiled if s.key not in corrupt]
    return Page(tuple(answers), cursor, tuple(corrupt)), spoiled


def _rows(
    session: Session, shelf: Shelf, conditions: list[Condition], ordering: list[Any], limit: int | None, asked: Asked, query: Query
) -> tuple[list[Found], bool]:
    """The rows of a page in order, and whether there are more behind it."""
    table = shelf.table
    if limit is None:
        rows = session.select(sa.select(table).where(*conditions).order_by(*ordering))
        return [Found(r[0], tuple(r[1:])) for r in rows], False
    # Sorting wide rows is slow: the page is found first by number, then read.
    keys = sa.select(table.c.number).where(*conditions).order_by(*ordering)
    take = limit + 1
    while True:
        chosen = [n for (n,) in session.select(keys.limit(take))]
        by_number = {f.number: f for f in shelf.at(session, chosen)}
        rows_in_order = [by_number[n] for n in chosen if n in by_number]
        if len(chosen) < take:
            return rows_in_order, False
        if not isinstance(query.where, Everywhere):
            return rows_in_order[:limit], True
        # A cursor names no tenant: records of several tenants under one id and one sort value stay on one page, or some would be lost.
        places = [(*[asked.value_in(f.row, o.field) for o in query.order], f.row[ID]) for f in rows_in_order]
        end = limit
        while end < len(places) and places[end] == places[end - 1]:
            end += 1
        if end < len(places):
            return rows_in_order[:end], True
        take *= 2


def _partitions(session: Session, numbers: Numbers, where: Where) -> list[int] | None:
    """The numbers of the asked partitions; None where the question is wider than partitions."""
    return numbers.of(session, where) if isinstance(where, Partitions) else None


def count(session: Session, query: Query, numbers: Numbers) -> Count:
    shelf = shelf_of(query.collection)
    partitions = _partitions(session, numbers, query.where)
    if partitions == []:
        return Count(0, 0)
    conditions = restrictions(shelf, query.where, partitions or (), query.roles, query.kinds)
    if query.filter is not None:
        conditions.append(Asked(shelf).condition(query.filter))
    total = sa.func.coalesce(sa.func.sum(shelf.table.c.bytes), 0)
    ((records, size),) = session.select(sa.select(sa.func.count(), total).select_from(shelf.table).where(*conditions))
    return Count(int(records), int(size))


def delete_matching(session: Session, query: Query, version: int, discard_at: datetime | None, numbers: Numbers) -> int:
    """Tombstones for what matches and for every corrupt record there, whatever the filter."""
    shelf = shelf_of(query.collection)
    partitions = _partitions(session, numbers, query.where)
    if partitions == []:
        return 0
    hand = Hand(session)
    table = shelf.table
    somewhere = restrictions(shelf, query.where, partitions or (), frozenset(Role), frozenset({Kind.RECORD}))[:-1]
    matches = sa.and_(*restrictions(shelf, query.where, partitions or (), query.roles, query.kinds)[-1:])
    if query.filter is not None:
        matches = sa.and_(matches, Asked(shelf).condition(query.filter))
    everyone = sa.select(table.c.number, matches.label("matches")).where(*somewhere, table.c.partition_no.is_not(None))
    asked = {number: bool(wanted) for number, wanted in session.select(everyone)}
    buried = 0
    for chunk in _chunks(list(asked), 256):
        for found in shelf.at(session, chunk):
            sound = shelf.layout.is_sound(found.row)
            if asked[found.number] or not sound:
                hand.bury(shelf, found, _tombstone(found, version, discard_at, sound))
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


def _chunks(numbers: list[int], size: int) -> list[list[int]]:
    return [numbers[i : i + size] for i in range(0, len(numbers), size)]
