"""Statements made of a caller's query, prepared once per shape.

See `memory.adapters.sql.prepared`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import sqlalchemy as sa

from memory.adapters.sql.prepared import cached_statement, compile_statement
from memory.adapters.sql.shapes import BY_BODY, TRUE, Shape, Values, by_body, names, scope
from memory.adapters.sql.table import Table
from memory.domain.time import micros
from memory.ports.query import RECORDS, Condition, Everywhere, Query, RowType, Tenant, Where, decode_cursor
from memory.ports.record import Role

AnyTable: TypeAlias = Table[Any]
Build = Callable[[AnyTable, Shape], sa.Select[Any]]


@dataclass(frozen=True, slots=True)
class Question:
    """A statement and its values."""

    sql: str
    arguments: Values


def question(table: AnyTable, build: Build, shape: Shape, values: Values) -> Question:
    """Return the statement of this shape, built where there is none yet."""
    most = table.thresholds.statements_kept
    statement = cached_statement(
        table.prepared,
        most,
        (build, shape),
        lambda: compile_statement(table.dialect, build(table, shape), len(values)),
    )
    return Question(statement.sql, statement.arguments(values))


def values_and_shapes(
    table: AnyTable,
    where: Where,
    part: Condition | None,
    partitions: Sequence[int],
    walking: bool = False,
    few: Shape | None = None,
) -> tuple[Values, Shape, Shape]:
    """Return the values, the shape of the place, and the shape of the filter.

    `walking` means along an index in order; the filter does not matter. `few` is a
    bound of a value in bodies that few rows pass.
    """
    of_filter: Values = []
    chosen = table.shaper.filter(part, of_filter)
    values: Values = []
    keyed: bool | str = isinstance(where, Tenant) if walking else names(chosen, table.keyed)
    keyed = BY_BODY if by_body(chosen, few) else keyed
    there = scope(where, partitions, values, tenant=keyed)
    return table.shaper.texts(values) + of_filter, there, chosen


def passing_at_most(table: AnyTable, bound: Shape, values: Values, most: int) -> Question:
    """Count rows that pass a bound on a value in bodies, but no more than `most`."""
    return question(table, _passing_at_most, (bound, most), values)


def _passing_at_most(table: AnyTable, shape: Shape) -> sa.Select[Any]:
    bound, most = shape
    rows: sa.Select[Any] = sa.select(sa.literal_column("1").label("one")).select_from(table.table)
    passing = rows.where(table.conditions().filter(bound)).limit(sa.literal_column(str(most)))
    return sa.select(sa.func.count()).select_from(passing.subquery())


def page(
    table: AnyTable,
    query: Query,
    partitions: Sequence[int],
    limit: int,
    columns: tuple[str, ...],
    few: Shape | None = None,
) -> Question:
    """Select columns of the rows of a page in order.

    Behind the columns of each row comes whether any row is in the quarantine.
    """
    values, where, chosen = values_and_shapes(
        table, query.where, query.filter, partitions, walking=table.walks(query, partitions, few), few=few
    )
    after = (
        TRUE
        if query.cursor is None
        else table.shaper.after(query.order, decode_cursor(query.cursor, query.order), values)
    )
    written = limit if _is_usual(limit, table.thresholds.limits_written_out) else None
    if written is None:
        values.append(limit)
    return question(
        table, _page, (columns, where, query.roles, query.types, chosen, after, query.order, written), values
    )


def _is_usual(limit: int, most: int) -> bool:
    """Whether the limit is written out in the statement.

    PostgreSQL plans a statement with an unknown limit anew at every call, which takes
    half the time. Ten, twenty, … a thousand are written out. So is one more, to see
    whether there are more rows behind, or two more where the caller asks for one more
    itself. These are few enough for a statement each.
    """
    return limit <= most and limit % 10 in (1, 2)


def _page(table: AnyTable, shape: Shape) -> sa.Select[Any]:
    columns, where, roles, kinds, chosen, after, order, written = shape
    conditions = table.conditions()
    wanted = [
        conditions.scope(where, table.walks_partition(order)),
        conditions.roles_and_types(roles, kinds),
        conditions.filter(chosen),
    ]
    if kinds == {RowType.RECORD} and not names(
        chosen, table.keyed
    ):  # lets a partial index of rows with the value return them in order
        listed = table.ordering | table.collection.ordered_texts
        wanted += [conditions.column(o.field).is_not(None) for o in order if o.field in listed]
    if after != TRUE:
        wanted.append(conditions.after(after))
    ordering = conditions.ordering(order, tenants=where == scope(Everywhere(), (), []))
    chosen_columns = [table.table.c[name] for name in columns]
    statement = (
        sa.select(*chosen_columns, sa.literal_column(table.any_quarantined))
        .where(*wanted)
        .order_by(*ordering)
    )
    return table.with_index_hint(
        statement.limit(conditions.value("i") if written is None else sa.literal_column(str(written))),
        where,
        order,
    )


def totals(table: AnyTable, query: Query, partitions: Sequence[int]) -> Question:
    """Count matching records and sum up their bytes."""
    values, where, chosen = values_and_shapes(table, query.where, query.filter, partitions)
    return question(table, _totals, (where, query.roles, query.types, chosen), values)


def _totals(table: AnyTable, shape: Shape) -> sa.Select[Any]:
    where, roles, kinds, chosen = shape
    conditions = table.conditions()
    wanted = [conditions.scope(where), conditions.roles_and_types(roles, kinds), conditions.filter(chosen)]
    columns: list[sa.ColumnElement[Any]] = [sa.func.count(), sum_or_zero(table.table.c.bytes)]
    return sa.select(*columns).select_from(table.table).where(*wanted)


def due_question(
    tables: Sequence[AnyTable], expiring: Sequence[bool], moments: Sequence[datetime]
) -> Question:
    """Select whether any row in these tables may be due at the first of the moments.

    A row of an `expiring` table may also have expired before the second moment.
    """
    first, values = tables[0], [micros(at) for at in moments]
    key = (due_question, tuple([table.name for table in tables]), tuple(expiring))
    statement = cached_statement(
        first.prepared,
        first.thresholds.statements_kept,
        key,
        lambda: compile_statement(first.dialect, _due_select(tables, expiring), len(values)),
    )
    return Question(statement.sql, statement.arguments(values))


def _due_select(tables: Sequence[AnyTable], expiring: Sequence[bool]) -> sa.Select[Any]:
    """Select the first row in an index's order from each table.

    A server that does not know how few there are would scan the table for any row.
    """
    found: list[sa.ColumnElement[bool]] = []
    for table, expires in zip(tables, expiring, strict=True):
        conditions, c = table.conditions(), table.table.c
        asked = [
            (conditions.filter(("owing", True)), c.id),
            (conditions.roles_and_types(frozenset({Role.ARRIVING}), RECORDS), c.id),
        ]
        asked.append((conditions.filter(("<", "discard_at", "i")), c.discard_at))
        asked += [(conditions.filter(("<", "expires_at", "i")), c.expires_at)] if expires else []
        found += [
            sa.select(first)
            .where(each)
            .order_by(first)
            .limit(sa.literal_column("1"))
            .scalar_subquery()
            .is_not(None)
            for each, first in asked
        ]
    return sa.select(sa.or_(*found))


def sum_or_zero(column: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Return the sum as an integer, 0 over nothing."""
    return sa.cast(sa.func.coalesce(sa.func.sum(column), sa.literal_column("0")), sa.BigInteger())


def matches(table: AnyTable, query: Query, partitions: Sequence[int], columns: tuple[str, ...]) -> Question:
    """Select and lock every live row there, with whether the query matches it."""
    values, where, chosen = values_and_shapes(table, query.where, query.filter, partitions)
    shape = (where, query.roles, query.types, chosen, columns)
    return question(table, _matches, shape, values)


def _matches(table: AnyTable, shape: Shape) -> sa.Select[Any]:
    where, roles, kinds, chosen, columns = shape
    conditions = table.conditions()
    somewhere = conditions.scope(where)
    wanted = sa.and_(conditions.roles_and_types(roles, kinds), conditions.filter(chosen))
    return (
        sa.select(*[table.table.c[c] for c in columns], wanted)
        .where(somewhere, table.table.c.partition_no.is_not(None))
        .with_for_update()
    )
