"""Filters of callers as conditions for stores, and the check of each record.

The records are entries or documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memory.domain.filters import JSON, AllOf, AnyOf, Comparison, Filter, Moment, Negation
from memory.domain.ids import is_id
from memory.ports.collections import Collection, FieldType
from memory.ports.comparisons import SYSTEM_TYPES
from memory.ports.query import (
    ALWAYS,
    NEVER,
    And,
    Condition,
    Eq,
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
    simplify,
)
from memory.ports.record import FieldValue, Record
from memory.ports.record_validation import value_problem

_COMPARISONS: Mapping[str, Callable[[str, FieldValue], Condition]] = {
    "==": Eq,
    "<": Lt,
    "<=": Le,
    ">": Gt,
    ">=": Ge,
}
_KEY = "key"
"""The key of an entry, which is in the body. That of a document is a field."""
_TEXTS = ("title", "content")
UNSEARCHED = "unsearched"
"""In the body of an entry that no search finds: its title and its content.

The record then has no texts and no vector.
"""
_IN_NO_FIELD = (*_TEXTS, _KEY)
_OWN_ID = "entry_id"
"""The field of a kept version with the id of its entry."""


def satisfies(part: Filter | None) -> Callable[[Record], bool]:
    """Return whether records pass the filter, exactly as `memory.domain.filters`."""
    if part is None:
        return lambda _record: True
    return lambda record: part.test(lambda name: value_in(record, name))


def value_in(record: Record, name: str) -> Any:
    """Return the value of a field that a filter names; for JSON the whole."""
    if name in JSON or (name == _KEY and _KEY not in record.fields):
        return record.body.get(name)
    if name in _TEXTS:
        return shown_texts(record).get(name, "" if name == "content" else None)
    if name == "id":
        return record.fields.get(_OWN_ID) or record.key.id
    return getattr(record, name) if name in SYSTEM_TYPES else record.fields.get(name)


def shown_texts(record: Record) -> Mapping[str, str]:
    """Return the texts of an entry by part, also of one that no search finds."""
    hidden: Mapping[str, str] | None = record.body.get(UNSEARCHED)
    return record.texts if hidden is None else hidden


def condition_of(part: Filter | None, collection: Collection) -> Condition | None:
    """Return a condition that every record which passes the filter meets.

    Others may meet it too. Stores have no condition for titles, contents, moments in
    JSON, values that are objects or lists, and `contains` in JSON.
    """
    if part is None:
        return None
    condition = simplify(_wide(part, collection, True))
    return None if condition == ALWAYS else condition


def _wide(part: Filter, collection: Collection, wide: bool) -> Condition:
    """Return a condition that the part implies, or with `wide=False` that implies it.

    The second kind stands below a negation.
    """
    match part:
        case AllOf(parts):
            return And(tuple(_wide(one, collection, wide) for one in parts))
        case AnyOf(parts):
            return Or(tuple(_wide(one, collection, wide) for one in parts))
        case Negation(inner):
            return Not(_wide(inner, collection, not wide))
        case Comparison():
            unknown = ALWAYS if wide else NEVER
            return _exact_condition(part, collection) or unknown
        case _:
            raise AssertionError(part)


def _exact_condition(part: Comparison, collection: Collection) -> Condition | None:
    """Return an exact condition; None if stores have none."""
    name = part.path[0]
    if name in JSON and part.operator != "contains" and all(map(_is_scalar, _values(part))):
        return JsonPath(part.path, part.operator, part.value)
    if name in JSON or (name in _IN_NO_FIELD and collection.field(name) is None):
        in_body = name == _KEY and part.operator != "exists"
        return JsonPath((_KEY,), part.operator, part.value) if in_body else None
    field = _OWN_ID if name == "id" and collection.field(_OWN_ID) else name
    declared = collection.field(field)
    kind = SYSTEM_TYPES[field] if declared is None else declared.type
    if part.operator == "exists":
        return None if kind is FieldType.TAGS else Not(IsNull(field))
    bound: tuple[Any, ...] = tuple(one.at if isinstance(one, Moment) else one for one in _values(part))
    if field == "id":
        return In(field, tuple(filter(is_id, bound))) if part.operator in ("==", "in") else None
    if part.operator == "contains":
        return Has(field, bound[0])
    if any(value_problem(kind, field, one) for one in bound):  # it equals no value that a store can hold
        return None
    return In(field, bound) if part.operator == "in" else _COMPARISONS[part.operator](field, bound[0])


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _values(part: Comparison) -> tuple[Any, ...]:
    return part.value if part.operator == "in" else (part.value,)
