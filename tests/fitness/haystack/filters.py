"""Haystack's filters as filters of a memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from haystack.errors import FilterError

from memory import Filter, InvalidInput

DOCUMENT = Filter.field("key").exists()
"""Passes for every document: entries without a key are none."""


def filter_of(given: dict[str, Any] | None) -> Filter:
    """Return the filter of the memory for one of Haystack.

    Raises:
        FilterError: The filter is malformed, or compares what has no order.
    """
    if not given:
        return DOCUMENT
    try:
        return DOCUMENT & _convert(given)
    except InvalidInput as error:
        raise FilterError(f"{given}: {error}") from error


def _convert(given: Any) -> Filter:
    if not isinstance(given, dict):
        raise FilterError(f"{given!r} must be a dict with 'operator'")
    if "field" in given:
        return _compare(given)
    for name in ("operator", "conditions"):
        if name not in given:
            raise FilterError(f"'{name}' key missing in {given}")
    parts = [_convert(one) for one in given["conditions"]]
    operator = given["operator"]
    if operator == "OR":
        return reduce(lambda a, b: a | b, parts, ~DOCUMENT)
    every = reduce(lambda a, b: a & b, parts, DOCUMENT)
    if operator in ("AND", "NOT"):
        return every if operator == "AND" else ~every
    raise FilterError(f"Unknown logical operator '{operator}'. Use AND, OR or NOT")


def _compare(given: dict[str, Any]) -> Filter:
    for name in ("operator", "value"):
        if name not in given:
            raise FilterError(f"'{name}' key missing in {given}")
    path, operator, value = _path(given["field"]), given["operator"], given["value"]
    if operator in ORDER:
        return _order(path, operator, value)
    if operator in ("in", "not in"):
        if not isinstance(value, list):
            raise FilterError(f"'{operator}' needs a list, not {type(value).__name__}: {given}")
        found = reduce(lambda a, b: a | b, (_equal(path, one) for one in value), ~DOCUMENT)
        return found if operator == "in" else ~found
    if operator in ("==", "!="):
        return _equal(path, value) if operator == "==" else ~_equal(path, value)
    raise FilterError(f"Unknown comparison operator '{operator}'")


def _path(field: str) -> Any:
    if field in ("id", "content"):
        return Filter.field("key" if field == "id" else "content")
    first, *others = field.split(".")
    if first in ("embedding", "sparse_embedding", "blob", "score"):
        raise FilterError(f"'{field}' cannot be compared. Compare id, content and meta")
    return Filter.metadata(*others) if first == "meta" and others else Filter.metadata(field)


def _equal(path: Any, value: Any) -> Filter:
    """Return a filter for equal values. A missing value equals None."""
    if value is None:
        missing: Filter = ~path.exists() | (path == None)  # noqa: E711 - makes a filter
        return missing
    same: Filter = path == value
    moment = _moment(value)
    return same if moment is None else same | (path == moment)


ORDER: dict[str, Callable[[Any, Any], Filter]] = {
    ">": lambda path, value: path > value,
    ">=": lambda path, value: path >= value,
    "<": lambda path, value: path < value,
    "<=": lambda path, value: path <= value,
}


def _order(path: Any, operator: str, value: Any) -> Filter:
    if value is None:
        return ~DOCUMENT
    if isinstance(value, str) and _moment(value) is None:
        raise FilterError(f"'{operator}' compares numbers and ISO dates, not the text {value!r}")
    if not isinstance(value, int | float | str | datetime):
        raise FilterError(f"'{operator}' compares numbers and ISO dates, not {type(value).__name__}")
    return ORDER[operator](path, value if isinstance(value, int | float) else _moment(value))


def _moment(value: Any) -> Any:
    """Return a date to compare; None for any other value. One without a zone is in UTC."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) and len(value) >= 10 else value
    except ValueError:
        return None
    if not isinstance(at, datetime):
        return None
    return Filter.moment(at if at.tzinfo else at.replace(tzinfo=UTC))
