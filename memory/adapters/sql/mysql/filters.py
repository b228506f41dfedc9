"""What is asked, where MySQL and MariaDB say it in their own way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.conditions import Conditions, SortKey, SqlCondition
from memory.adapters.sql.server.filters import ExactShaper
from memory.adapters.sql.shapes import Shape, Values

_LISTED = {
    "s": "listed.value",
    "i": "CAST(listed.value AS SIGNED)",
    "f": "CAST(listed.value AS DOUBLE)",
    "b": "UNHEX(listed.value)",
}
"""A listed value as its column holds it, see `MyShaper.listed`."""


class MyShaper(ExactShaper):
    """Shapes whose lists are JSON."""

    def bind_list(self, code: str, wanted: Values) -> tuple[str, Any]:
        """A JSON array of texts: a number in it could be taken for another kind. Short
        texts are said to be: the servers hash no long ones.
        """
        texts = (
            wanted
            if code == "s"
            else [v.hex() if code == "b" else repr(v) if code == "f" else str(v) for v in wanted]
        )
        longest = max(map(len, texts))
        return code + ("64" if longest <= 64 else "512" if longest <= 512 else ""), json.dumps(
            texts, separators=(",", ":")
        )


class MyConditions(Conditions):
    """Conditions that the servers' optimizers find an index for."""

    def filter(self, shape: Shape) -> SqlCondition:
        match shape:
            case ("owing", wanted):
                return self._table.c.owing.is_not(None) if wanted else self._table.c.owing.is_(None)
            case ("any", field, code):
                return self._present(
                    field,
                    self.column(field).in_(
                        self._each(code, str(getattr(self._table.c.body.type, "collation", "")))
                    ),
                )
            case _:
                return super().filter(shape)

    def _each(self, code: str, collation: str) -> sa.Select[Any]:
        """The values of a JSON array as rows, see `MyShaper.listed`."""
        wanted, text = self.value("s"), f"VARCHAR({code[1:]})" if code[1:] else "LONGTEXT"
        table = f"JSON_TABLE(:{wanted.key}, '$[*]' COLUMNS (value {text} CHARACTER SET utf8mb4 COLLATE {collation} PATH '$')) AS listed"
        return sa.select(sa.literal_column(_LISTED[code[0]])).select_from(sa.text(table).bindparams(wanted))

    def after(self, shape: Shape) -> SqlCondition:
        """Key by key, and the first once more by itself: a comparison of whole tuples
        is not looked up in an index.
        """
        keys: list[SortKey] = [
            (self.column(field), field, descending, None if code is None else self.value(code))
            for field, descending, code in shape[1]
        ]
        column, field, descending, value = keys[0]
        behind = self.lexically(keys)
        if value is None or field not in self._never_missing:
            return behind
        return sa.and_(column <= value if descending else column >= value, behind)

    def some(self, column: sa.ColumnElement[Any], code: str, count: int) -> SqlCondition:
        """Whether a column holds one of so many values."""
        values: Sequence[sa.BindParameter[Any]] = self.values(code * count)
        return column == values[0] if count == 1 else column.in_(values)
