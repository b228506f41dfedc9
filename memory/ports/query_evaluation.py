"""Filters, order and keyset pages over loaded rows, exactly as `memory.ports.query`.

For adapters whose engine lacks a part of it, and for merging the pages of several
stores.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias, TypeVar, assert_never

from memory.domain.errors import InvalidInput
from memory.domain.filters import holds as holds_at
from memory.domain.filters import value_at
from memory.ports.query import (
    SYSTEM_FIELDS,
    And,
    Condition,
    Eq,
    Everywhere,
    Ge,
    Gt,
    Has,
    Head,
    In,
    IsNull,
    JsonPath,
    Le,
    Lt,
    Not,
    Or,
    Order,
    Position,
    Query,
    StartsWith,
    Tenant,
    decode_cursor,
    encode_cursor,
)
from memory.ports.query_validation import text_range
from memory.ports.record import Corrupt, FieldValue, Partition, Record, Standing

S = TypeVar("S", bound=Standing | Head)
Predicate: TypeAlias = Callable[[Standing], bool]
"""Returns whether a filter holds for a stored item."""

_HASHED = frozenset({str, int, float, bool, bytes, datetime})
"""Types of which equal values have equal hashes, also across types.

Subclasses do not count.
"""

_COMPARISONS: dict[type[Condition], Callable[[Any, Any], bool]] = {
    Eq: operator.eq,
    Lt: operator.lt,
    Le: operator.le,
    Gt: operator.gt,
    Ge: operator.ge,
}


def value_of(standing: Standing | Head, field: str) -> FieldValue:
    """Return the value of a declared or system field; None if it is missing.

    A head has only the values that were selected.
    """
    if isinstance(standing, Head):
        return standing.key.id if field == "id" else standing.fields.get(field)
    return reader(field)(standing)


def reader(field: str) -> Callable[[Standing], FieldValue]:
    """Return a function that reads this field of any stored item."""
    if field == "id":
        return lambda standing: standing.key.id
    if field == "owing":
        return lambda standing: bool(standing.owed)
    if field in SYSTEM_FIELDS:
        return lambda standing: getattr(standing, field, None)
    return lambda standing: standing.fields.get(field) if isinstance(standing, Record) else None


def lets_through(part: Condition | None, standing: Standing) -> bool:
    """Return whether the filter holds for one item; for many, call `condition` once."""
    return condition(part)(standing)


def condition(part: Condition | None) -> Predicate:
    """Compile the filter to a function for any number of items.

    It is two-valued: a comparison with a missing value is false.
    """
    match part:
        case None:
            return lambda _standing: True
        case And(parts):
            all_parts = [condition(p) for p in parts]
            return lambda standing: all(holds(standing) for holds in all_parts)
        case Or(parts):
            any_part = [condition(p) for p in parts]
            return lambda standing: any(holds(standing) for holds in any_part)
        case Not(inner):
            opposite = condition(inner)
            return lambda standing: not opposite(standing)
        case IsNull(field):
            read = reader(field)
            return lambda standing: read(standing) is None
        case Has(field, tag):
            return _has(reader(field), tag)
        case In(field, values):
            return _is_one_of(reader(field), values)
        case (
            Eq(field, wanted) | Lt(field, wanted) | Le(field, wanted) | Gt(field, wanted) | Ge(field, wanted)
        ):
            return _compares(_COMPARISONS[type(part)], field, wanted)
        case JsonPath(parts, sign, other):
            return lambda standing: (
                isinstance(standing, Record) and holds_at(value_at(standing.body, parts), sign, other)
            )
        case StartsWith():
            return condition(text_range(part))
        case _:
            assert_never(part)


def _has(read: Callable[[Standing], FieldValue], tag: str) -> Predicate:
    def holds(standing: Standing) -> bool:
        tags = read(standing)
        return isinstance(tags, tuple) and tag in tags

    return holds


def _is_one_of(read: Callable[[Standing], FieldValue], values: tuple[FieldValue, ...]) -> Predicate:
    """Return a predicate with the meaning of `value in values`.

    It uses a hash lookup if equal values surely have equal hashes. Otherwise it
    compares one value after the other.
    """
    looked_up = frozenset(v for v in values if type(v) in _HASHED)
    others = tuple(v for v in values if type(v) not in _HASHED)

    def holds(standing: Standing) -> bool:
        value = read(standing)
        if value is None:
            return False
        if type(value) in _HASHED:
            return value in looked_up or (bool(others) and value in others)
        return value in values

    return holds


def _compares(compare: Callable[[Any, Any], bool], field: str, wanted: FieldValue) -> Predicate:
    read = reader(field)

    def holds(standing: Standing) -> bool:
        value = read(standing)
        if value is None or wanted is None:
            return False
        try:
            return compare(value, wanted)
        except TypeError as exc:
            raise InvalidInput(field, f"cannot be compared with {type(wanted).__name__}") from exc

    return holds


def page_of(matching: Sequence[S], query: Query) -> tuple[list[S], str | None]:
    """Return the requested page of the matches, in order, and its cursor."""
    if query.cursor is not None:
        position = decode_cursor(query.cursor, query.order)
        matching = [s for s in matching if is_after(s, position, query.order)]
    matching = sort_rows(matching, query.order)
    limit = query.limit
    if len(matching) <= limit:
        return matching, None
    # A cursor names no tenant: records of several tenants under one id and one sort
    # value stay on one page, or some would be lost.
    while limit < len(matching) and position_of(matching[limit], query.order) == position_of(
        matching[limit - 1], query.order
    ):
        limit += 1
    if limit == len(matching):
        return matching, None
    last = position_of(matching[limit - 1], query.order)
    return matching[:limit], encode_cursor(last.values, last.id)


def page_and_next(matching: Sequence[Standing], query: Query) -> list[Standing]:
    """Return the page's rows and the first row after them.

    The extra row shows that another page follows. Rows from another source may be
    merged with these: all other rows lie behind the page.
    """
    page, cursor = page_of(matching, query)
    if cursor is None:
        return page
    end = decode_cursor(cursor, query.order)
    return [*page, *sort_rows([s for s in matching if is_after(s, end, query.order)], query.order)[:1]]


def merge_pages(
    pages: Sequence[tuple[Sequence[S | Corrupt], str | None]], query: Query
) -> tuple[list[S], str | None]:
    """Merge the pages that several stores returned for one query into one page.

    Each page has records or heads, and a cursor. Heads must have the values of the
    order. If a store has more pages, the result ends at the last row of that
    store's page, because its next row may sort earlier.
    """
    ends = [cursor for _, cursor in pages if cursor is not None]
    positions = [decode_cursor(end, query.order) for end in ends]
    readable = [s for records, _ in pages for s in records if not isinstance(s, Corrupt)]
    sure = [s for s in readable if not any(is_after(s, position, query.order) for position in positions)]
    page, cursor = page_of(sure, replace(query, cursor=None))
    if cursor is None and ends:
        cursor = next(
            end
            for end, here in zip(ends, positions, strict=True)
            if not any(_is_before(p, here, query.order) for p in positions)
        )
    return page, cursor


def position_of(standing: Standing | Head, order: Sequence[Order]) -> Position:
    """Return the item's position in this order."""
    return Position(tuple(value_of(standing, o.field) for o in order), standing.key.id)


def _sortable(value: FieldValue) -> tuple[bool, Any]:
    return (value is not None, value)


def sort_rows(standings: Sequence[S], order: Sequence[Order]) -> list[S]:
    """Sort by the order, with the id last."""
    inorder = sorted(
        standings, key=lambda s: (s.key.id, s.key.tenant), reverse=bool(order) and order[-1].descending
    )
    for by in reversed(order):
        inorder.sort(key=lambda s, field=by.field: _sortable(value_of(s, field)), reverse=by.descending)  # type: ignore[misc]
    return inorder


def is_after(standing: Standing | Head, position: Position, order: Sequence[Order]) -> bool:
    """Whether this sorts strictly after the position."""
    return _is_before(position, position_of(standing, order), order)


def _is_before(first: Position, second: Position, order: Sequence[Order]) -> bool:
    """Whether the first sorts strictly before the second."""
    for by, one, other in zip(order, first.values, second.values, strict=True):
        here, there = _sortable(one), _sortable(other)
        if here != there:
            try:
                return (here > there) if by.descending else (here < there)
            except TypeError as exc:
                raise InvalidInput("cursor", "this cursor was made for a query with another order") from exc
    if order and order[-1].descending:
        return first.id > second.id
    return first.id < second.id


def first_partitions(
    found: Iterable[tuple[Partition, int]],
    where: Tenant | Everywhere,
    prefix: str,
    after: Partition | None,
    limit: int,
) -> list[tuple[Partition, int]]:
    """Return the first `limit` of these partitions behind `after`, each once.

    It answers a store's `_partitions`. The given partitions may be in any order.
    """

    def counts(partition: Partition) -> bool:
        there = isinstance(where, Everywhere) or partition.tenant == where.tenant
        return there and partition.scope.startswith(prefix) and (after is None or partition > after)

    return heapq.nsmallest(
        limit, {partition: generation for partition, generation in found if counts(partition)}.items()
    )
