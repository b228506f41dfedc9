"""Filters, orders and cursors as SQL expressions. Every value is bound; every comparison is true or false, never NULL.

Text compares by its bytes in UTF-8, which is by code point. Tags compare as a whole by the text of their column.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, assert_never

import sqlalchemy as sa

from memory.adapters.sql.rows import OWED, Row, Unstorable, decode_tags, encode_tags, encode_value, tag_token
from memory.adapters.sql.schema import field_column
from memory.adapters.sql.shelf import Shelf
from memory.domain.errors import InvalidInput
from memory.domain.time import micros, moment
from memory.ports.collections import FieldType
from memory.ports.query import (
    SYSTEM_FIELDS,
    And,
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    In,
    IsNull,
    Le,
    Lt,
    Not,
    Or,
    Order,
    Position,
)
from memory.ports.record import FieldValue

Condition = sa.ColumnElement[bool]

_SYSTEM_TYPES: dict[str, FieldType] = {
    **dict.fromkeys(("id", "scope", "role", "tier"), FieldType.TEXT),
    **dict.fromkeys(("version", "generation", "accesses"), FieldType.INTEGER),
    **dict.fromkeys(("created_at", "updated_at", "expires_at", "discard_at", "accessed_at"), FieldType.TIME),
    "owing": FieldType.BOOLEAN,
}
_NEVER_MISSING = frozenset(("id", "version", "owing", "created_at", "updated_at", "generation", "role", "tier", "accesses", "scope"))
"""Of live records."""

_OPERATORS: dict[type[Filter], Callable[[Any, Any], Any]] = {
    Eq: operator.eq,
    Lt: operator.lt,
    Le: operator.le,
    Gt: operator.gt,
    Ge: operator.ge,
}
_NUMBERS = (FieldType.INTEGER, FieldType.REAL, FieldType.BOOLEAN)


class Asked:
    """A collection's fields as columns."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._table = shelf.table

    def type_of(self, field: str) -> FieldType:
        if field in SYSTEM_FIELDS:
            return _SYSTEM_TYPES[field]
        declared = self._shelf.collection.field(field)
        if declared is None:
            raise InvalidInput(field, f"collection '{self._shelf.name}' declares no such field")
        return declared.type

    def column(self, field: str) -> sa.ColumnElement[Any]:
        if field == "owing":
            return self._table.c.owed.is_not(None)
        return self._table.c[field if field in SYSTEM_FIELDS else field_column(field)]

    # -- filters ------------------------------------------------------------------------------------------------------

    def condition(self, part: Filter) -> Condition:
        """The filter as SQL."""
        match part:
            case And(parts):
                return sa.and_(sa.true(), *map(self.condition, parts))
            case Or(parts):
                return sa.or_(sa.false(), *map(self.condition, parts))
            case Not(inner):
                return sa.not_(self.condition(inner))
            case IsNull(field):
                return sa.false() if field == "owing" else self.column(field).is_(None)
            case Has(field, tag):
                return self._present(field, sa.func.instr(self.column(field), _bound(tag_token(tag), sa.Text())) > 0)
            case In(field, values):
                bound = [v for v in (self._bind(field, v) for v in values if v is not None) if v is not None]
                return self._present(field, self.column(field).in_(bound)) if bound else sa.false()
            case Eq(field, value) | Lt(field, value) | Le(field, value) | Gt(field, value) | Ge(field, value):
                return self._comparison(part, field, value)
            case _:
                assert_never(part)

    def _comparison(self, part: Filter, field: str, value: FieldValue) -> Condition:
        if value is None:
            return sa.false()
        bound = self._bind(field, value, ordering=not isinstance(part, Eq))
        if bound is None:
            return sa.false()
        compared: Condition = _OPERATORS[type(part)](self.column(field), bound)
        return self._present(field, compared)

    def _present(self, field: str, condition: Condition) -> Condition:
        """The condition, false where the value is missing. Under a plain AND that NULL would do as well, but not under NOT."""
        if field == "owing":
            return condition
        return sa.and_(self.column(field).is_not(None), condition)

    def _bind(self, field: str, value: FieldValue, *, ordering: bool = False) -> sa.BindParameter[Any] | None:
        """The value as its column would hold it; None where no value of the field can equal it."""
        kind = self.type_of(field)
        if kind in _NUMBERS:
            if isinstance(value, int | float):
                return _number(value)
        elif _suits(kind, value):
            try:
                return _bound(encode_value(kind, field, value), None)
            except Unstorable:
                return None
        if ordering:
            raise InvalidInput(field, f"cannot be compared with {type(value).__name__}")
        return None

    # -- order and cursors --------------------------------------------------------------------------------------------

    def ordering(self, order: Sequence[Order], tenants: bool) -> list[sa.ColumnElement[Any]]:
        """What to sort by. The id comes last, and after it the tenant where several are asked. SQLite puts NULL first going up."""
        last_descends = bool(order) and order[-1].descending
        columns = [(self.column(o.field), o.descending) for o in order]
        columns.append((self._table.c.id, last_descends))
        if tenants:
            columns.append((self._table.c.tenant, last_descends))
        return [c.desc() if descending else c.asc() for c, descending in columns]

    def position(self, order: Sequence[Order], values: Sequence[Any], record_id: str) -> Position:
        """Where a row with these column values stands."""
        return Position(tuple(self._value(o.field, v) for o, v in zip(order, values, strict=True)), record_id)

    def value_in(self, row: Row, field: str) -> Any:
        """What the field's column holds in a row."""
        if field == "owing":
            return int(row[OWED] is not None)
        return row[self._shelf.layout.at[field if field in SYSTEM_FIELDS else field_column(field)]]

    def _value(self, field: str, value: Any) -> FieldValue:
        kind = self.type_of(field)
        if value is None:
            return None
        if kind is FieldType.TAGS:
            return decode_tags(value)
        if kind is FieldType.TIME:
            return moment(value)
        return bool(value) if kind is FieldType.BOOLEAN else value

    def after(self, order: Sequence[Order], position: Position) -> Condition:
        """Whether a row stands strictly behind the position."""
        id_descends = bool(order) and order[-1].descending
        keys: list[tuple[str, bool, Any]] = [("id", id_descends, position.id)]
        for by, value in zip(order, position.values, strict=True):
            keys.insert(-1, (by.field, by.descending, None if value is None else self._position_value(by.field, value)))
        if all(field in _NEVER_MISSING and value is not None for field, _, value in keys) and len({d for _, d, _ in keys}) == 1:
            here, there = sa.tuple_(*[self.column(f) for f, _, _ in keys]), sa.tuple_(*[_bound(v, None) for _, _, v in keys])
            return here < there if id_descends else here > there
        behind: list[Condition] = []
        equal: list[Condition] = []
        for field, descending, value in keys:
            behind.append(sa.and_(*equal, self._behind(field, descending, value)))
            column = self.column(field)
            equal.append(column.is_(None) if value is None else column == _bound(value, None))
        return sa.or_(*behind)

    def _position_value(self, field: str, value: FieldValue) -> Any:
        kind = self.type_of(field)
        if kind is FieldType.TAGS and isinstance(value, list | tuple):
            return encode_tags(value)
        if not (isinstance(value, int | float) if kind in _NUMBERS else _suits(kind, value)):
            raise InvalidInput("cursor", "this cursor was made for a query with another order")
        return micros(value) if isinstance(value, datetime) else int(value) if isinstance(value, bool) else value

    def _behind(self, field: str, descending: bool, value: Any) -> Condition:
        column = self.column(field)
        if value is None:
            return sa.false() if descending else column.is_not(None)
        if descending:
            return sa.or_(column < _bound(value, None), column.is_(None))
        return column > _bound(value, None)


def _suits(kind: FieldType, value: FieldValue) -> bool:
    match kind:
        case FieldType.TEXT:
            return isinstance(value, str)
        case FieldType.TIME:
            return isinstance(value, datetime) and value.utcoffset() is not None
        case FieldType.TAGS:
            return isinstance(value, tuple) and all(isinstance(tag, str) for tag in value)
        case FieldType.BYTES:
            return isinstance(value, bytes)
        case _:
            return False


def _number(value: float) -> sa.BindParameter[Any]:
    """A number to compare with. One that 64 bits cannot hold compares like the nearest real number does."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float("inf") if value > 0 else float("-inf")
    if isinstance(value, bool):
        value = int(value)
    return _bound(value, None)


def _bound(value: Any, kind: Any) -> sa.BindParameter[Any]:
    return sa.bindparam(None, value, type_=kind if kind is not None else _TYPES.get(type(value)))


_TYPES: dict[type, Any] = {str: sa.Text(), int: sa.BigInteger(), float: sa.Double(), bytes: sa.LargeBinary()}
