"""Filters as dicts: `{"metadata.price": {"$gt": 3}, "types": ["user"]}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn

from memory.domain import validation
from memory.domain.corrections import did_you_mean, look_up, nearest
from memory.domain.entry import EntryType
from memory.domain.errors import InvalidInput, WrongArguments
from memory.domain.filters import (
    DATA,
    FIELDS,
    JSON,
    METADATA,
    VALUE,
    AllOf,
    AnyOf,
    Comparison,
    Filter,
    Negation,
    Operator,
    check_kind,
    check_path,
    check_size,
    comparison,
    whole_of,
)

SHORT = ("types", "tags", "any_tags", METADATA, DATA, "since", "before")
"""Short keys for the most frequent conditions."""
_OPERATORS: dict[str, Operator] = {
    "$eq": "==",
    "$lt": "<",
    "$lte": "<=",
    "$gt": ">",
    "$gte": ">=",
    "$in": "in",
    "$contains": "contains",
    "$exists": "exists",
}
_OPPOSITES: dict[str, Operator] = {"$ne": "==", "$nin": "in"}
OPERATORS = (*_OPERATORS, *_OPPOSITES)
COMBINATIONS = ("$and", "$or", "$nor", "$not")
_EXAMPLE = '{"metadata.price": {"$gt": 3}}'
_GUESSES = {
    "$all $contains_all": 'one {"$contains": value} for each value, in {"$and": […]}',
    "$contains_any $overlap $any": '{"$or": [{"tags": {"$contains": "a"}}, {"tags": {"$contains": "b"}}]}',
    "$not_in $notin $nin_": "$nin",
    "$neq $not_eq": "$ne",
    "$ge": "$gte",
    "$le": "$lte",
    "$between $range": '{"$gte": 1, "$lt": 9}',
    "$like $ilike $regex $match $text $startswith $starts_with": "search, which finds words in texts",
    "$size $elemmatch": "a key of your own with that value",
    "$is_null $isnull $is_empty $null": '{"$exists": False}, or None for a stored null',
    "$greater_than": "$gt",
    "$less_than": "$lt",
}
_SYMBOLS = {"==": "$eq", "=": "$eq", "!=": "$ne", "<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}
_COMBINING = {"and must all": "$and", "or should any": "$or", "not": "$not", "must_not nor none": "$nor"}


def parse_filter(given: object, *, kind: Literal["entry", "document"] = "entry") -> Filter:
    """Return a filter, or its dict, as a checked filter of entries or documents.

    Raises:
        InvalidInput: A key or an operator is unknown, or a value is wrong. The error
            names it, and the right one.
    """
    parsed = _parse(given, "filter", validation.MAX_DEPTH)
    check_size(parsed)
    check_kind(parsed, kind)
    return parsed


def _parse(given: object, field: str, room: int) -> Filter:
    if isinstance(given, Filter):
        return given
    if not isinstance(given, Mapping):
        raise InvalidInput(
            field, f"must be a Filter or a dict such as {_EXAMPLE}, not {type(given).__name__}"
        )
    if not room:
        raise InvalidInput(field, "nests too deeply")
    return _all_of([_condition(key, value, field, room) for key, value in given.items()])


def _all_of(parts: Sequence[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _condition(key: object, value: object, field: str, room: int) -> Filter:
    if not isinstance(key, str):
        raise InvalidInput(field, f"has a key that is not text: {type(key).__name__}")
    if key in COMBINATIONS:
        return _combination(key, value, f"{field}.{key}", room)
    if value is None and key in SHORT:
        return AllOf(())
    if key in JSON and isinstance(value, Mapping):
        return _keys_of((key,), value, room)
    if key == VALUE:
        _not_an_object(f"{field}.{key}", value)
    if key in SHORT and not (key in FIELDS and isinstance(value, Mapping)):
        return _SHORT_FILTERS[key](f"{field}.{key}", value)
    path = parse_path(key, f"{field}.{key[:80]}")
    if path[0] in JSON and len(path) > 1:
        return _inside(path, value, room)
    if path[0] not in FIELDS or len(path) > 1:
        raise _unknown_key(key, field)
    return _operations(path, value) if isinstance(value, Mapping) else comparison(path, "==", value)


def parse_path(key: str, field: str = "indexes") -> tuple[str, ...]:
    """Return the keys of a path with dots, such as `metadata.address.city`."""
    path = tuple(key.split("."))
    if path[0] in JSON and "" in path:
        raise InvalidInput(
            field, f"has an empty key between dots. A key with dots is written {{'{path[0]}': {{'a.b': 1}}}}"
        )
    return check_path(path) if path[0] in JSON and len(path) > 1 else path


def _is_operator(name: object) -> bool:
    return isinstance(name, str) and (name.startswith("$") or name in _SYMBOLS or f"${name}" in OPERATORS)


def _keys_of(path: tuple[str, ...], value: Mapping[Any, object], room: int) -> Filter:
    """Return the filter on the values under these keys of the object at a path."""
    field = "filter." + ".".join(path)[:80]
    name = next((one for one in value if _is_operator(one)), None)
    if name is not None:
        here, shown = ".".join(path)[:80], str(name)[:80]
        escape = f"A key of that name is written {{'{here}.{shown}': …}}"
        if len(path) == 1:
            raise InvalidInput(f"{field}.{shown}", f"{whole_of(here)} {escape}")
        sign = _SYMBOLS.get(name, f"${name}")
        raise InvalidInput(field, f"is {name!r} an operator? Write {{'{sign}': …}}. {escape}")
    return _all_of([_inside((*path, validation.text(field, name)), one, room) for name, one in value.items()])


def _combination(key: str, value: object, field: str, room: int) -> Filter:
    if key == "$not":
        return Negation(_parse(value, field, room - 1))
    if not isinstance(value, list | tuple) or not value:
        raise InvalidInput(field, f'takes a list of filters: {{"{key}": [{_EXAMPLE}, …]}}')
    parts = tuple(_parse(one, f"{field}[{n}]", room - 1) for n, one in enumerate(value))
    if key == "$and":
        return AllOf(parts)
    return AnyOf(parts) if key == "$or" else Negation(AnyOf(parts))


def _inside(path: tuple[str, ...], value: object, room: int) -> Filter:
    """Return the filter on a value in JSON: a value, operators, or keys."""
    if not isinstance(value, Mapping):
        return comparison(check_path(path), "==", value)
    if not value or not room:
        raise InvalidInput(
            "filter." + ".".join(path)[:80],
            "is empty. Write {'$exists': True} for any value, or {'$eq': {}} for an empty object",
        )
    if any(isinstance(name, str) and name.startswith("$") for name in value):
        return _operations(path, value)
    return _keys_of(path, value, room - 1)


def _operations(path: tuple[str, ...], value: Mapping[Any, object]) -> Filter:
    """Return the comparisons of a value by operators, such as `{"$gt": 3}`."""
    field = "filter." + ".".join(check_path(path))[:80]
    if not value:
        raise InvalidInput(field, f"is empty. Write a value or an operator: {', '.join(OPERATORS)}")
    return _all_of([_operation(path, field, name, one) for name, one in value.items()])


def _operation(path: tuple[str, ...], field: str, name: object, value: object) -> Filter:
    if name == "$exists":
        if not isinstance(value, bool):
            raise InvalidInput(f"{field}.$exists", f"must be True or False, not {type(value).__name__}")
        there = Comparison(path, "exists")
        return there if value else Negation(there)
    if name == "$not" and isinstance(value, Mapping):
        return Negation(_operations(path, value))
    if name in _OPERATORS:
        return comparison(path, _OPERATORS[name], value)
    if name in _OPPOSITES:
        return Negation(comparison(path, _OPPOSITES[name], value))
    raise _unknown_operator(str(name), field)


def _unknown_operator(name: str, field: str) -> InvalidInput:
    wanted = "$" + name.lstrip("$").lower()
    right = wanted if wanted in OPERATORS else _SYMBOLS.get(name) or look_up(_GUESSES, wanted)
    hint = f". Use {right}" if right else did_you_mean(name, OPERATORS)
    return InvalidInput(
        f"{field}.{name[:80]}", f"is not an operator{hint}. Operators: {', '.join(OPERATORS)}"
    )


def _unknown_key(key: str, field: str) -> InvalidInput:
    right = look_up(_COMBINING, key.lstrip("$").lower())
    if right:
        return InvalidInput(f"{field}.{key}", f'is not a key of {field}; did you mean {{"{right}": …}}?')
    if key.startswith("$"):
        hint = f". Operators stand below a key: {_EXAMPLE}. Combine filters with {', '.join(COMBINATIONS)}"
        return InvalidInput(f"{field}.{key[:80]}", f"is not a key of {field}{hint}")
    known = tuple(dict.fromkeys((*SHORT, *FIELDS)))
    close = nearest(key, known, 0.7)
    hint = f"; did you mean '{close}'?" if close else "."
    hint += f" For a key of your own write {{'metadata.{key[:40]}': …}}. Accepted: {', '.join(known)}"
    return WrongArguments(f"{field}.{key[:80]}", f"is not a key of {field}{hint}", field=field)


# -- short keys ------------------------------------------------------------------------


def _types(field: str, value: Any) -> Filter:
    types = tuple(
        str(validation.one_of(field, one, EntryType))
        for one in validation.sequence(field, value, at_most=validation.MAX_LIMIT)
    )
    return Comparison(("type",), "in", types) if types else AllOf(())


def _tags(field: str, value: Any) -> tuple[Filter, ...]:
    given = validation.tags(validation.sequence(field, value, at_most=validation.MAX_LIMIT), field)
    return tuple(Comparison(("tags",), "contains", tag) for tag in given)


def _any_tags(field: str, value: Any) -> Filter:
    return AnyOf(parts) if (parts := _tags(field, value)) else AllOf(())


def _not_an_object(field: str, value: Any) -> NoReturn:
    name = type(value).__name__
    raise InvalidInput(
        field, f"must be a dict such as {{'kind': 'recipe'}}, not {name}. {whole_of(field.split('.')[-1])}"
    )


_SHORT_FILTERS: dict[str, Callable[[str, Any], Filter]] = {
    "types": _types,
    "tags": lambda field, value: AllOf(_tags(field, value)),
    "any_tags": _any_tags,
    METADATA: _not_an_object,
    DATA: _not_an_object,
    "since": lambda field, value: comparison(("created_at",), ">=", value),
    "before": lambda field, value: comparison(("created_at",), "<", value),
}
