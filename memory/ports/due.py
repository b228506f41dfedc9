"""Rows that await maintenance, and how to find them by queries.

The queries are for stores that have no faster way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from memory.domain.errors import InvalidInput
from memory.ports.collections import Collection
from memory.ports.query import And, Condition, Eq, Everywhere, Head, Lt, Not, Page, Query, RowType
from memory.ports.record import Corrupt, Key, Role, Standing

LEFT = frozenset({RowType.MARK, RowType.TOMBSTONE})
QUESTIONS = 5
"""The number of queries for each collection."""


class DueReason(StrEnum):
    """Why a row is due."""

    OWES = "owes"  # A HOME or ARRIVING record, a mark or a tombstone, with a pending step.
    ARRIVING = "arriving"  # A copy that a move stored and that was not yet confirmed.
    EXPIRED = "expired"  # A HOME record whose `expires_at` is before the given moment.
    DISCARD = "discard"  # A mark or tombstone past its `discard_at`, without pending steps.


@dataclass(frozen=True, slots=True)
class DueRow:
    """A stored item that is due, and why.

    `tier` is that of a record, and empty for other items.
    """

    collection: Collection
    key: Key
    version: int
    why: DueReason
    tier: str = ""


@dataclass(frozen=True, slots=True)
class DuePage:
    """A part of the due rows, in no order; `cursor` is None on the last page."""

    rows: tuple[DueRow, ...] = ()
    cursor: str | None = None


async def due_by_queries(
    ask: Callable[[Query], Awaitable[Page]],
    collections: Sequence[Collection],
    now: datetime,
    limit: int,
    cursor: str | None,
    expired: Mapping[Collection, datetime],
    idle: Container[str] = frozenset(),
) -> DuePage:
    """Answer `Store.due` with one query after the other until `limit` rows are found.

    Stores answer each query by an index. Collections named in `idle` have nothing due.
    They are not queried, unless a cursor continues within one of their queries.
    """
    of = QUESTIONS * len(collections)
    rows: list[DueRow] = []
    number, inner = place_of(cursor, of)
    while number < of and len(rows) < limit:
        collection = collections[number // QUESTIONS]
        if inner is None and collection.name in idle:
            number += QUESTIONS - number % QUESTIONS
            continue
        why, query = _question(number % QUESTIONS, collection, now, expired.get(collection))
        page = Page() if query is None else await ask(replace(query, limit=limit - len(rows), cursor=inner))
        rows += [
            _row(collection, why, found)
            for found in (*page.heads, *page.records)
            if not isinstance(found, Corrupt)
        ]
        number, inner = (number, page.cursor) if page.cursor is not None else (number + 1, None)
    return DuePage(tuple(rows), cursor_at(number, inner, of))


def _question(
    number: int, collection: Collection, now: datetime, expired: datetime | None
) -> tuple[DueReason, Query | None]:
    """Return one query of a collection; None in place of one that is not asked.

    Their number is constant, so a cursor can count them.
    """
    owing = Eq("owing", True)
    match number:
        case 0:
            return DueReason.OWES, _records(collection, owing, Role.HOME, Role.ARRIVING)
        case 1:
            return DueReason.OWES, Query(collection, Everywhere(), owing, types=LEFT)
        case 2:
            return DueReason.ARRIVING, _records(collection, None, Role.ARRIVING)
        case 3:
            over = None if expired is None else _records(collection, Lt("expires_at", expired), Role.HOME)
            return DueReason.EXPIRED, over
        case _:
            idle = And((Lt("discard_at", now), Not(owing)))
            return DueReason.DISCARD, Query(collection, Everywhere(), idle, types=LEFT)


def _records(collection: Collection, part: Condition | None, *roles: Role) -> Query:
    return Query(collection, Everywhere(), part, roles=frozenset(roles), select=frozenset())


def _row(collection: Collection, why: DueReason, found: Head | Standing) -> DueRow:
    return DueRow(collection, found.key, found.version, why, found.tier if isinstance(found, Head) else "")


def cursor_at(number: int, inner: str | None, of: int) -> str | None:
    """Return the cursor that continues with this query, from its own cursor on."""
    return None if number >= of else f"{number}:{inner or ''}"


def place_of(cursor: str | None, of: int) -> tuple[int, str | None]:
    """Return the query that a cursor continues with, and that query's own cursor."""
    number, colon, inner = (cursor or "0:").partition(":")
    if not (
        colon and number.isascii() and number.isdecimal() and len(number) < 10 and int(number) < max(of, 1)
    ):
        raise InvalidInput("cursor", "this is not a cursor that `due` returned")
    return int(number), inner or None
