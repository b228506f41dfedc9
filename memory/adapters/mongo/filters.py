"""Translates filters, orders and cursors to MongoDB queries.

Every value follows an operator, so text such as `{"$ne": 1}` or `$where` stays text.
Text compares by its UTF-8 bytes, which is by code point: collections have the simple
collation. A comparison with a missing value is false, so `$nor` negates any condition.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memory.adapters.mongo.codec import EVERYWHERE, Document, raw_value_in, value_in
from memory.adapters.mongo.paths import Labels, path_condition
from memory.domain.errors import InvalidInput
from memory.ports.collections import Collection, FieldType
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
    Position,
    Query,
    RowType,
    Tenant,
    Under,
    Where,
)
from memory.ports.query_validation import behind_prefix, type_of
from memory.ports.record import FieldValue, Role
from memory.ports.record_validation import value_problem
from memory.ports.rows import RECORD, encode_value

ALWAYS: Document = {}
NEVER: Document = {"_id": {"$in": []}}
LISTS_AT_ONCE = 50
"""How many lists of tags one `$in` has. The server's time to plan it grows with their
square.
"""

_NEVER_MISSING = frozenset(
    ("id", "version", "created_at", "updated_at", "generation", "role", "tier", "accesses", "scope")
)
"""Fields that every live record has."""
_SIGNS: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    Lt: ("$lt", operator.lt),
    Le: ("$lte", operator.le),
    Gt: ("$gt", operator.gt),
    Ge: ("$gte", operator.ge),
}


OURS: Document = {"_id.id": {"$type": "string"}, "_id.tenant": {"$type": "string"}}
"""Documents that this adapter wrote.

Documents of other programs have another `_id` and are not touched.
"""


def scope_conditions(where: Where) -> Document:
    """Match documents of this place."""
    if isinstance(where, Everywhere):
        return {}
    tenant: Document = {"tenant": {"$eq": where.tenant}}
    if isinstance(where, Tenant):
        return tenant
    if isinstance(where, Under):
        return tenant | _under(where)
    scopes = list(dict.fromkeys(partition.scope for partition in where.partitions))
    return tenant | {"scope": {"$eq": scopes[0]} if len(scopes) == 1 else {"$in": scopes}}


def _under(where: Under) -> Document:
    """Match scopes by ranges, so that the server uses an index."""
    ranges: list[Document] = [
        {"scope": {"$gte": prefix, "$lt": behind_prefix(prefix)}} for prefix in where.prefixes
    ]
    named: list[Document] = [{"scope": {"$in": list(where.scopes)}}] if where.scopes else []
    return ranges[0] if len(ranges) == 1 and not named else {"$or": [*ranges, *named]}


def records_in(where: Where, roles: frozenset[Role]) -> Document:
    """Match live records there, in these roles."""
    wanted = sorted(role.value for role in roles)
    return scope_conditions(where) | {
        "type": {"$eq": RECORD},
        "role": {"$eq": wanted[0]} if len(wanted) == 1 else {"$in": wanted},
    }


def both(first: Document, second: Document) -> Document:
    """Match documents that match both."""
    return {"$and": [first, second]} if first and second else first or second


class Conditions:
    """Conditions on fields, validated by `memory.ports.query_validation`."""

    def __init__(self, collection: Collection, labels: Labels | None = None) -> None:
        self._collection = collection
        self._labels = labels or {}

    def query(self, query: Query) -> Document:
        """Match the results of a query, without its cursor."""
        other = sorted(t.value for t in query.types if t is not RowType.RECORD)
        standing: list[Document] = [{"type": {"$in": other}}] if other else []
        if RowType.RECORD in query.types:
            standing.append(records_in(query.where, query.roles))
        asked = both(
            standing[0] if len(standing) == 1 else {"$or": standing} if standing else NEVER,
            self.filter(query.filter),
        )
        return both(asked, OURS)

    # -- filters -----------------------------------------------------------------------

    def filter(self, part: Condition | None, *, wide: bool = True) -> Document:
        """Return the condition.

        If a value in a body is unknown, the comparison is true if it is `wide`, and
        false below a negation.
        """
        match part:
            case None:
                return ALWAYS
            case And(parts):
                return {"$and": [self.filter(p, wide=wide) for p in parts]} if parts else ALWAYS
            case Or(parts):
                return {"$or": [self.filter(p, wide=wide) for p in parts]} if parts else NEVER
            case Not(inner):
                return {"$nor": [self.filter(inner, wide=not wide)]}
            case JsonPath(path):
                label = self._labels.get(path)
                if label is None:
                    return ALWAYS if wide else NEVER
                return path_condition(label, part, wide=wide)
            case _:
                return self._on_field(part)

    def _on_field(self, part: Condition) -> Document:
        match part:
            case IsNull(field):
                return NEVER if field == "owing" else {_path(field): {"$eq": None}}
            case Has(field, tag):
                return {_path(field): {"$eq": tag}}
            case In(field, values):
                return self._one_of(field, [v for v in values if v is not None])
            case Eq(field, value):
                return NEVER if value is None else self._one_of(field, [value])
            case Lt(field, value) | Le(field, value) | Gt(field, value) | Ge(field, value):
                sign, holds = _SIGNS[type(part)]
                if value is None:
                    return NEVER
                if field == "owing":
                    return _owing_condition([truth for truth in (False, True) if holds(truth, value)])
                return {_path(field): {sign: encode_value(type_of(self._collection, field), value)}}
            case _:
                raise AssertionError(part)

    def _one_of(self, field: str, values: Sequence[FieldValue]) -> Document:
        if field == "owing":
            return _owing_condition([truth for truth in (False, True) if truth in values])
        kind = type_of(self._collection, field)
        bound = [encode_value(kind, value) for value in values]
        if kind is FieldType.TAGS and len(bound) > LISTS_AT_ONCE:
            parts = [bound[at : at + LISTS_AT_ONCE] for at in range(0, len(bound), LISTS_AT_ONCE)]
            return {"$or": [{_path(field): {"$in": part}} for part in parts]}
        return (
            NEVER if not bound else {_path(field): {"$eq": bound[0]} if len(bound) == 1 else {"$in": bound}}
        )

    # -- order and cursors -------------------------------------------------------------

    def ordering(self, order: Sequence[Order], where: Where) -> dict[str, int]:
        """Return the sort keys.

        The id is last, followed by the tenant if the query covers several. A missing
        value sorts below all others.
        """
        last = -1 if order and order[-1].descending else 1
        keys: dict[str, int] = {}
        for by in order:
            keys.setdefault(_place_of(by.field, where), -1 if by.descending else 1)
        keys.setdefault(_place_of("id", where), last)
        if isinstance(where, Everywhere):
            keys.setdefault(EVERYWHERE["tenant"], last)
        return keys

    def after(self, order: Sequence[Order], position: Position, where: Where) -> Document:
        """Match documents strictly after the position."""
        keys = [
            (by.field, by.descending, self._place(by.field, value))
            for by, value in zip(order, position.values, strict=True)
        ]
        keys.append(("id", bool(order) and order[-1].descending, position.id))
        behind: list[Document] = []
        equal: list[Document] = []
        for field, descending, value in keys:
            path = _place_of(field, where)
            if (further := _behind(field, path, descending, value)) is not NEVER:
                behind.append({"$and": [*equal, further]})
            equal.append(_same(path, value))
        beyond: Document = {"$or": behind} if behind else NEVER
        field, descending, value = keys[0]
        if value is not None and (
            field in _NEVER_MISSING or field in self._collection.ordered_texts
        ):  # the repeated bound lets the server start reading the index here
            return {"$and": [{_place_of(field, where): {"$lte" if descending else "$gte": value}}, beyond]}
        return beyond

    def _place(self, field: str, value: FieldValue) -> Any:
        """Return a cursor's sort value in the form of documents."""
        kind = type_of(self._collection, field)
        if value is not None and value_problem(kind, field, value):
            raise InvalidInput("cursor", "this cursor was made for a query with another order")
        return value if value is None or field == "owing" else encode_value(kind, value)

    def position(self, order: Sequence[Order], document: Mapping[str, Any]) -> list[FieldValue]:
        """Return a document's sort values for a cursor."""
        return [value_in(self._collection, document, by.field) for by in order]

    def sorted_by(self, order: Sequence[Order], document: Mapping[str, Any]) -> list[Any]:
        """Return a document's stored sort values, which may be damaged."""
        return [raw_value_in(document, by.field) for by in order]


def _owing_condition(truths: Sequence[bool]) -> Document:
    """Match by pending steps; a document without them has no `owing`."""
    return (
        ALWAYS
        if len(truths) == 2
        else NEVER
        if not truths
        else {"owing": {"$eq": True} if truths[0] else {"$ne": True}}
    )


def _path(field: str) -> str:
    return field if field in SYSTEM_FIELDS else f"fields.{field}"


def _place_of(field: str, where: Where) -> str:
    """Return the path by which to sort by the field."""
    return EVERYWHERE["id"] if field == "id" and isinstance(where, Everywhere) else _path(field)


def _same(path: str, value: Any) -> Document:
    if path == "owing":
        return {"owing": {"$eq": True} if value else {"$ne": True}}
    return {path: {"$eq": value}}


def _behind(field: str, path: str, descending: bool, value: Any) -> Document:
    if field == "owing":
        return (
            NEVER
            if bool(value) is not descending
            else {"owing": {"$ne": True} if descending else {"$eq": True}}
        )
    if value is None:
        return NEVER if descending else {path: {"$ne": None}}
    if not descending:
        return {path: {"$gt": value}}
    below: Document = {path: {"$lt": value}}
    return below if field in _NEVER_MISSING else {"$or": [below, {path: {"$eq": None}}]}
