"""A query in two halves: a shape, which decides the statement, and the bound values.

The engine repeats the same few queries with other values, so a statement is built once
per shape. A shape is a nested tuple of operators, field names and the kinds of the
values. From a caller it has only names of declared fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from memory.adapters.sql.codec import ID, TAG, TAGS_AS_TEXT, TypeTable
from memory.adapters.sql.columns import field_column
from memory.adapters.sql.several import pad_to_power_of_two
from memory.domain.errors import InvalidInput
from memory.domain.time import micros, moment
from memory.ports.collections import Collection, FieldType
from memory.ports.comparisons import SYSTEM_TYPES, comparable, suits
from memory.ports.query import (
    SYSTEM_FIELDS,
    And,
    Condition,
    Eq,
    Everywhere,
    Ge,
    Gt,
    Has,
    In,
    IsNull,
    JsonPath,
    Le,
    Lt,
    Not,
    Or,
    Order,
    Partitions,
    Position,
    Tenant,
    Under,
    Where,
)
from memory.ports.query_validation import behind_prefix
from memory.ports.record import FieldValue

Shape: TypeAlias = tuple[Any, ...]
Values: TypeAlias = list[Any]

TRUE: Shape = ("true",)
FALSE: Shape = ("false",)

NEVER_MISSING = frozenset(
    ("id", "version", "owing", "created_at", "updated_at", "generation", "role", "tier", "accesses", "scope")
)
"""Fields that live records always have."""

SIGNS: dict[type[Condition], str] = {Eq: "=", Lt: "<", Le: "<=", Gt: ">", Ge: ">="}
_SHAPED: dict[type, str] = {
    And: "_all",
    Or: "_any",
    Not: "_not",
    IsNull: "_is_null",
    Has: "_has",
    In: "_in",
    JsonPath: "_json",
    **dict.fromkeys(SIGNS, "_comparison"),
}
"""The method for each part of a filter."""
_CONSTANTS = {None: "null", True: "true", False: "false"}
NUMBERS = (FieldType.INTEGER, FieldType.REAL, FieldType.BOOLEAN)
NOTHING: Any = object()
"""A value that no value of a field can equal."""


NAMED = 64
"""The most partitions under prefixes that a statement names by their numbers."""
BY_BODY = "body"
"""Says of a place that an index on bodies finds the rows; see `by_body`."""


def scope(where: Where, partitions: Sequence[int], values: Values, tenant: bool | str = False) -> Shape:
    """Return the shape of the place to look in.

    It has few different counts of partitions, so that few statements are built. A
    partition's number implies its tenant. With `tenant` the shape names the tenant as
    well, so that the database uses an index on a field, which the tenant leads.
    """
    if isinstance(where, Partitions) or (isinstance(where, Under) and 0 < len(partitions) <= NAMED):
        count = len(partitions)
        wide = 1 << (count - 1).bit_length()
        values += partitions
        values += [partitions[0]] * (wide - count)
        values += [where.tenant] if tenant else ()
        return ("partitions", wide, tenant)
    if isinstance(where, Everywhere):
        return ("everywhere",)
    values.append(where.tenant)
    if isinstance(where, Tenant):
        return ("tenant", tenant)
    ranges, scopes = pad_to_power_of_two(where.prefixes), where.scopes and pad_to_power_of_two(where.scopes)
    values += [bound for prefix in ranges for bound in (prefix, behind_prefix(prefix))]
    values += scopes
    return ("under", tenant, len(ranges), len(scopes))


def names(part: Shape, fields: frozenset[str]) -> bool:
    """Whether every passing row has one of some values in one of these fields."""
    if part[0] in ("and", "or"):
        return len(part) > 1 and (any if part[0] == "and" else all)(
            [names(inner, fields) for inner in part[1:]]
        )
    return part[0] in ("=", "in") and part[1] in fields


def by_body(part: Shape, few: Shape | None = None) -> bool:
    """Whether an index on a path in bodies finds every passing row.

    It has one of some values there, or one between two values. A single bound may let
    nearly all rows pass, and these are better read in order. `few` is a bound that few
    rows pass.
    """
    match part:
        case bound if bound == few:
            return True
        case ("json", kind, "=" | "in", path, _):
            return kind != "type" and path is not None
        case ("or", *parts):
            return bool(parts) and all(by_body(one, few) for one in parts)
        case ("and", *parts):
            bounds = [(kind, path, sign[0]) for _, kind, sign, path, _ in filter(_is_bound, parts)]
            between = len(set(bounds)) > len({bound[:2] for bound in bounds})
            return between or any(by_body(one, few) for one in parts)
        case _:
            return False


def _is_bound(part: Shape) -> bool:
    return part[0] == "json" and part[2][0] in "<>" and part[3] is not None


_EXACT = 2**53
"""Up to this number, SQL and Python compare integers and real numbers alike."""


def is_comparable(part: JsonPath) -> bool:
    """Return whether SQL compares so in bodies, exactly as Python does.

    A key that JSON escapes cannot be written in a path of every dialect.
    """
    return all(key and json.dumps(key, ensure_ascii=False) == f'"{key}"' for key in part.parts) and all(
        not isinstance(one, int | float) or abs(one) <= _EXACT
        for one in (part.value if part.operator == "in" else (part.value,))
    )


def bounds_in(part: Condition | None) -> list[JsonPath]:
    """Return the bounds of values in bodies that every passing row meets."""
    match part:
        case And(parts):
            return [bound for one in parts for bound in bounds_in(one)]
        case JsonPath(_, "<" | "<=" | ">" | ">="):
            return [part]
        case _:
            return []


def path_text(parts: Sequence[str]) -> str:
    """Return a path in bodies as MariaDB and SQLite write it."""
    return "$" + "".join(f'."{key}"' for key in parts)


class Shaper:
    """The shapes of filters, orders and cursors over one collection's fields.

    `at` gives the position of each column in a row. `types` gives how a dialect binds
    and reads the values of a type.
    """

    def __init__(
        self, collection: Collection, at: Mapping[str, int], types: TypeTable = TAGS_AS_TEXT
    ) -> None:
        self.json_paths: frozenset[tuple[str, ...]] = frozenset()
        """The paths in bodies that have an index."""
        self._at = at
        self._name = collection.name
        self._bind: dict[str, Callable[[Any], Any]] = {kind: coding.bind for kind, coding in types.items()}
        self._read: dict[str, Callable[[Any], Any]] = {kind: coding.read for kind, coding in types.items()}
        self._types = {
            **SYSTEM_TYPES,
            **{f.name: f.type for f in collection.fields if f.name not in SYSTEM_FIELDS},
        }

    def type_of(self, field: str) -> FieldType:
        kind = self._types.get(field)
        if kind is None:
            raise InvalidInput(field, f"collection '{self._name}' declares no such field")
        return kind

    # -- filters -----------------------------------------------------------------------

    def filter(self, part: Condition | None, values: Values) -> Shape:
        """Return the filter's shape, and add its values to `values`."""
        if part is None:
            return TRUE
        shape: Shape = getattr(self, _SHAPED[type(part)])(part, values)
        return shape

    def _all(self, part: And, values: Values) -> Shape:
        return ("and", *[self.filter(p, values) for p in part.parts])

    def _any(self, part: Or, values: Values) -> Shape:
        return ("or", *[self.filter(p, values) for p in part.parts])

    def _not(self, part: Not, values: Values) -> Shape:
        return ("not", self.filter(part.part, values))

    def _is_null(self, part: IsNull, values: Values) -> Shape:
        self.type_of(part.field)
        return FALSE if part.field == "owing" else ("null", part.field)

    def _has(self, part: Has, values: Values) -> Shape:
        self.type_of(part.field)
        values.append(self._bind[TAG](part.tag))
        return ("has", part.field)

    def _in(self, part: In, values: Values) -> Shape:
        bound = [
            b for v in part.values if v is not None and (b := self._bound_value(part.field, v)) is not NOTHING
        ]
        values += bound
        return ("in", part.field, "".join([_code(b) for b in bound])) if bound else FALSE

    def _comparison(self, part: Eq | Lt | Le | Gt | Ge, values: Values) -> Shape:
        field, value = part.field, part.value
        if value is None:
            self.type_of(field)
            return FALSE
        bound = self._bound_value(field, value, ordering=not isinstance(part, Eq))
        if bound is NOTHING:
            return FALSE
        if field == "owing" and isinstance(part, Eq) and bound in (0, 1):
            return ("owing", bool(bound))  # this way an index can serve it
        values.append(bound)
        return (SIGNS[type(part)], field, _code(bound))

    def _json(self, part: JsonPath, values: Values) -> Shape:
        """Return the shape of a comparison in the body: one part for each type.

        Each part has the path, if an index on it is declared. Otherwise the path is the
        first of its values.
        """
        wanted = part.value if part.operator == "in" else (part.value,)
        sign = "=" if part.operator in ("==", "in") else part.operator
        if sign == "exists":
            return self._json_part("type", sign, part, [], values)
        texts = [one for one in wanted if isinstance(one, str)]
        numbers = [one for one in wanted if not isinstance(one, bool) and isinstance(one, int | float)]
        constants = [_CONSTANTS[one] for one in wanted if one is None or isinstance(one, bool)]
        parts = [
            self._json_part(kind, "in" if len(some) > 1 else sign, part, some, values)
            for kind, some in (("text", texts), ("number", numbers), ("type", constants))
            if some
        ]
        return parts[0] if len(parts) == 1 else ("or", *parts)

    def _json_part(self, kind: str, sign: str, part: JsonPath, bound: Sequence[Any], values: Values) -> Shape:
        declared = part.parts in self.json_paths
        values += [] if declared else [self.bind_path(part.parts)]
        bound = [self.bind_number(one) for one in bound] if kind == "number" else bound
        values += bound
        return ("json", kind, sign, part.parts if declared else None, "".join(map(_code, bound)))

    def bind_path(self, parts: Sequence[str]) -> Any:
        """Return a path in bodies as a value of a statement."""
        raise NotImplementedError

    def bind_number(self, value: float) -> Any:
        """Return a number that is compared with numbers in bodies."""
        return value

    def _bound_value(self, field: str, value: FieldValue, *, ordering: bool = False) -> Any:
        """Return the value as its column holds it.

        Returns NOTHING where no value of the field can equal it.
        """
        kind = self.type_of(field)
        if kind in NUMBERS:
            if isinstance(value, int | float):
                return comparable(value)
        elif suits(kind, value):
            return self._in_column(field, kind, value)
        if ordering:
            raise InvalidInput(field, f"cannot be compared with {type(value).__name__}")
        return NOTHING

    def _in_column(self, field: str, kind: FieldType, value: Any) -> Any:
        """Return a value of the field's own type as its column holds it."""
        if kind is FieldType.TIME:
            return micros(value)
        if kind is FieldType.TEXT:
            value = str(value)
        bind = self._bind.get(ID if field == "id" else kind)
        return value if bind is None else bind(value)

    def texts(self, values: Values) -> Values:
        """Return the given values as columns hold them."""
        bind = self._bind.get(FieldType.TEXT)
        return (
            values if bind is None else [bind(value) if isinstance(value, str) else value for value in values]
        )

    # -- cursors -----------------------------------------------------------------------

    def after(self, order: Sequence[Order], position: Position, values: Values) -> Shape:
        """Return the shape of rows strictly behind the position.

        It has the sort keys with their directions, and the kinds of the position's
        values.
        """
        keys = []
        for by, value in zip(order, position.values, strict=True):
            bound = None if value is None else self.place_value(by.field, value)
            keys.append((by.field, by.descending, None if bound is None else self.code(bound)))
            values += () if bound is None else (bound,)
        values.append(self.id_value(position.id))
        return ("after", (*keys, ("id", bool(order) and order[-1].descending, self.code(values[-1]))))

    def place_value(self, field: str, value: FieldValue) -> Any:
        """Return a sort value of a cursor as its column holds it."""
        kind = self.type_of(field)
        value = tuple(value) if kind is FieldType.TAGS and isinstance(value, list) else value
        if not (isinstance(value, int | float) if kind in NUMBERS else suits(kind, value)):
            raise InvalidInput("cursor", "is for a query with another order; omit it")
        if kind in NUMBERS:
            return int(value) if isinstance(value, bool) else value
        return self._in_column(field, kind, value)

    def id_value(self, record_id: str) -> Any:
        """Return an id as its column holds it."""
        return self._in_column("id", FieldType.TEXT, record_id)

    def code(self, value: Any) -> str:
        """Return a letter for the kind of a bound value.

        `Conditions.types` gives each letter its SQL type.
        """
        return _code(value)

    def position(
        self, order: Sequence[Order], row: Sequence[Any], at: Mapping[str, int] | None = None
    ) -> tuple[Any, ...]:
        """Return a row's position for a cursor.

        `at` gives the positions of its columns, if the row is not a whole one.
        """
        return tuple([self.field_value(o.field, self.value_in(row, o.field, at)) for o in order])

    def value_in(self, row: Sequence[Any], field: str, at: Mapping[str, int] | None = None) -> Any:
        """Return the value of the field's column in a row."""
        at = self._at if at is None else at
        if field == "owing":
            return int(row[at["owed"]] is not None)
        place = at.get(field if field in SYSTEM_FIELDS else field_column(field))
        return None if place is None else row[place]  # of a field that the table lacks

    def field_value(self, field: str, value: Any) -> Any:
        """Convert a column's value into the field's value."""
        kind = self.type_of(field)
        if value is None:
            return None
        if kind is FieldType.TIME:
            return moment(value)
        if kind is FieldType.BOOLEAN:
            return bool(value)
        read = self._read.get(ID if field == "id" else kind)
        return value if read is None else read(value)


_CODES: dict[type, str] = {str: "s", int: "i", float: "f", list: "a", bytes: "b"}


def _code(value: Any) -> str:
    return _CODES.get(type(value)) or next(
        (code for kind, code in _CODES.items() if isinstance(value, kind)), "b"
    )
