"""Convert tool calls, and restore them as a model wrote them."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, ToolCall
from memory.domain.shapes.blocks import Call
from memory.domain.shapes.fields import Fields, own


def call_of(field: str, given: Fields, arguments: str = "arguments") -> tuple[ToolCall, Fields]:
    """Return a call from its `id`, `name` and arguments, and its other fields.

    Arguments are an object, or JSON text that is kept as the model wrote it. Older
    models make calls without an id. Such a call gets an id from its function's name.
    That is enough, because a result belongs to the nearest earlier call with its id
    that has no result.
    """
    name = _not_empty(f"{field}.name", given.pop("name", None))
    kept: Fields = {}
    value = given.get(arguments)
    if value is None:
        text, kept["arguments"] = "{}", "none"
    elif isinstance(value, str):
        text, kept["arguments"] = str(given.pop(arguments)), "text"
    elif isinstance(value, dict):
        text, kept["arguments"] = as_json(given.pop(arguments)), "object"
    else:
        raise InvalidInput(
            f"{field}.{arguments}", f"must be JSON text or an object, not {type(value).__name__}"
        )
    if given.get("id") in (None, ""):
        call_id, kept["unnamed"] = id_without(name), True
    else:
        call_id = _not_empty(f"{field}.id", given.pop("id"))
    return ToolCall(id=call_id, name=name, arguments=text), {**kept, **({"fields": given} if given else {})}


def call_back(call: ToolCall, kept: Fields, form: str, arguments: str = "arguments") -> Fields:
    """Return `id`, `name` and arguments as `call_of` took them.

    For a call from another format, `form` is the form of the arguments: `text` or
    `object`.
    """
    form = kept.get("arguments", form)
    given: Fields = {**kept.get("fields", {}), "name": call.name}
    if not (kept.get("unnamed") and is_made_up(call.id, call.name)):
        given["id"] = call.id
    if form != "none" or call.arguments != "{}":
        given[arguments] = arguments_of(call) if form == "object" else call.arguments
    return given


def worth_keeping(kept: list[Fields], form: str) -> Fields:
    """Return the fields to keep of all calls; empty if each has the usual form."""
    return {"calls": kept} if any(one != {"arguments": form} for one in kept) else {}


def kept_of(message: Message, shape: str) -> list[Fields]:
    """Return the kept fields of each call; empty if calls were added or removed."""
    kept: list[Fields] = own(message, shape).get("calls", [])
    return kept if len(kept) == len(message.tool_calls) else [{}] * len(message.tool_calls)


def id_without(name: str) -> str:
    """Return the id for a call without an id, and for its result."""
    return f"function_{name}"


def is_made_up(call_id: str | None, name: str | None) -> bool:
    """Return whether `id_without` or `told_apart` made this id for the function."""
    stem = id_without(name or "")
    return call_id is not None and (
        call_id == stem or (call_id.startswith(f"{stem}_") and call_id[len(stem) + 1 :].isdecimal())
    )


def told_apart(calls: list[Call]) -> list[Call]:
    """Return the calls of one message with distinct ids.

    Calls of the same function that came without ids get different ones.
    """
    taken, found = set[str](), list[Call]()
    for call, kept in calls:
        made = distinct(call, taken) if kept.get("unnamed") else call
        taken.add(made.id)
        found.append((made, kept))
    return found


def distinct(call: ToolCall, taken: Container[str]) -> ToolCall:
    """Return the call with the first id of its function that is not taken."""
    stem, number = id_without(call.name), 1
    made = call.id
    while made in taken:
        number += 1
        made = f"{stem}_{number}"
    return call if made == call.id else call.model_copy(update={"id": made})


def arguments_of(call: ToolCall) -> Fields:
    """Return the arguments as an object.

    If the model wrote something else, its text is under `arguments`.
    """
    given = parse_arguments(call)
    return {"arguments": call.arguments} if given is None else given


def parse_arguments(call: ToolCall) -> Fields | None:
    """Return the arguments as an object; None if the model wrote something else."""
    if not call.arguments.strip():
        return {}
    try:
        return validation.json_object(
            "arguments", json.loads(call.arguments), max_bytes=validation.MAX_MESSAGE_BYTES
        )
    except (
        ValueError,
        RecursionError,
    ):  # not JSON, or JSON that an import refuses: NaN, a lone surrogate, too deep
        return None


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _not_empty(field: str, value: object) -> str:
    checked = validation.text(field, value)
    if not checked:
        raise InvalidInput(field, "must not be empty")
    return checked
