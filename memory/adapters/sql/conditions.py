"""Shapes as SQL expressions.

Every value is bound. Every comparison is true or false, never NULL. Text compares by
its bytes in UTF-8, which is by code point. Tags compare as a whole by the text of their
column.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.sql.elements import Grouping

from memory.adapters.sql.columns import PARTITIONS, REQUIRED, field_column
from memory.adapters.sql.shapes import NEVER_MISSING, Shape
from memory.ports.query import SYSTEM_FIELDS, Order, RowType
from memory.ports.record import Role
from memory.ports.rows import RECORD

SqlCondition = sa.ColumnElement[bool]
SortKey = tuple[sa.ColumnElement[Any], str, bool, sa.BindParameter[Any] | None]
"""A column, its field's name, whether it descends, and its value in the last row.

The last row is the one that ended the previous page.
"""

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TYPES: dict[str, sa.types.TypeEngine[Any]] = {
    "s": sa.Text(),
    "i": sa.BigInteger(),
    "f": sa.Double(),
    "b": sa.LargeBinary(),
    "p": sa.Text(),
}


_SIDE_BY_SIDE = 100
"""The number of conditions joined in one run.

SQLite allows expressions of a depth of 1,000; each further condition in a run adds one
level.
"""


class _Brackets(Grouping[bool]):
    """Brackets that SQLAlchemy keeps inside a run of the same operator."""

    inherit_cache = True
    operator = None


def _shallow(join: Callable[..., SqlCondition], parts: Sequence[SqlCondition]) -> Sequence[SqlCondition]:
    """Return the conditions, in brackets by the hundred where there are many."""
    while len(parts) > _SIDE_BY_SIDE:
        parts = [
            _Brackets(join(*parts[at : at + _SIDE_BY_SIDE])) for at in range(0, len(parts), _SIDE_BY_SIDE)
        ]
    return parts


def is_ours(name: str) -> bool:
    """Whether a bound parameter is one of `Conditions.value`.

    Their names are v and their position; dialects add parameters of their own.
    """
    return name[:1] == "v" and name[1:].isdigit()


class Conditions:
    """Builds the conditions of one statement.

    Pass shapes in the order in which their values were added. This class writes
    SQLite's form where dialects differ; another dialect overrides that.
    """

    types: ClassVar[dict[str, sa.types.TypeEngine[Any]]] = _TYPES

    def __init__(self, table: sa.Table) -> None:
        self._table = table
        self._never_missing = NEVER_MISSING | frozenset(table.info.get(REQUIRED, ()))
        self._places = count()
        self._type = table.c.row_type

    def value(self, code: str) -> sa.BindParameter[Any]:
        """Return the next value."""
        return sa.bindparam(f"v{next(self._places)}", type_=self.types[code])

    def values(self, codes: str) -> list[sa.BindParameter[Any]]:
        return [self.value(code) for code in codes]

    def column(self, field: str) -> sa.ColumnElement[Any]:
        if field == "owing":
            return self._table.c.owed.is_not(None)
        return self._table.c[field if field in SYSTEM_FIELDS else field_column(field)]

    # -- where, roles and kinds --------------------------------------------------------

    def scope(self, shape: Shape, walking: bool = False) -> SqlCondition:
        """Whether a row is in the scope.

        `walking` means reading one partition in its order until a page is full.
        """
        if shape[0] == "partitions":
            numbers = self.values("i" * shape[1])
            there = (
                self._in_partition(numbers[0], walking or shape[2])
                if len(numbers) == 1
                else self._table.c.partition_no.in_(numbers)
            )
            return sa.and_(there, self._table.c.tenant == self.value("s")) if shape[2] else there
        if shape[0] == "everywhere":
            return sa.true()
        tenant = self.value("s")
        of_tenant = self._table.c.tenant == tenant
        if shape[0] == "tenant" and shape[1]:
            return of_tenant
        partitions = sa.table(
            self._table.info[PARTITIONS],
            *map(sa.column, ("number", "tenant", "scope")),
            schema=self._table.schema,
        )
        those = sa.select(partitions.c.number).where(partitions.c.tenant == tenant)
        if shape[0] == "under":
            there = self._of_partitions(those.where(self._under(partitions.c.scope, *shape[2:])))
            return sa.and_(of_tenant, there) if shape[1] else there
        return sa.and_(of_tenant, self._of_partitions(those))

    def _under(self, scope: sa.ColumnElement[Any], ranges: int, scopes: int) -> SqlCondition:
        """Whether the scope is in one of these ranges, or is one of these scopes."""
        bounds = [self.values("ss") for _ in range(ranges)]
        there = [sa.and_(scope >= first, scope < end) for first, end in bounds]
        return sa.or_(*there, scope.in_(self.values("s" * scopes)) if scopes else sa.false())

    def _in_partition(self, number: sa.BindParameter[Any], some_of_it: bool) -> SqlCondition:
        """Whether a row is in this partition; the statement reads only some."""
        return self._table.c.partition_no == number

    def _of_partitions(self, numbers: sa.Select[Any]) -> SqlCondition:
        """Whether the row is in one of these partitions.

        The lookup goes by partition, as the tenant does not lead the key of a table.
        """
        return self._table.c.partition_no.in_(numbers)

    def roles_and_types(self, roles: frozenset[Role], kinds: frozenset[RowType]) -> SqlCondition:
        """Whether a row has one of these roles and types.

        Both are ours, not a caller's. They are written out, so that partial indexes
        apply.
        """
        of_kind: list[SqlCondition] = [
            self._type == constant(kind) for kind in sorted(kinds) if kind is not RowType.RECORD
        ]
        if RowType.RECORD in kinds:
            wanted = [constant(role.value) for role in sorted(roles)]
            of_role = self._table.c.role == wanted[0] if len(wanted) == 1 else self._table.c.role.in_(wanted)
            of_kind.append(sa.and_(self._type == constant(RECORD), of_role if wanted else sa.false()))
        return sa.or_(sa.false(), *of_kind)

    # -- filters -----------------------------------------------------------------------

    def filter(self, shape: Shape) -> SqlCondition:
        match shape:
            case ("true",):
                return sa.true()
            case ("false",):
                return sa.false()
            case ("and", *parts):
                return sa.and_(sa.true(), *_shallow(sa.and_, [self.filter(part) for part in parts]))
            case ("or", *parts):
                return sa.or_(sa.false(), *_shallow(sa.or_, [self.filter(part) for part in parts]))
            case ("not", inner):
                return sa.not_(self.filter(inner))
            case ("null", field):
                return self.column(field).is_(None)
            case ("owing", wanted):
                return self._table.c.owed.is_not(None) if wanted else self._table.c.owed.is_(None)
            case ("has", field):
                return self._present(
                    field, sa.func.instr(self.column(field), self.value("s")) > sa.literal_column("0")
                )
            case ("json", kind, sign, path, codes):
                return self._in_body(kind, sign, path, codes)
            case ("in", field, codes):
                return self._present(field, self.column(field).in_(self.values(codes)))
            case (sign, field, code):
                return self._present(field, OPERATORS[sign](self.column(field), self.value(code)))
            case _:
                raise AssertionError(shape)

    def _in_body(self, kind: str, sign: str, path: tuple[str, ...] | None, codes: str) -> SqlCondition:
        """Return a comparison of the values of one type at a path of the body."""
        column = self.json_column(kind, self.value("p") if path is None else path)
        if sign == "exists":
            return column.is_not(None)
        values = [self.json_value(kind, value) for value in self.values(codes)]
        compared = column.in_(values) if sign == "in" else OPERATORS[sign](column, values[0])
        return sa.and_(column.is_not(None), compared)

    def json_column(self, kind: str, path: sa.BindParameter[Any] | tuple[str, ...]) -> sa.ColumnElement[Any]:
        """Return the value at a path of the body, if it has the type; else NULL.

        The types are `text` and `number`. With `type`, return the name of its type, in
        which `true`, `false` and `null` are types of their own.
        """
        raise NotImplementedError

    def json_value(self, kind: str, value: sa.BindParameter[Any]) -> sa.ColumnElement[Any]:
        """Return a value that is compared with such a column."""
        return value

    def _present(self, field: str, condition: SqlCondition) -> SqlCondition:
        """Return the condition, but false where the value is missing.

        Under a plain AND a NULL would do as well, but not under NOT.
        """
        if field == "owing":
            return condition
        return sa.and_(self.column(field).is_not(None), condition)

    # -- order and cursors -------------------------------------------------------------

    def ordering(self, order: Sequence[Order], tenants: bool) -> list[sa.ColumnElement[Any]]:
        """Return the sort keys.

        The id comes last, and after it the tenant where the query covers several
        tenants.
        """
        last_descends = bool(order) and order[-1].descending
        columns = [(self.column(o.field), o.field, o.descending) for o in order]
        columns.append((self._table.c.id, "id", last_descends))
        if tenants:
            columns.append((self._table.c.tenant, "id", last_descends))
        return [self.sort_key(c, field, descending) for c, field, descending in columns]

    def sort_key(self, column: sa.ColumnElement[Any], field: str, descending: bool) -> sa.ColumnElement[Any]:
        """Return one sort key: NULL sorts first ascending, last descending."""
        return column.desc() if descending else column.asc()

    def after(self, shape: Shape) -> SqlCondition:
        """Whether a row is strictly behind the position."""
        keys = [
            (self.column(field), field, descending, None if code is None else self.value(code))
            for field, descending, code in shape[1]
        ]
        if (
            all(field in self._never_missing and value is not None for _, field, _, value in keys)
            and len({d for _, _, d, _ in keys}) == 1
        ):
            here, there = sa.tuple_(*[c for c, _, _, _ in keys]), sa.tuple_(*[v for _, _, _, v in keys])
            return here < there if keys[0][2] else here > there
        return self.lexically(keys)

    def lexically(self, keys: Sequence[SortKey]) -> SqlCondition:
        """Whether a row is behind the position, compared sort key by sort key."""
        behind: list[SqlCondition] = []
        equal: list[SqlCondition] = []
        for column, _, descending, value in keys:
            behind.append(sa.and_(*equal, _behind(column, descending, value)))
            equal.append(column.is_(None) if value is None else column == value)
        return sa.or_(*behind)


def _behind(
    column: sa.ColumnElement[Any], descending: bool, value: sa.BindParameter[Any] | None
) -> SqlCondition:
    if value is None:
        return sa.false() if descending else column.is_not(None)
    if descending:
        return sa.or_(column < value, column.is_(None))
    return column > value


def constant(text: str) -> sa.ColumnElement[str]:
    """Return a word of ours, written out in the statement."""
    return sa.literal_column(f"'{text}'", sa.Text())
