"""What is asked, in PostgreSQL's terms: the values as its columns hold them, and the conditions only it says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from memory.adapters.sql.columns import field_column
from memory.adapters.sql.conditions import Condition, Conditions
from memory.adapters.sql.postgresql.rows import ENCODERS, OWED, Row, aware, layout_of
from memory.adapters.sql.postgresql.schema import TIME, indexed_part
from memory.adapters.sql.postgresql.values import checked, unescape
from memory.adapters.sql.server.exactly import ExactShaper
from memory.adapters.sql.shapes import (
    FALSE,
    NOTHING,
    NUMBERS,
    Shape,
    Values,
)
from memory.domain.errors import InvalidInput
from memory.ports.collections import Collection
from memory.ports.comparing import suits
from memory.ports.query import SYSTEM_FIELDS, Has, Order
from memory.ports.record import FieldValue
from memory.ports.storable import Unstorable

_TYPES: dict[str, sa.types.TypeEngine[Any]] = {**Conditions.types, "t": TIME}


class PgShaper(ExactShaper):
    """Shapes whose values are what asyncpg takes."""

    listable: ClassVar[str] = "".join(_TYPES)

    def __init__(self, collection: Collection, written_out: int) -> None:
        super().__init__(collection, layout_of(collection).at, written_out)

    def _has(self, part: Has, values: Values) -> Shape:
        self.type_of(part.field)
        try:
            values.append(checked(part.tag))
        except Unstorable:
            return FALSE
        return ("has", part.field)

    def _bound(self, field: str, value: FieldValue, *, ordering: bool = False) -> Any:
        kind = self.type_of(field)
        if kind not in NUMBERS and suits(kind, value):
            try:
                bound = ENCODERS[kind](field, value)
            except Unstorable:
                bound = NOTHING
            if bound is not NOTHING or not ordering:
                return list(bound) if isinstance(bound, tuple) else bound
        if ordering:
            raise InvalidInput(field, f"cannot be compared with {type(value).__name__}")
        return NOTHING

    @staticmethod
    def texts(values: Values) -> Values:
        """Values that were given as they are, as columns hold them."""
        return [checked(value) if isinstance(value, str) else value for value in values]

    # -- cursors ------------------------------------------------------------------------------------------------------

    def place_value(self, field: str, value: FieldValue) -> Any:
        kind = self.type_of(field)
        if kind in NUMBERS:
            return super().place_value(field, value)
        if suits(kind, value):
            return self._bound(field, value, ordering=True)
        raise InvalidInput("cursor", "this cursor was made for a query with another order")

    def id_value(self, record_id: str) -> Any:
        return checked(record_id)

    def code(self, value: Any) -> str:
        return _code(value)

    def position(self, order: Sequence[Order], row: Row, at: Mapping[str, int] | None = None) -> tuple[Any, ...]:
        return tuple([self._shown(self.value_in(row, o.field)) for o in order])

    def value_in(self, row: Row, field: str, at: Mapping[str, int] | None = None) -> Any:
        if field == "owing":
            return row[OWED] is not None
        return row[self._at[field if field in SYSTEM_FIELDS else field_column(field)]]

    @staticmethod
    def _shown(value: Any) -> FieldValue:
        return unescape(value) if isinstance(value, str) else aware(value) if isinstance(value, datetime) else value


def _code(value: Any) -> str:
    """A letter for the kind of a bound value, see `PgConditions.types`."""
    match value:
        case str():
            return "s"
        case int():
            return "i"
        case float():
            return "f"
        case datetime():
            return "t"
        case list():
            return "a"
        case _:
            return "b"


class PgConditions(Conditions):
    """Conditions where PostgreSQL's SQL is its own."""

    types: ClassVar[dict[str, sa.types.TypeEngine[Any]]] = {
        **_TYPES,
        **{code + code: ARRAY(kind) for code, kind in _TYPES.items()},
        "a": ARRAY(sa.Text()),
    }

    def __init__(self, table: sa.Table, keyed: frozenset[str] = frozenset()) -> None:
        super().__init__(table)
        self._keyed = keyed

    def column(self, field: str) -> sa.ColumnElement[Any]:
        if field == "owing":
            return sa.cast(self._table.c.owed.is_not(None), sa.Integer())
        column = self._table.c[field if field in SYSTEM_FIELDS else field_column(field)]
        return sa.cast(column, sa.Integer()) if isinstance(column.type, sa.Boolean) else column

    def _in_partition(self, number: sa.BindParameter[Any], some_of_it: bool) -> Condition:
        """Where a page is walked to, or a field's index may serve, the number is told in a subquery: so the server goes by how large partitions are,
        not by whether it had counted this one when it last counted. One that was not there then it would take for empty, and read it as a whole.
        """
        return self._table.c.partition_no == (sa.select(number).scalar_subquery() if some_of_it else number)

    def _of_tenant(self, tenant: sa.BindParameter[Any]) -> Condition:
        partitions = sa.table("memory_partitions", sa.column("number"), sa.column("tenant"), schema=self._table.schema)
        numbers = sa.select(partitions.c.number).where(partitions.c.tenant == tenant).scalar_subquery()
        return self._table.c.partition_no == sa.any_(sa.func.array(numbers))  # looked up whatever the server thinks how many there are

    def filter(self, shape: Shape) -> Condition:
        match shape:
            case ("has", field):
                return self._present(field, self.value("s") == sa.any_(self.column(field)))
            case ("in", field, codes) if self._is_keyed(field):
                column, wanted = self.column(field), self.values(codes)
                return self._present(field, sa.and_(indexed_part(column).in_([indexed_part(w) for w in wanted]), column.in_(wanted)))
            case ("any", field, code):
                each = sa.select(sa.func.unnest(self.value(code + code)).column_valued())
                return self._present(field, self.column(field).in_(each).is_(sa.true()))  # as no join, so that it is looked up by a hash
            case ("=", field, code) if self._is_keyed(field):
                column, value = self.column(field), self.value(code)
                return self._present(field, sa.and_(indexed_part(column) == indexed_part(value), column == value))
            case _:
                return super().filter(shape)

    def _is_keyed(self, field: str) -> bool:
        return field in self._keyed and isinstance(self._table.c[field_column(field)].type, sa.Text)

    def ordered(self, column: sa.ColumnElement[Any], field: str, descending: bool) -> sa.ColumnElement[Any]:
        """NULL first going up, unless there is none: an index brings them in its own order then."""
        by = column.desc() if descending else column.asc()
        if field in self._never_missing:
            return by
        return by.nulls_last() if descending else by.nulls_first()
