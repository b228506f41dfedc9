"""Statements made of what a caller asks, prepared once a shape; see `memory.adapters.sql.prepared`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlalchemy as sa

from memory.adapters.sql.prepared import compiled, kept
from memory.adapters.sql.server.shelf import Shelf
from memory.adapters.sql.shapes import TRUE, Shape, Values, names, scope, walks
from memory.ports.query import Everywhere, Filter, Query, Tenant, Where, decode_cursor

AnyShelf: TypeAlias = Shelf[Any]
Build = Callable[[AnyShelf, Shape], sa.Select[Any]]


@dataclass(frozen=True, slots=True)
class Question:
    """A statement and its values."""

    sql: str
    arguments: Values


def question(shelf: AnyShelf, build: Build, shape: Shape, values: Values) -> Question:
    """The statement of this shape, built where there is none yet."""
    most = shelf.thresholds.statements_kept
    statement = kept(shelf.prepared, most, (build, shape), lambda: compiled(shelf.dialect, build(shelf, shape), len(values)))
    return Question(statement.sql, statement.arguments(values))


def asked(shelf: AnyShelf, where: Where, part: Filter | None, partitions: Sequence[int], walking: bool = False) -> tuple[Values, Shape, Shape]:
    """The values, and the shapes of where and what is asked for. `walking` is through a partition in order, whatever the filter."""
    of_filter: Values = []
    chosen = shelf.shaper.filter(part, of_filter)
    values: Values = []
    keyed = (not walking or isinstance(where, Tenant)) and names(chosen, shelf.keyed)
    there = scope(where, partitions, values, tenant=keyed)
    return shelf.shaper.texts(values) + of_filter, there, chosen


def page(shelf: AnyShelf, query: Query, partitions: Sequence[int], limit: int, columns: tuple[str, ...] | None = None) -> Question:
    """The rows of a page in order, these columns or all, each with whether there are any set aside behind it."""
    values, where, chosen = asked(shelf, query.where, query.filter, partitions, walking=walks(query.order))
    after = TRUE if query.cursor is None else shelf.shaper.after(query.order, decode_cursor(query.cursor, query.order), values)
    written = limit if _is_usual(limit, shelf.thresholds.limits_written_out) else None
    if written is None:
        values.append(limit)
    return question(shelf, _page, (columns, where, query.roles, query.types, chosen, after, query.order, written), values)


def _is_usual(limit: int, most: int) -> bool:
    """Whether the limit is part of the statement: one whose limit it does not know PostgreSQL plans anew at every call, which takes half the time.

    Ten, twenty, … a thousand are, and one more to see whether there is more behind: few enough for a statement each.
    """
    return limit <= most and limit % 10 == 1


def _page(shelf: AnyShelf, shape: Shape) -> sa.Select[Any]:
    columns, where, roles, kinds, chosen, after, order, written = shape
    conditions = shelf.conditions()
    wanted = [conditions.scope(where, walks(order)), conditions.standing(roles, kinds), conditions.filter(chosen)]
    if after != TRUE:
        wanted.append(conditions.after(after))
    ordering = conditions.ordering(order, tenants=where == scope(Everywhere(), (), []))
    chosen_columns = shelf.row_columns if columns is None else [shelf.table.c[name] for name in columns]
    statement = sa.select(*chosen_columns, sa.literal_column(shelf.any_aside)).where(*wanted).order_by(*ordering)
    return shelf.walked(statement.limit(conditions.value("i") if written is None else sa.literal_column(str(written))), where, order)


def totals(shelf: AnyShelf, query: Query, partitions: Sequence[int]) -> Question:
    """How many records match, and their bytes."""
    values, where, chosen = asked(shelf, query.where, query.filter, partitions)
    return question(shelf, _totals, (where, query.roles, query.types, chosen), values)


def _totals(shelf: AnyShelf, shape: Shape) -> sa.Select[Any]:
    where, roles, kinds, chosen = shape
    conditions = shelf.conditions()
    wanted = [conditions.scope(where), conditions.standing(roles, kinds), conditions.filter(chosen)]
    columns: list[sa.ColumnElement[Any]] = [sa.func.count(), summed(shelf.table.c.bytes)]
    return sa.select(*columns).select_from(shelf.table).where(*wanted)


def summed(column: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """The sum as an integer, 0 over nothing."""
    return sa.cast(sa.func.coalesce(sa.func.sum(column), sa.literal_column("0")), sa.BigInteger())


def matches(shelf: AnyShelf, query: Query, partitions: Sequence[int], columns: Sequence[sa.ColumnElement[Any]]) -> Question:
    """These columns of every live row there, locked, and beside them whether the query matches it."""
    values, where, chosen = asked(shelf, query.where, query.filter, partitions)
    shape = (where, query.roles, query.types, chosen, tuple([c.name for c in columns]))
    return question(shelf, _matches, shape, values)


def _matches(shelf: AnyShelf, shape: Shape) -> sa.Select[Any]:
    where, roles, kinds, chosen, columns = shape
    conditions = shelf.conditions()
    somewhere = conditions.scope(where)
    wanted = sa.and_(conditions.standing(roles, kinds), conditions.filter(chosen))
    return sa.select(*[shelf.table.c[c] for c in columns], wanted).where(somewhere, shelf.table.c.partition_no.is_not(None)).with_for_update()
