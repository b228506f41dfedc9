"""Check the arguments of a tool, and answer wrong ones with the right ones.

Models guess: `q` for `query`, `"5"` for 5. A number, a list or an object that comes as
JSON text is read as what it spells. A null stands for an optional argument that is left
out. Everything else that does not fit is refused with
all problems at once, the accepted arguments, and an example.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from memory.domain.corrections import meant_name
from memory.domain.errors import WrongArguments
from memory.domain.escape import excerpt_line
from memory.domain.model_errors import UNKNOWN, ModelProblem, explain_errors

_SHOWN_BYTES = 60
"""The largest part of a wrong value that an error repeats."""
_MOST_PROBLEMS = 8
"""How many problems an error lists."""
_OWNERS = frozenset(
    "scope scopes user user_id uid owner namespace tenant tenant_id agent_id app_id org_id project_id"
    " workspace_id collection origins origin source provenance".split()
)
"""Arguments by which models try to choose whose memory it is, or who wrote it."""
_GUESSES: Mapping[str, str] = {
    "entry_id": "id", "memory_id": "id", "uuid": "id", "entity_id": "id",
    "from": "source_id", "from_id": "source_id", "start": "source_id",
    "to": "target_id", "to_id": "target_id", "end": "target_id",
    "label": "relation", "relation_type": "relation", "relationType": "relation",
    "conversation_id": "session_id", "thread_id": "session_id", "session": "session_id",
    "message": "messages", "idempotency_key": "request_id", "version": "expected_version",
    "steps": "depth", "hops": "depth", "max_tokens": "budget", "page": "cursor",
    "text": "content", "tag": "tags", "type": "types", "category": "type",
}  # fmt: skip
"""Names that models guess for these tools, beside those of `memory.domain.guesses`."""


class Arguments(BaseModel):
    """The arguments of a tool; each subclass declares those of one tool."""

    model_config = ConfigDict(extra="forbid", strict=True)


A = TypeVar("A", bound=BaseModel)


def check_arguments(tool: str, kind: type[A], given: Mapping[str, Any], example: Mapping[str, Any]) -> A:
    """Return the checked arguments of a call.

    Raises:
        WrongArguments: Arguments are unknown, missing or wrong. The message lists all
            problems, the accepted arguments, and an example.
    """
    accepted = kind.model_fields
    unknown = (name for name in given if name not in accepted)
    problems = [_unknown(name, accepted) for name in islice(unknown, _MOST_PROBLEMS)]
    read = {
        name: _read_json(kind, name, value)
        for name, value in given.items()
        if name in accepted and (value is not None or accepted[name].is_required())
    }
    checked: A | None = None
    try:
        checked = kind.model_validate(read)
    except ValidationError as error:
        wrong = explain_errors(error.errors(include_url=False), read, show=_show)
        problems += [_explain(kind, one) for one in wrong]
    if problems or checked is None:
        raise WrongArguments(
            tool,
            f"{' '.join(problems[:_MOST_PROBLEMS])} Arguments: {describe_arguments(kind)}."
            f" Example: {json.dumps(example, ensure_ascii=False)}",
            field=tool,
        )
    return checked


def describe_arguments(kind: type[BaseModel]) -> str:
    """Return the accepted arguments with their types, for an error."""
    schema = input_schema(kind)
    required = schema.get("required", [])
    said = [
        f"{name} ({_type_of(part, schema)}{', required' if name in required else ''})"
        for name, part in schema["properties"].items()
    ]
    return ", ".join(said) or "none"


@cache
def input_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of arguments or of an answer, in few words."""
    schema: dict[str, Any] = kind.model_json_schema(mode="serialization")
    return {"properties": {}, **_shorten(schema)}


def _shorten(schema: Any) -> Any:
    """Return a schema without generated titles, nulls and defaults of null.

    Every client sends all schemas to its model, so each word costs tokens. A null is
    accepted anyway.
    """
    if isinstance(schema, list):
        return [_shorten(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    short: dict[str, Any] = {}
    for name, value in schema.items():
        if name in ("properties", "$defs"):
            short[name] = {key: _shorten(part) for key, part in value.items()}
        elif name == "anyOf" and len(parts := [one for one in value if one != {"type": "null"}]) == 1:
            short |= _shorten(parts[0])
        elif name != "title" and not (name == "default" and value is None):
            short[name] = _shorten(value)
    return short


def _type_of(part: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    part = _follow_references(part, schema)
    if "enum" in part:
        return " or ".join(json.dumps(one) for one in part["enum"])
    if "anyOf" in part:
        return " or ".join(_type_of(one, schema) for one in part["anyOf"])
    if part.get("type") == "array":
        return f"list of {_type_of(part.get('items', {}), schema)}"
    if fields := part.get("properties"):
        optional = set(fields) - set(part.get("required", ()))
        return f"object of {', '.join(f'{name}?' if name in optional else name for name in fields)}"
    return str(part.get("type", "object"))


def _unknown(name: str, accepted: Iterable[str]) -> str:
    shown = excerpt_line(name, _SHOWN_BYTES)
    if name in _OWNERS:
        return f'"{shown}" cannot be chosen here: the configuration of the server sets it; leave it out.'
    right = right_name(name, accepted)
    return f'"{shown}" is unknown{f"; use {json.dumps(right)}" if right else ""}.'


def right_name(name: str, accepted: Iterable[str]) -> str | None:
    """Return the accepted argument that a guessed name means; None if none is near."""
    known = list(accepted)
    if (told := _GUESSES.get(name)) in known:
        return told
    return meant_name(name, known)


def _read_json(kind: type[BaseModel], name: str, value: Any) -> Any:
    """Return what a JSON text spells, where the argument is no text."""
    if not isinstance(value, str) or _takes_text(kind, name):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _takes_text(kind: type[BaseModel], name: str) -> bool:
    part = input_schema(kind)["properties"][name]
    return any(one.get("type") == "string" or "enum" in one for one in part.get("anyOf", [part]))


def _show(value: object) -> str:
    return excerpt_line(json.dumps(value, ensure_ascii=False, default=str), _SHOWN_BYTES)


def _explain(kind: type[BaseModel], wrong: ModelProblem) -> str:
    """Return what is wrong with an argument, or with a field inside of one."""
    message, schema = wrong.message.rstrip("."), input_schema(kind)
    if message == UNKNOWN:
        accepted = list(_fields_at(schema, wrong.place[:-1]))
        right = right_name(str(wrong.place[-1]), accepted)
        message += f"; use {json.dumps(right)}" if right else f"; accepted: {', '.join(accepted)}"
    end = "" if message.endswith("?") else "."
    return f'"{excerpt_line(wrong.field, _SHOWN_BYTES)}" {message}{end}'


def _fields_at(schema: Mapping[str, Any], place: Iterable[int | str]) -> Mapping[str, Any]:
    """Return the fields of the object at a place, by the schema of the arguments."""
    part: Any = schema
    for step in place:
        part = part.get("items", {}) if isinstance(step, int) else part.get("properties", {}).get(step, {})
        part = _follow_references(part, schema)
    fields: Mapping[str, Any] = part.get("properties", {})
    return fields


def _follow_references(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema.get("$defs", {}).get(part.get("$ref", "").rpartition("/")[2], part)
    return found
