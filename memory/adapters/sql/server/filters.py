"""Shapes for servers that compare a number inexactly with a column of another kind.

The number first becomes one of the column's kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from memory.adapters.sql.codec import TypeTable
from memory.adapters.sql.shapes import FALSE, NOTHING, NUMBERS, SIGNS, Shape, Shaper, Values
from memory.domain.errors import InvalidInput
from memory.ports.collections import Collection, FieldType
from memory.ports.comparisons import suits
from memory.ports.query import Eq, Ge, Gt, In, Le, Lt
from memory.ports.record import FieldValue

_LEAST, _MOST = -(2**63), 2**63 - 1


class ExactShaper(Shaper):
    """Compares numbers of another kind than their column exactly.

    Each becomes a number of the column's kind. A list of at most `written_out` values
    has each value bound separately.
    """

    listable: ClassVar[str] = "sifb"
    """The kinds of values, see `code`, of which many can be bound as one."""

    def __init__(
        self, collection: Collection, at: Mapping[str, int], types: TypeTable, written_out: int
    ) -> None:
        super().__init__(collection, at, types)
        self._written_out = written_out

    def _in(self, part: In, values: Values) -> Shape:
        wanted = self._comparable_values(part.field, part.values)
        codes = (
            "".join([self.code(w) for w in wanted])
            if len(set(map(type, wanted))) > 1
            else self.code(wanted[0]) * len(wanted)
            if wanted
            else ""
        )
        if len(wanted) > self._written_out and len(set(codes)) == 1 and codes[0] in self.listable:
            listed, bound = self.bind_list(codes[0], wanted)
            values.append(bound)
            return ("any", part.field, listed)
        values += wanted
        return ("in", part.field, codes) if wanted else FALSE

    def bind_list(self, code: str, wanted: Values) -> tuple[str, Any]:
        """Bind many values of one kind as one value.

        It comes with the kind of that list, which is a part of the shape.
        """
        return code, wanted

    def _comparable_values(self, field: str, values: Sequence[FieldValue]) -> list[Any]:
        """Return the values that the field can equal, as its column holds them.

        Of thousands of texts, none is checked on its own.
        """
        kind = self.type_of(field)
        if kind in NUMBERS:
            exact = [exactly(kind, "=", value) for value in values if isinstance(value, int | float)]
            return [number for sign, number in exact if sign == "="]
        if kind is FieldType.TEXT and field != "id":
            return self.texts([str(value) for value in values if isinstance(value, str)])
        return [
            self._in_column(field, kind, value)
            for value in values
            if value is not None and suits(kind, value)
        ]

    def _comparison(self, part: Eq | Lt | Le | Gt | Ge, values: Values) -> Shape:
        field, value, sign = part.field, part.value, SIGNS[type(part)]
        kind = self.type_of(field)
        if value is None:
            return FALSE
        if kind in NUMBERS and isinstance(value, int | float):
            sign, value = exactly(kind, sign, value)
            if sign == "never":
                return FALSE
            if sign == "always":
                return ("not", ("null", field)) if field != "owing" else ("true",)
            if field == "owing" and sign == "=" and value in (0, 1):
                return ("owing", bool(value))
            bound: Any = value
        else:
            bound = self._bound_value(field, value, ordering=sign != "=")
            if bound is NOTHING:
                return FALSE
        values.append(bound)
        return (sign, field, self.code(bound))

    def place_value(self, field: str, value: FieldValue) -> Any:
        kind = self.type_of(field)
        if kind not in NUMBERS:
            return super().place_value(field, value)
        if isinstance(value, int | float):
            return float(value) if kind is FieldType.REAL else int(value)
        raise InvalidInput("cursor", "is for a query with another order; omit it")


def exactly(kind: FieldType, sign: str, value: float) -> tuple[str, Any]:
    """Turn a comparison with a number into one with a number of the column's kind.

    Returns `never` or `always` where the value does not matter.
    """
    if value != value:
        return "never", None
    if kind is FieldType.REAL:
        sign, real = _with_real(sign, value)
        return (sign, real) if math.isfinite(real or 0.0) else (_beside_all(sign, real), None)
    if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
        if sign == "=":
            return "never", None
        sign, value = ("<=", math.floor(value)) if sign in ("<", "<=") else (">=", math.ceil(value))
    if _LEAST <= value <= _MOST:
        return sign, int(value)
    return _beside_all(sign, value), None


def _beside_all(sign: str, value: float) -> str:
    """Return the result of a comparison with a number outside the column's range."""
    return "never" if sign == "=" or (sign in ("<", "<=")) == (value < 0) else "always"


def _with_real(sign: str, value: float) -> tuple[str, Any]:
    try:
        real = float(value)
    except OverflowError:
        real = math.inf if value > 0 else -math.inf
    if real == value:
        return sign, real
    if sign == "=":
        return "never", None
    if sign in ("<", "<="):  # the real number nearest to the value lies above or below it
        return ("<" if real > value else "<="), real
    return (">=" if real > value else ">"), real
