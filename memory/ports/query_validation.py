"""Checks questions: limits, orders and filters that all stores refuse or answer alike.

`BaseStore` checks before it calls an adapter. So an adapter never gets a filter that is
too deep, or a value that its field cannot have. It gets a range of texts in place of
`StartsWith`. `memory.ports.contract.refusals` has the table that the contract holds
every store to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

from memory.domain.errors import InvalidInput
from memory.domain.filters import Operator
from memory.ports.candidates import Candidates
from memory.ports.collections import Collection, FieldType
from memory.ports.comparisons import SYSTEM_TYPES
from memory.ports.query import (
    MAX_FILTER_DEPTH,
    MAX_FILTER_PARTS,
    MAX_FILTER_VALUES,
    MAX_LIMIT,
    MAX_ORDERS,
    VECTOR,
    WORDS,
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
    StartsWith,
    Under,
)
from memory.ports.record_validation import id_problem, text_problem, value_problem, vector_problem

MAX_REACH = 16
"""The greatest distance of a neighbour."""
_LAST = "\U0010ffff"
_UNORDERED = (FieldType.TAGS, FieldType.BYTES)


def check_limit(limit: object) -> None:
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise InvalidInput("limit", f"takes an integer, not {type(limit).__name__}")
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput("limit", f"must be from 1 to {MAX_LIMIT}")


def check_prefix(name: str, prefix: object) -> None:
    if problem := text_problem(name, prefix):
        raise InvalidInput(name, problem.removeprefix(f"{name}: "))


def check_under(where: Under) -> None:
    for prefix in where.prefixes:
        check_prefix("prefix", prefix)
        if not prefix.endswith("/"):
            raise InvalidInput("prefix", f"{prefix[:40]!r} must end with '/', as in path:teams/red/")
    for scope in where.scopes:
        check_prefix("scope", scope)


def check_order(collection: Collection, order: Sequence[Order]) -> None:
    if len(order) > MAX_ORDERS:
        raise InvalidInput("order", f"has {len(order)} fields; order by at most {MAX_ORDERS}")
    for by in order:
        if type_of(collection, by.field) in _UNORDERED:
            raise InvalidInput(by.field, "tags and bytes have no order")


def check_select(collection: Collection, select: object) -> None:
    if not isinstance(select, frozenset):
        raise InvalidInput("select", f"takes a frozenset of names, not {type(select).__name__}")
    for name in select - {WORDS, VECTOR}:
        if not isinstance(name, str):
            raise InvalidInput("select", f"takes names, not {type(name).__name__}")
        type_of(collection, name)


def check_candidates(asked: Candidates) -> None:
    if isinstance(asked.where, Everywhere):
        raise InvalidInput("where", "takes partitions or a tenant, not everywhere")
    check_limit(asked.limit)
    check_select(asked.collection, asked.select)
    if asked.select & {WORDS, VECTOR}:
        raise InvalidInput("select", "takes fields; counts and vectors have columns of their own")
    if asked.near is not None and (problem := vector_problem(asked.near)):
        raise InvalidInput("vector", problem)
    if asked.dimensions < 0:
        raise InvalidInput("dimensions", "must be 0 or more")
    if len(set(asked.counted)) != len(asked.counted):
        raise InvalidInput("counted", "names a stem twice; name each once")
    if len(asked.among) > MAX_LIMIT:
        raise InvalidInput("among", f"names {len(asked.among)} records; name at most {MAX_LIMIT}")
    if problem := next((p for one in asked.among if (p := id_problem(one))), ""):
        raise InvalidInput("among", problem)
    if (around := asked.around) is not None:
        if type_of(asked.collection, around.group) is not FieldType.TEXT or around.group == "id":
            raise InvalidInput("around", "`group` must be a text field other than the id")
        if type_of(asked.collection, around.number) is not FieldType.INTEGER:
            raise InvalidInput("around", "`number` must be an integer field")
        if not 1 <= around.reach <= MAX_REACH:
            raise InvalidInput("around", f"`reach` must be from 1 to {MAX_REACH}")


def type_of(collection: Collection, field: str) -> FieldType:
    """Return the type of a system or declared field; refuse any other field."""
    kind = SYSTEM_TYPES.get(field)
    if kind is not None:
        return kind
    declared = collection.field(field)
    if declared is None:
        raise InvalidInput(field, f"collection '{collection.name}' declares no such field")
    return declared.type


def prepare_filter(collection: Collection, part: Condition | None) -> Condition | None:
    """Return the filter in the form that adapters receive.

    It is bounded, names known fields with valid values, and has no `StartsWith`. Any
    other filter is refused by name.
    """
    return None if part is None else _Checker(collection).prepare(part, MAX_FILTER_DEPTH)


class _Checker:
    """Walks one filter, and counts its parts and values."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._parts = self._values = 0

    def prepare(self, part: Condition, room: int) -> Condition:
        if not room:
            raise InvalidInput("filter", f"nests deeper than {MAX_FILTER_DEPTH} levels")
        self._parts += 1
        if self._parts > MAX_FILTER_PARTS:
            raise InvalidInput("filter", f"has more than {MAX_FILTER_PARTS} parts; split it")
        match part:
            case And(parts) | Or(parts):
                made = tuple([self.prepare(p, room - 1) for p in parts])
                return (
                    part
                    if all(new is old for new, old in zip(made, parts, strict=True))
                    else type(part)(made)
                )
            case Not(inner):
                new = self.prepare(inner, room - 1)
                return part if new is inner else Not(new)
            case StartsWith():
                self._check_prefix(part.field, part.prefix)
                return text_range(part)
            case _:
                self._check_comparison(part)
                return part

    def _check_comparison(self, part: Condition) -> None:
        match part:
            case JsonPath():
                self._check_json(part)
            case IsNull(field):
                type_of(self._collection, field)
            case Has(field, tag):
                if type_of(self._collection, field) is not FieldType.TAGS:
                    raise InvalidInput(field, "Has needs a tags field; use Eq or In for other fields")
                self._check_values(field, FieldType.TEXT, (tag,))
            case In(field, values):
                if not isinstance(values, tuple):
                    raise InvalidInput(field, f"In takes a tuple of values, not {type(values).__name__}")
                self._check_values(field, type_of(self._collection, field), values)
            case Eq(field, value):
                self._check_values(field, type_of(self._collection, field), (value,))
            case Lt(field, value) | Le(field, value) | Gt(field, value) | Ge(field, value):
                kind = type_of(self._collection, field)
                if kind in _UNORDERED:
                    raise InvalidInput(field, "tags and bytes have no order")
                if field == "id":
                    raise InvalidInput(field, "ids have no ranges; use Eq or In")
                self._check_values(field, kind, (value,))
            case _:
                raise InvalidInput("filter", f"takes conditions such as Eq or And, not {type(part).__name__}")

    def _check_json(self, part: JsonPath) -> None:
        if not isinstance(part.parts, tuple) or not part.parts:
            raise InvalidInput("filter", "JsonPath takes a tuple of keys, at least one")
        if part.operator not in get_args(Operator) or part.operator == "contains":
            raise InvalidInput("filter", f"JsonPath has no operator {part.operator!r}")
        values = part.value if part.operator == "in" else (part.value,)
        if not isinstance(values, tuple):
            raise InvalidInput("filter", f"In takes a tuple of values, not {type(values).__name__}")
        self._values += len(values)
        if self._values > MAX_FILTER_VALUES:
            raise InvalidInput("filter", f"has more than {MAX_FILTER_VALUES} values; split it")
        for one in (*part.parts, *(value for value in values if isinstance(value, str))):
            if problem := text_problem("filter", one):
                raise InvalidInput("filter", problem.removeprefix("filter: "))
            if "\x00" in one:
                raise InvalidInput("filter", "JsonPath takes texts without NUL")
        for value in values:
            if value is not None and not isinstance(value, str | int | float):
                raise InvalidInput("filter", f"JsonPath takes scalars, not {type(value).__name__}")
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidInput("filter", "JsonPath takes finite numbers")

    def _check_prefix(self, field: str, prefix: object) -> None:
        if field == "id" or type_of(self._collection, field) is not FieldType.TEXT:
            raise InvalidInput(field, "StartsWith needs a text field other than the id")
        if prefix is None:
            raise InvalidInput(field, "StartsWith takes text, not None")
        self._check_values(field, FieldType.TEXT, (prefix,))

    def _check_values(self, field: str, kind: FieldType, values: Sequence[object]) -> None:
        self._values += len(values)
        if self._values > MAX_FILTER_VALUES:
            raise InvalidInput("filter", f"has more than {MAX_FILTER_VALUES} values; split it")
        if field == "id":
            if problem := next((p for value in values if value is not None and (p := id_problem(value))), ""):
                raise InvalidInput("filter", problem)
            return
        text = kind is FieldType.TEXT
        for value in values:
            if value is None or (text and type(value) is str and value.isascii()):
                continue
            if problem := value_problem(kind, field, value):
                raise InvalidInput("filter", problem)


def text_range(part: StartsWith) -> Condition:
    """Return the range of texts that begin with the prefix, by code points.

    The range has no upper end if no text sorts behind all of these.
    """
    start, end = Ge(part.field, part.prefix), behind_prefix(part.prefix)
    return start if end is None else And((start, Lt(part.field, end)))


def behind_prefix(prefix: str) -> str | None:
    """Return the first text that sorts behind all texts with the prefix.

    Texts are compared by code points. None if there is no such text.
    """
    room = prefix.rstrip(_LAST)
    return room[:-1] + _next(room[-1]) if room else None


def _next(character: str) -> str:
    """Return the next character, skipping halves of surrogate pairs."""
    code = ord(character) + 1
    return chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
