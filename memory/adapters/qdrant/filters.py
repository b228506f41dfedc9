"""Translates filters to conditions of the engine, and finds the rest to apply later.

Qdrant compares keywords as a whole, and numbers as 64-bit floats. A stored real number
may be a neighbour of the written one (`rounding`). So the engine never compares text by
order, and compares real numbers, and integers from 2**53, only roughly. For them it
gets a wider condition, and `CompiledFilter.rest` has the filter itself.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from memory.adapters.qdrant.codec import ANCESTORS, REALS, UNTAGGED, pack_bytes
from memory.adapters.qdrant.engine import Conditions, QdrantCondition
from memory.adapters.qdrant.keys import partition_word
from memory.adapters.qdrant.rounding import EXACT, bound_beyond
from memory.domain.errors import InvalidInput
from memory.domain.time import micros
from memory.ports.collections import Collection, Field, FieldType
from memory.ports.comparisons import SYSTEM_TYPES
from memory.ports.query import (
    RECORDS,
    SYSTEM_FIELDS,
    And,
    Condition,
    Eq,
    Ge,
    Gt,
    Has,
    In,
    IsNull,
    Le,
    Lt,
    Not,
    Or,
    Partitions,
    RowType,
    Tenant,
    Under,
    Where,
)
from memory.ports.record import FieldValue, Partition, Role
from memory.ports.rows import RECORD


class ConstantCondition(Enum):
    """A condition with a constant result."""

    YES = True
    NO = False


Part: TypeAlias = ConstantCondition | QdrantCondition
_Ordering: TypeAlias = Lt | Le | Gt | Ge
_BOUNDS: dict[type[_Ordering], str] = {Lt: "lt", Le: "lte", Gt: "gt", Ge: "gte"}


def type_of(collection: Collection, field: str) -> FieldType:
    declared = None if field in SYSTEM_FIELDS else collection.field(field)
    return declared.type if declared is not None else SYSTEM_TYPES[field]


def path_of(collection: Collection, field: str) -> str:
    """Return the payload path by which the engine compares the field."""
    if field in SYSTEM_FIELDS:
        return field
    return (
        f"{REALS}.{field}" if type_of(collection, field) is FieldType.REAL else f"{collection.name}.{field}"
    )


def is_indexed(field: Field) -> bool:
    """Whether the field has an index; times always have one.

    With an index, the engine answers "empty or later" from it. Without one, it opens
    the payload of every candidate, and every search asks so for visible records. For
    10,000 points that takes 5 times as long.
    """
    return field.indexed or field.required or field.type is FieldType.TIME


# -- asked of the engine ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """Condition for the engine, and the filter to apply to its results.

    `rest` is None if the engine's result is exact.
    """

    asked: Part
    rest: Condition | None


class Compiler:
    """Translates filters on one collection for one engine."""

    def __init__(self, collection: Collection, conditions: Conditions) -> None:
        self._collection = collection
        self._make = conditions
        self._exact = True

    def compile(self, part: Condition | None) -> CompiledFilter:
        if part is None:
            return CompiledFilter(ConstantCondition.YES, None)
        self._exact = True
        asked = self._part(part, True)
        if not isinstance(asked, ConstantCondition) and not self._make.fits(asked):
            return CompiledFilter(ConstantCondition.YES, part)
        return CompiledFilter(asked, None if self._exact else part)

    def _part(self, part: Condition, wide: bool) -> Part:
        """Translate a part to a condition that it implies (`wide`) or that implies it.

        The second kind is for parts below a `Not`. An exact condition is both.
        """
        match part:
            case And(parts):
                return self.every([self._part(p, wide) for p in parts])
            case Or(parts):
                return self._some([self._part(p, wide) for p in parts])
            case Not(inner):
                return self._negate(self._part(inner, not wide))
            case IsNull(field):
                return self._missing(field)
            case Has(field, tag):
                return self._make.equals(path_of(self._collection, field), _whole_text(tag))
            case Eq(field, value):
                return self._equals(field, value, wide)
            case In(field, values):
                return self._among(field, values, wide)
            case Lt(field, value) | Le(field, value) | Gt(field, value) | Ge(field, value):
                return ConstantCondition.NO if value is None else self._compare(part, field, value, wide)
            case _:
                raise AssertionError(part)

    # -- combining ---------------------------------------------------------------------

    def every(self, parts: Sequence[Part]) -> Part:
        if any(p is ConstantCondition.NO for p in parts):
            return ConstantCondition.NO
        asked = [p for p in parts if p is not ConstantCondition.YES]
        return ConstantCondition.YES if not asked else self._make.every(asked)

    def _some(self, parts: Sequence[Part]) -> Part:
        if any(p is ConstantCondition.YES for p in parts):
            return ConstantCondition.YES
        asked = [p for p in parts if p is not ConstantCondition.NO]
        return ConstantCondition.NO if not asked else self._make.some(asked)

    def _negate(self, part: Part) -> Part:
        if isinstance(part, ConstantCondition):
            return ConstantCondition.NO if part is ConstantCondition.YES else ConstantCondition.YES
        return self._make.none([part])

    def _roughly(self, part: Part, wide: bool) -> Part:
        """Mark a condition as wider than intended: the rest is applied later."""
        self._exact = False
        return part if wide else ConstantCondition.NO

    # -- comparisons -------------------------------------------------------------------

    def _missing(self, field: str) -> Part:
        missing = self._make.missing(path_of(self._collection, field))
        if type_of(self._collection, field) is not FieldType.TAGS:
            return missing
        return self._make.every(
            [missing, self._make.none([self._make.equals(UNTAGGED, field)])]
        )  # an empty list of tags is a value

    def _equals(self, field: str, value: FieldValue, wide: bool) -> Part:
        kind, path = type_of(self._collection, field), path_of(self._collection, field)
        if kind is FieldType.REAL and isinstance(value, int | float):
            number = _float_of(value)
            if number is None:
                return ConstantCondition.NO
            bounds = {"gte": bound_beyond(number, kind, False), "lte": bound_beyond(number, kind, True)}
            return self._roughly(
                self._make.between(
                    path, **{side: edge for side, edge in bounds.items() if math.isfinite(edge)}
                ),
                wide,
            )
        if kind is FieldType.TAGS:
            return (
                self._roughly(self._negate(self._missing(field)), wide)
                if isinstance(value, tuple)
                else ConstantCondition.NO
            )
        plain = _plain(kind, value)
        return ConstantCondition.NO if plain is None else self._make.equals(path, plain)

    def _among(self, field: str, values: Sequence[FieldValue], wide: bool) -> Part:
        kind = type_of(self._collection, field)
        if kind in (FieldType.TEXT, FieldType.BYTES, FieldType.INTEGER, FieldType.TIME):
            plain = [p for p in (_plain(kind, v) for v in values) if p is not None]
            if not plain:
                return ConstantCondition.NO
            return self._make.among(path_of(self._collection, field), plain)  # type: ignore[arg-type]
        return self._some([self._equals(field, v, wide) for v in values])

    def _compare(self, part: _Ordering, field: str, value: FieldValue, wide: bool) -> Part:
        kind, path = type_of(self._collection, field), path_of(self._collection, field)
        if not isinstance(value, _COMPARABLE[kind]):
            raise InvalidInput(field, f"cannot be compared with {type(value).__name__}")
        bound = micros(value) if isinstance(value, datetime) else value
        there = self._negate(self._make.missing(path))
        if kind is FieldType.BOOLEAN or not isinstance(bound, int | float) or not abs(bound) < _LARGEST[kind]:
            return self._roughly(there, wide)
        if kind is not FieldType.REAL and abs(bound) < EXACT and bound == int(bound):
            return self._make.between(path, **{_BOUNDS[type(part)]: float(bound)})
        upwards = isinstance(part, Gt | Ge)
        edge = bound_beyond(bound, kind, upwards != wide)
        if math.isinf(edge):
            return self._roughly(there, wide)
        self._exact = False
        return self._make.between(path, **{"gte" if upwards else "lte": edge})


_LARGEST: dict[FieldType, float] = {
    FieldType.INTEGER: 2**63,
    FieldType.TIME: 2**63,
    FieldType.REAL: sys.float_info.max,
}
"""Limits of numbers in conditions.

Larger numbers and NaN are never sent, because all stored numbers are on one side.
"""
_COMPARABLE: dict[FieldType, tuple[type, ...]] = {
    FieldType.TEXT: (str,),
    FieldType.INTEGER: (int, float),
    FieldType.REAL: (int, float),
    FieldType.BOOLEAN: (int, float),
    FieldType.TIME: (datetime,),
    FieldType.TAGS: (tuple,),
    FieldType.BYTES: (bytes,),
}


def _plain(kind: FieldType, value: FieldValue) -> str | int | None:
    """Return the payload form of a value; None if no field of this type can have it."""
    if kind is FieldType.TEXT:
        return _whole_text(value) if isinstance(value, str) else None
    if kind is FieldType.BYTES:
        return pack_bytes(value) if isinstance(value, bytes) else None
    if kind is FieldType.TIME:
        return micros(value) if isinstance(value, datetime) else None
    if (
        not isinstance(value, int | float)
        or value != value
        or value in (math.inf, -math.inf)
        or value != int(value)
    ):
        return None
    if kind is FieldType.BOOLEAN:
        return int(value) if value in (0, 1) else None
    return int(value) if -(2**63) <= value < 2**63 else None


def _whole_text(text: str) -> str:
    """Return the text; an unpaired surrogate raises `UnicodeEncodeError`."""
    text.encode()
    return str.__str__(text)


def _float_of(value: float) -> float | None:
    """Return the equal float; None if there is no finite one."""
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if number == value and math.isfinite(number) else None


# -- where a question looks ------------------------------------------------------------

EVERY_ROLE = frozenset(Role)


def scope_conditions(
    make: Conditions,
    collection: Collection,
    where: Where,
    roles: frozenset[Role],
    types: frozenset[RowType] = RECORDS,
) -> list[QdrantCondition]:
    """Return conditions that all points of the place meet.

    Only live records have the keyword of their partition.
    """
    if isinstance(where, Partitions):
        words = list(dict.fromkeys(partition_word(collection.name, p) for p in where.partitions))
        return [_one_of(make, "partition", words), *_in_roles(make, roles)]
    if isinstance(where, Under):
        above, named = (
            [partition_word(collection.name, Partition(where.tenant, text)) for text in texts]
            for texts in (where.prefixes, where.scopes)
        )
        there = [_one_of(make, ANCESTORS, above), *([_one_of(make, "partition", named)] if named else [])]
        return [there[0] if len(there) == 1 else make.some(there), *_in_roles(make, roles)]
    conditions = [make.equals("collection", collection.name)]
    if isinstance(where, Tenant):
        where.tenant.encode()
        conditions.append(make.equals("tenant", where.tenant))
    live = [make.equals("kind", RECORD), *_in_roles(make, roles)]
    others = [kind.value for kind in sorted(types) if kind is not RowType.RECORD]
    if not others:
        return conditions + live
    gone = _one_of(make, "kind", others)
    return [*conditions, make.some([make.every(live), gone]) if RowType.RECORD in types else gone]


def _in_roles(make: Conditions, roles: frozenset[Role]) -> list[QdrantCondition]:
    return [] if roles >= EVERY_ROLE else [_one_of(make, "role", sorted(role.value for role in roles))]


def _one_of(make: Conditions, path: str, values: Sequence[str]) -> QdrantCondition:
    return make.equals(path, values[0]) if len(values) == 1 else make.among(path, values)
