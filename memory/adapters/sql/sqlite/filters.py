"""Statements made of what a caller asks, prepared once a shape: building and compiling one takes ten times as long as running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.conditions import Conditions
from memory.adapters.sql.prepared import Statement, compiled, kept
from memory.adapters.sql.shapes import TRUE, Shape, Values, names, scope, walks
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import Table
from memory.ports.query import Everywhere, Filter, Query, RowType, decode_cursor
from memory.ports.record import Role

Build = Callable[[Table, Shape], sa.Select[Any]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that a session can run."""

    statement: Statement

    def rows(self, session: Session, values: Values) -> list[Any]:
        return session.rows(self.statement.sql, self.statement.arguments(values))


def prepared(session: Session, table: Table, build: Build, shape: Shape, count: int) -> Prepared:
    """The statement of this shape, which comes with so many values; built where there is none yet."""
    dialect = session.dialect
    most = session.thresholds.statements_kept
    return Prepared(kept(table.prepared, most, (dialect.name, build, shape), lambda: compiled(dialect, build(table, shape), count)))


# -- queries ----------------------------------------------------------------------------------------------------------


def _asked(table: Table, query: Query, partitions: Sequence[int], walking: bool = False) -> tuple[Values, Shape, Shape]:
    """The values of a query, and the shapes of where and what it asks for. `walking` is through a partition in order, whatever the filter."""
    of_filter: Values = []
    chosen = table.shaper.filter(query.filter, of_filter)
    values: Values = []
    where = scope(query.where, partitions, values, tenant=not walking and names(chosen, table.keyed))
    return values + of_filter, where, chosen


def page(session: Session, table: Table, query: Query, partitions: Sequence[int], limit: int, columns: tuple[str, ...] | None) -> list[Any]:
    """The rows of a page in order, each with its number before it: these columns, or all."""
    values, where, chosen = _asked(table, query, partitions, walking=len(partitions) == 1 and walks(query.order))
    after = TRUE if query.cursor is None else table.shaper.after(query.order, decode_cursor(query.cursor, query.order), values)
    values.append(limit)
    shape = (columns, where, query.roles, query.types, chosen, after, query.order)
    return prepared(session, table, _page, shape, len(values)).rows(session, values)


def _page(table: Table, shape: Shape) -> sa.Select[Any]:
    columns, where, roles, kinds, chosen, after, order = shape
    conditions = Conditions(table.table)
    asked = [conditions.scope(where), conditions.standing(roles, kinds), conditions.filter(chosen)]
    if after != TRUE:
        asked.append(conditions.after(after))
    ordering = conditions.ordering(order, tenants=where == scope(Everywhere(), (), []))
    return sa.select(*_columns(table, columns)).where(*asked).order_by(*ordering).limit(conditions.value("i"))


def _columns(table: Table, names: tuple[str, ...] | None) -> list[Any]:
    """The number of a row and these columns of it, or all of them."""
    return table.row_columns if names is None else [table.table.c.number, *(table.table.c[name] for name in names)]


def totals(session: Session, table: Table, query: Query, partitions: Sequence[int]) -> tuple[int, int]:
    """How many records match, and their bytes."""
    values, where, chosen = _asked(table, query, partitions)
    shape = (where, query.roles, query.types, chosen)
    ((records, size),) = prepared(session, table, _totals, shape, len(values)).rows(session, values)
    return int(records), int(size)


def _totals(table: Table, shape: Shape) -> sa.Select[Any]:
    where, roles, kinds, chosen = shape
    conditions = Conditions(table.table)
    asked = [conditions.scope(where), conditions.standing(roles, kinds), conditions.filter(chosen)]
    return sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(table.table.c.bytes), 0)).select_from(table.table).where(*asked)


def matches(session: Session, table: Table, query: Query, partitions: Sequence[int]) -> dict[int, bool]:
    """For every live row there, by number, whether the query matches it."""
    values, where, chosen = _asked(table, query, partitions)
    shape = (where, query.roles, query.types, chosen)
    return {number: bool(wanted) for number, wanted in prepared(session, table, _matches, shape, len(values)).rows(session, values)}


def _matches(table: Table, shape: Shape) -> sa.Select[Any]:
    where, roles, kinds, chosen = shape
    conditions = Conditions(table.table)
    somewhere = conditions.scope(where)
    wanted = sa.and_(conditions.standing(roles, kinds), conditions.filter(chosen))
    return sa.select(table.table.c.number, wanted).where(somewhere, table.table.c.partition_no.is_not(None))


# -- candidates of a search -------------------------------------------------------------------------------------------


def among(session: Session, table: Table, numbers: Sequence[int], part: Filter | None, roles: frozenset[Role], columns: tuple[str, ...]) -> list[Any]:
    """The live rows of these numbers, in these roles, that the filter lets through, each with its number and these columns."""
    wide = 1 << (len(numbers) - 1).bit_length()
    values: Values = [*numbers, *[numbers[0]] * (wide - len(numbers))]
    shape = (wide, roles, table.shaper.filter(part, values), columns)
    return prepared(session, table, _among, shape, len(values)).rows(session, values)


def _among(table: Table, shape: Shape) -> sa.Select[Any]:
    wide, roles, chosen, columns = shape
    conditions = Conditions(table.table)
    these = table.table.c.number.in_(conditions.values("i" * wide))
    asked = [these, conditions.standing(roles, frozenset({RowType.RECORD})), conditions.filter(chosen)]
    return sa.select(*_columns(table, columns)).where(*asked)
