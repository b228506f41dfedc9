"""Conditions in the form that only MySQL and MariaDB have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from memory.adapters.sql.conditions import Conditions, SortKey, SqlCondition, constant
from memory.adapters.sql.server.filters import ExactShaper
from memory.adapters.sql.shapes import Shape, Values, path_text
from memory.adapters.sql.shapes import is_comparable as is_comparable_in_sql
from memory.ports.query import JsonPath

_LISTED = {
    "s": "listed.value",
    "i": "CAST(listed.value AS SIGNED)",
    "f": "CAST(listed.value AS DOUBLE)",
    "b": "UNHEX(listed.value)",
}
"""A listed value as its column holds it, see `MyShaper.bind_list`."""


_EXACT = 2**53
"""Below this number, a whole number equals the nearest double."""


def is_comparable(part: JsonPath) -> bool:
    """Return whether MariaDB compares so in bodies, exactly as Python does.

    It compares numbers as doubles, and finds no key that begins with a minus sign.
    """
    wanted = part.value if part.operator == "in" else (part.value,)
    return (
        is_comparable_in_sql(part)
        and all(not isinstance(one, int | float) or abs(one) < _EXACT for one in wanted)
        and not any(key.startswith("-") for key in part.parts)
    )


class MyShaper(ExactShaper):
    """Makes shapes whose lists are JSON."""

    def bind_path(self, parts: Sequence[str]) -> str:
        return path_text(parts)

    def bind_number(self, value: float) -> float:
        return float(value)

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

    _is_inside = False
    """Whether a part of a filter on bodies is being built."""

    def filter(self, shape: Shape) -> SqlCondition:
        """Return the condition, which rows with an unreadable body meet too.

        MariaDB reads no JSON of more than 32 levels.
        """
        if self._is_inside or not _names_body(shape):
            return self._filter(shape)
        self._is_inside = True
        whole = self._filter(shape)
        self._is_inside = False
        is_json = sa.func.json_valid(self._table.c.body, type_=sa.Integer())
        return sa.or_(whole, is_json == sa.literal_column("0"))

    def _filter(self, shape: Shape) -> SqlCondition:
        match shape:
            case ("owing", wanted):
                return self._table.c.owing.is_not(None) if wanted else self._table.c.owing.is_(None)
            case ("any", field, code):
                return self._present(
                    field,
                    self.column(field).in_(self._each(code, self._collation)),
                )
            case _:
                return super().filter(shape)

    @property
    def _collation(self) -> str:
        return str(getattr(self._table.c.body.type, "collation", ""))

    def json_column(self, kind: str, path: sa.BindParameter[Any] | tuple[str, ...]) -> sa.ColumnElement[Any]:
        """Return the value at a path of the body; see `Conditions`.

        A body that is no JSON has no value at any path.
        """
        body = self._table.c.body
        at: Any = sa.literal(path_text(path)) if isinstance(path, tuple) else path
        found = sa.func.json_extract(body, at, type_=sa.Text())
        type_of = sa.func.json_type(found, type_=sa.Text())
        if kind == "type":
            constants = sa.func.json_unquote(found, type_=sa.Text())
            return sa.case((type_of.in_([constant("BOOLEAN"), constant("NULL")]), constants), else_=type_of)
        if kind == "number":
            is_number = type_of.in_([constant("INTEGER"), constant("DOUBLE")])
            double: sa.ColumnElement[Any] = sa.type_coerce(found, sa.Double()) + sa.literal_column(
                "0e0", sa.Double()
            )
            return sa.case((is_number, double))
        plain = sa.collate(sa.func.json_unquote(found, type_=sa.Text()), self._collation)
        return sa.case((type_of == constant("STRING"), plain))

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


def _names_body(shape: Shape) -> bool:
    """Return whether a part of the filter compares a value in the body."""
    return shape[0] == "json" or (shape[0] in ("and", "or", "not") and any(map(_names_body, shape[1:])))
