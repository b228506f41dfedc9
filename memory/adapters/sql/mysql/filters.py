"""Conditions in the form that only MySQL and MariaDB have."""

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
"""A listed value as its column holds it, see `MyShaper.bind_list`."""


class MyShaper(ExactShaper):
    """Makes shapes whose lists are JSON."""

    def bind_list(self, code: str, wanted: Values) -> tuple[str, Any]:
        """Return a list's code, and its values as a JSON array of texts.

        Servers could read a JSON number as another type. The code has the length of
        short texts, because servers do not hash long ones.
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
    """Builds conditions for which the servers' optimizers use an index."""

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
        """Return the values of a JSON array as rows, see `MyShaper.bind_list`."""
        wanted, text = self.value("s"), f"VARCHAR({code[1:]})" if code[1:] else "LONGTEXT"
        table = (
            f"JSON_TABLE(:{wanted.key}, '$[*]' COLUMNS (value {text} CHARACTER SET utf8mb4 COLLATE"
            f" {collation} PATH '$')) AS listed"
        )
        return sa.select(sa.literal_column(_LISTED[code[0]])).select_from(sa.text(table).bindparams(wanted))

    def after(self, shape: Shape) -> SqlCondition:
        """Return the condition of rows behind a position, key by key.

        The first key is compared once more by itself, because the servers use no index
        for a comparison of tuples.
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
        """Return the condition that a column has one of `count` values."""
        values: Sequence[sa.BindParameter[Any]] = self.values(code * count)
        return column == values[0] if count == 1 else column.in_(values)
