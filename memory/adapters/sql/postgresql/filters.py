"""Conditions in the form that only PostgreSQL has."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSON

from memory.adapters.sql.columns import field_column
from memory.adapters.sql.conditions import OPERATORS, Conditions, SqlCondition, constant
from memory.adapters.sql.postgresql.codec import array
from memory.adapters.sql.postgresql.schema import indexed_part
from memory.adapters.sql.server.filters import ExactShaper
from memory.adapters.sql.shapes import Shape

_TYPES: dict[str, sa.types.TypeEngine[Any]] = {**Conditions.types, "u": sa.Uuid()}


_COMPARED = {"=": operator.eq, "<": operator.le, ">": operator.ge}
"""How the beginnings of texts compare where the texts compare so."""


class PgShaper(ExactShaper):
    """Makes shapes whose lists are arrays."""

    listable: ClassVar[str] = "".join(_TYPES)

    def code(self, value: Any) -> str:
        return "u" if isinstance(value, UUID) else super().code(value)

    def bind_path(self, parts: Sequence[str]) -> list[str]:
        return list(parts)

    def bind_number(self, value: float) -> str:
        """Return a number as text, which becomes a decimal number of any size."""
        return repr(value)


class PgConditions(Conditions):
    """Builds conditions, some in SQL that only PostgreSQL has."""

    types: ClassVar[dict[str, sa.types.TypeEngine[Any]]] = {
        **_TYPES,
        **{code + code: ARRAY(kind) for code, kind in _TYPES.items()},
        "a": ARRAY(sa.Text()),
        "p": ARRAY(sa.Text()),
    }

    def __init__(self, table: sa.Table, keyed: frozenset[str] = frozenset()) -> None:
        super().__init__(table)
        self._keyed = keyed

    def column(self, field: str) -> sa.ColumnElement[Any]:
        if field == "owing":
            return sa.cast(self._table.c.owed.is_not(None), sa.Integer())
        return super().column(field)

    def _in_partition(self, number: sa.BindParameter[Any], some_of_it: bool) -> SqlCondition:
        """Return the condition of a partition, as a subquery for a part of it.

        With a subquery, the server plans by the usual size of partitions. With a plain
        number it uses the statistics of that partition. It would take a partition that
        is newer than them for empty, and read it as a whole.
        """
        return self._table.c.partition_no == (sa.select(number).scalar_subquery() if some_of_it else number)

    def _of_partitions(self, numbers: sa.Select[Any]) -> SqlCondition:
        return self._table.c.partition_no == sa.any_(
            sa.func.array(numbers.scalar_subquery())
        )  # an index lookup, for any number of partitions that the server expects

    def filter(self, shape: Shape) -> SqlCondition:
        match shape:
            case ("has", field):
                return self._present(field, self.value("s") == sa.any_(self.column(field)))
            case ("in", field, codes) if self._is_keyed(field):
                column, wanted = self.column(field), self.values(codes)
                return self._present(
                    field,
                    sa.and_(indexed_part(column).in_([indexed_part(w) for w in wanted]), column.in_(wanted)),
                )
            case ("any", field, code):
                each = sa.select(sa.func.unnest(self.value(code + code)).column_valued())
                return self._present(
                    field, self.column(field).in_(each).is_(sa.true())
                )  # not a join, so that the server uses a hash
            case ("=", field, code) if self._is_keyed(field):
                column, value = self.column(field), self.value(code)
                return self._present(
                    field, sa.and_(indexed_part(column) == indexed_part(value), column == value)
                )
            case _:
                return super().filter(shape)

    def _in_body(self, kind: str, sign: str, path: tuple[str, ...] | None, codes: str) -> SqlCondition:
        """Return the comparison; an index has only the beginning of a text."""
        if kind != "text" or path is None or sign == "exists":
            return super()._in_body(kind, sign, path, codes)
        column, values = self.json_column(kind, path), self.values(codes)
        beginning, beginnings = indexed_part(column), [indexed_part(value) for value in values]
        if sign == "in":
            return sa.and_(column.is_not(None), beginning.in_(beginnings), column.in_(values))
        begins = _COMPARED[sign[0]](beginning, beginnings[0])
        return sa.and_(column.is_not(None), begins, OPERATORS[sign](column, values[0]))

    def json_column(self, kind: str, path: sa.BindParameter[Any] | tuple[str, ...]) -> sa.ColumnElement[Any]:
        """Return the value at a path of the body; see `Conditions`.

        The body is JSON and not JSONB, because a text in it may have a NUL.
        """
        at: Any = _written_path(path) if isinstance(path, tuple) else path
        body = sa.cast(self._table.c.body, JSON())
        found = body.op("#>", return_type=JSON())(at)
        type_of, text = sa.func.json_typeof(found), sa.cast(found, sa.Text())
        if kind == "type":
            return sa.case((type_of == constant("boolean"), text), else_=type_of)
        if kind == "text":
            plain = sa.collate(body.op("#>>", return_type=sa.Text())(at), "C")
            return sa.case((type_of == constant("string"), plain))
        return sa.case((type_of == constant("number"), sa.cast(text, sa.Numeric())))

    def json_value(self, kind: str, value: sa.BindParameter[Any]) -> sa.ColumnElement[Any]:
        return sa.cast(value, sa.Numeric()) if kind == "number" else value

    def _is_keyed(self, field: str) -> bool:
        return field in self._keyed and isinstance(self._table.c[field_column(field)].type, sa.Text)

    def sort_key(self, column: sa.ColumnElement[Any], field: str, descending: bool) -> sa.ColumnElement[Any]:
        """Return the sort key, with NULL first in ascending order.

        A column without NULL is sorted plainly, so that an index can serve the order.
        """
        by = column.desc() if descending else column.asc()
        if field in self._never_missing:
            return by
        return by.nulls_last() if descending else by.nulls_first()


def _written_path(path: Sequence[str]) -> sa.ColumnElement[Any]:
    """Return a path written out, so that an index on the same expression applies."""
    text = array(path).replace("'", "''")
    return sa.literal_column(f"'{text}'::text[]", ARRAY(sa.Text()))
