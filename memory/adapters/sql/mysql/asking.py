"""What is asked, where MySQL and MariaDB say it in their own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.conditions import Condition, Conditions, SortKey
from memory.adapters.sql.mysql.rows import Row
from memory.adapters.sql.server.exactly import ExactShaper
from memory.adapters.sql.shapes import FALSE, NEVER_MISSING, NOTHING, Shape, Values
from memory.domain.errors import InvalidInput
from memory.ports.query import Has
from memory.ports.record import FieldValue


class MyShaper(ExactShaper):
    """Shapes whose values are what the driver takes: moments and truth are integers, tags are text, as on SQLite."""

    def _has(self, part: Has, values: Values) -> Shape:
        return super()._has(part, values) if _is_text(part.tag) else FALSE

    def _bound(self, field: str, value: FieldValue, *, ordering: bool = False) -> Any:
        if not all(map(_is_text, value if isinstance(value, tuple) else (value,))):
            if ordering:
                raise InvalidInput(field, "cannot be compared with half of a surrogate pair")
            return NOTHING
        return super()._bound(field, value, ordering=ordering)

    def value_in(self, row: Row, field: str) -> Any:
        value = super().value_in(row, field)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _is_text(value: object) -> bool:
    """Whether a value holds no half of a surrogate pair, which no column holds."""
    try:
        return not isinstance(value, str) or value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


class MyConditions(Conditions):
    """Conditions that the servers' optimizers find an index for."""

    def filter(self, shape: Shape) -> Condition:
        match shape:
            case ("owing", wanted):
                return self._table.c.owing.is_not(None) if wanted else self._table.c.owing.is_(None)
            case _:
                return super().filter(shape)

    def after(self, shape: Shape) -> Condition:
        """Key by key, and the first once more by itself: a comparison of whole tuples is not looked up in an index."""
        keys: list[SortKey] = [
            (self.column(field), field, descending, None if code is None else self.value(code)) for field, descending, code in shape[1]
        ]
        column, field, descending, value = keys[0]
        behind = self.lexically(keys)
        if value is None or field not in NEVER_MISSING:
            return behind
        return sa.and_(column <= value if descending else column >= value, behind)

    def some(self, column: sa.ColumnElement[Any], code: str, count: int) -> Condition:
        """Whether a column holds one of so many values."""
        values: Sequence[sa.BindParameter[Any]] = self.values(code * count)
        return column == values[0] if count == 1 else column.in_(values)
