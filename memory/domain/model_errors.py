"""Errors of pydantic's models in the words of this library.

Every front end renders wrong values here: HTTP, MCP, configurations and options. So
each error names the field, what is accepted, and what was given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from memory.domain.corrections import value_hint
from memory.domain.errors import InvalidInput

Details: TypeAlias = Mapping[str, Any]
"""One error as `ValidationError.errors()` returns it."""
Place: TypeAlias = tuple[int | str, ...]

_OBJECT: Final = "an object"
_NAMES: Final[Mapping[str, str]] = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a finite number",
    "bool": "true or false",
    **dict.fromkeys(("list", "tuple", "set", "frozen_set", "iterable"), "a list"),
    **dict.fromkeys(("dict", "mapping", "model", "model_attributes", "dataclass"), _OBJECT),
    "none_required": "null",
    "bytes": "bytes",
    **dict.fromkeys(("datetime", "date", "time"), "a moment, such as 2026-01-31T09:30:00Z"),
    "time_delta": "a length of time, such as 30s",
    "json": "JSON text",
}
"""The accepted values, by the first part of an error's type."""
_LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}
_LENGTHS: Final[Mapping[str, tuple[str, str, str]]] = {
    "too_short": ("min_length", "at least", "items"),
    "too_long": ("max_length", "at most", "items"),
    "string_too_short": ("min_length", "at least", "characters"),
    "string_too_long": ("max_length", "at most", "characters"),
}
_JSON_TYPES: Final[Mapping[str, str]] = {
    "NoneType": "null",
    "str": "text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
}
_PYTHON_TYPE: Final = re.compile(rf"\bnot ({'|'.join(_JSON_TYPES)})\b")
_IN_JSON: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"\ba dict, a dataclass or a pydantic model\b", _OBJECT),
        (r"\ba dict, a list, a dataclass or a pydantic model\b", f"{_OBJECT} or a list"),
        (r"\bor None\b", "or null"),
        (r"\b([a-z_]+)=None\b", r"\1 null"),
        (r"\b([a-z_]+)=True\b", r"\1 true"),
        (r"\b([a-z_]+)=False\b", r"\1 false"),
        (r"\b([a-z_]+)=(?='[^']*'|\"[^\"]*\"|\[|{)", r"\1 "),
        (r"\b([a-z_]+)=(?=[\s,.;)]|$)", r"\1"),
    )
)
"""Words of Python in errors, and what is said in JSON."""
_MISSING_PARTS: Final = ("missing", "extra_forbidden")
UNKNOWN_FIELD: Final = "unknown_field"
"""The type of an error whose context has the name of the field, and the message."""
UNKNOWN: Final = "is unknown"
"""The message of a field that a model does not have."""
_SHOWN_CHARS: Final = 60
_NOTHING: Final = object()


@dataclass(frozen=True)
class ModelProblem:
    """The problem of one field."""

    place: Place
    message: str

    @property
    def field(self) -> str:
        """The field as the library writes it, such as `puts[1].key`."""
        return path_text(self.place)


def path_text(place: Sequence[int | str]) -> str:
    """Return the place of a field as the library writes it, such as `puts[1].key`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def show_value(value: object) -> str:
    """Return a value as JSON in one line, cut to a few words."""
    text = json.dumps(value, ensure_ascii=False, default=lambda one: type(one).__name__)
    text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def explain_errors(
    errors: Iterable[Details],
    given: object = _NOTHING,
    *,
    show: Callable[[Any], str] | None = None,
) -> list[ModelProblem]:
    """Return what is wrong with each field, one problem for each.

    A field of several types has one error for each of them; they become one problem.

    Args:
        errors: The errors of a model.
        given: The value that was validated, which tells fields and types apart.
        show: Returns a wrong value as text. By default no value is shown.
    """
    placed = [(_place_of(one, given), one) for one in errors]
    places = [place for (place, _), _ in placed]
    found = dict[Place, list[Details]]()
    for (place, is_choice), one in placed:
        if is_choice and any(len(other) > len(place) and other[: len(place)] == place for other in places):
            continue  # the value has another of the accepted types, and its inside is wrong
        found.setdefault(place, []).append(one)
    return [ModelProblem(place, _merge(same, show)) for place, same in found.items()]


def explain_error(error: Details, *, an_object: str = _OBJECT) -> str:
    """Return what is wrong with the value of one error, without the value.

    Args:
        error: The error.
        an_object: What an object is called here, such as "a table".
    """
    if (names := _accepted_names(error)) is not None:
        return f"must be {an_object if names == _OBJECT else names}"
    return _problem_of(error)


def in_json_words(error: InvalidInput) -> InvalidInput:
    """Return an error of the library as a caller needs it who writes no Python.

    Types have the names of JSON, and arguments no equals sign.
    """
    if type(error) is not InvalidInput:
        return error
    return InvalidInput(error.field, json_words(error.problem))


def json_words(text: str) -> str:
    """Return the text of an error with the words of `in_json_words`."""
    text = _PYTHON_TYPE.sub(lambda found: f"not {_JSON_TYPES[found[1]]}", text)
    for pattern, words in _IN_JSON:
        text = pattern.sub(words, text)
    return text


def _merge(errors: Sequence[Details], show: Callable[[Any], str] | None) -> str:
    """Return one message for the errors of one field."""
    names = list(dict.fromkeys(filter(None, map(_accepted_names, errors))))
    if not names:
        return "; ".join(dict.fromkeys(map(_problem_of, errors)))
    if "a number" in names and "a whole number" in names:
        names.remove("a whole number")
    accepted = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    shown = "" if show is None or "input" not in errors[0] else f", not {show(errors[0]['input'])}"
    return f"must be {accepted}{shown}{_hint(errors)}"


def _accepted_names(error: Details) -> str | None:
    """Return what the field accepts; None for an error about something else."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in ("literal_error", "enum"):
        return str(context["expected"])
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        return f"{words} {context[name]}"
    if kind in _NAMES:
        return _NAMES[kind]
    base, _, end = kind.partition("_")
    if kind.startswith(("model_", "none_", "time_delta", "frozen_set")):
        base, _, end = kind.rpartition("_")
    if end and not kind.startswith("string_") and kind != "json_invalid":
        return _NAMES.get(base)
    return _NAMES["string"] if kind in ("string_type", "string_sub_type", "string_unicode") else None


def _problem_of(error: Details) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return UNKNOWN
    if kind == "json_invalid":
        return f"is not valid JSON ({context.get('error')})"
    if kind in _LENGTHS:
        name, words, unit = _LENGTHS[kind]
        most = context[name]
        return f"must have {words} {most:,} {unit if most != 1 else unit[:-1]}"
    if (refused := context.get("error")) is not None and hasattr(refused, "problem"):
        return str(refused.problem)
    text = re.sub("^(Value error|Assertion failed), ", "", str(error["msg"]))
    return re.sub("^(Input|Value|String) should ", "must ", text)


def _hint(errors: Sequence[Details]) -> str:
    """Return the value that was meant, where only some are accepted."""
    for one in errors:
        if one["type"] in ("literal_error", "enum"):
            allowed = re.findall(r"'([^']*)'", str(one["ctx"]["expected"]))
            names = [part for part in one["loc"] if isinstance(part, str)]
            return value_hint(names[-1] if names else "", one.get("input"), allowed)
    return ""


def _place_of(error: Details, given: object) -> tuple[Place, bool]:
    """Return the place of an error without names of types, and whether it had any."""
    location: Sequence[int | str] = error["loc"]
    if given is _NOTHING:
        return tuple(location), False
    place, value, is_choice = list[int | str](), given, False
    for at, part in enumerate(location):
        is_last = at == len(location) - 1
        if isinstance(part, int):
            inside = isinstance(value, list | tuple) and part < len(value)
            value = value[part] if inside else None  # type: ignore[index]
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        elif not (is_last and error["type"] in _MISSING_PARTS):
            is_choice = True
            continue
        place.append(part)
    if error["type"] == UNKNOWN_FIELD:
        place.append(error["ctx"]["field"])
    return tuple(place), is_choice
