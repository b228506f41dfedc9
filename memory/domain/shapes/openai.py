"""Convert messages of OpenAI's chat completions, and of compatible servers."""

from __future__ import annotations

from hashlib import blake2b

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes.content_parts import content_as
from memory.domain.shapes.fields import Fields, MessageFields, content_back, given_back, own, speaker_back
from memory.domain.shapes.tool_calls import (
    as_json,
    call_back,
    call_of,
    id_without,
    is_made_up,
    kept_of,
    parse_arguments,
    told_apart,
    worth_keeping,
)

_ROLES = {**{role.value: role for role in Role}, "developer": Role.SYSTEM, "function": Role.TOOL}
_LONGEST_ID = 40
"""The longest id of a call that OpenAI's API accepts, in characters."""
_REASONING = ("reasoning_content", "reasoning")
"""The fields in which servers return reasoning. OpenAI's own server returns none."""


def from_fields(fields: Fields) -> list[Message]:
    given = MessageFields(fields)
    role, content, seen = given.role(_ROLES), given.content(), given.id_and_time()
    pairs = [tool_call(f"tool_calls[{n}]", call) for n, call in enumerate(given.objects("tool_calls"))]
    if not pairs and (legacy := given.object("function_call")):
        call, kept = call_of("function_call", legacy)
        pairs = [(call, {**kept, "legacy": True})]
    pairs = told_apart(pairs)
    name, tool_call_id = given.speaker(role), given.answered_call(role)
    if given.extra.get("role") == "function" and tool_call_id is None and name is not None:
        tool_call_id = id_without(name)
    reasoned = next((field for field in _REASONING if given.left.get(field)), _REASONING[0])
    message = Message(
        role=role,
        content=content,
        reasoning=given.text(reasoned),
        tool_calls=[call for call, _ in pairs],
        tool_call_id=tool_call_id,
        name=name,
        shape="openai",
        **seen,
    )
    message.extra = {**given.extra_fields(), **worth_keeping([kept for _, kept in pairs], "text")}
    if reasoned != _REASONING[0]:
        message.extra["reasoned"] = reasoned
    return [message]


def to_fields(message: Message, *, foreign_reasoning: bool = True, strict: bool = False) -> Fields:
    kept, kept_of_calls = own(message, "openai"), kept_of(message, "openai")
    if strict:
        message, kept, kept_of_calls = (
            _short_ids(message),
            _strict(kept),
            [_strict_call(one) for one in kept_of_calls],
        )
    calls = list(zip(message.tool_calls, kept_of_calls, strict=True))
    names_no_call = (kept.get("role") == "function" or "no_call_id" in kept) and is_made_up(
        message.tool_call_id, message.name
    )
    fields = given_back(
        kept,
        message,
        tool_calls=[tool_call_back(call, known) for call, known in calls if not known.get("legacy")],
        function_call=next(
            (_function_call(call, known) for call, known in calls if known.get("legacy")), None
        ),
        tool_call_id=None if names_no_call else message.tool_call_id,
        name=speaker_back(kept, message),
    )
    if message.reasoning and (foreign_reasoning or message.shape == "openai"):
        fields[kept.get("reasoned", _REASONING[0])] = message.reasoning
    nothing = None if message.tool_calls else ""
    return {
        "role": kept.get("role", message.role.value),
        **fields,
        **content_back(kept, content_as(message, "openai"), nothing),
    }


def _strict(kept: Fields) -> Fields:
    """Remove fields of a message that OpenAI's own API does not accept.

    These are a result without the id of its call, and a tool's name in another field.
    """
    left = {
        name: value
        for name, value in kept.items()
        if name != "no_call_id" and (name, value) != ("role", "function")
    }
    fields = {name: value for name, value in left.pop("fields", {}).items() if name != "tool_name"}
    return left | ({"fields": fields} if fields else {})


def _strict_call(kept: Fields) -> Fields:
    """Remove fields of a call that OpenAI's own API does not accept.

    These are a missing id or type, arguments that are not text, and the form before
    `tool_calls`.
    """
    left = {name: value for name, value in kept.items() if name not in ("unnamed", "arguments", "legacy")}
    return left | (
        {"outer": {"type": left.get("kind", "function"), **left["outer"]}} if "outer" in left else {}
    )


def _short_ids(message: Message) -> Message:
    """Return the message with call ids that are short enough.

    Equal ids stay equal in all messages.
    """
    calls = [call.model_copy(update={"id": _short_id(call.id)}) for call in message.tool_calls]
    call_id = None if message.tool_call_id is None else _short_id(message.tool_call_id)
    return message.model_copy(update={"tool_calls": calls, "tool_call_id": call_id})


def _short_id(call_id: str) -> str:
    return (
        call_id
        if len(call_id) <= _LONGEST_ID
        else f"call_{blake2b(call_id.encode(), digest_size=12).hexdigest()}"
    )


def tool_call(field: str, given: Fields) -> tuple[ToolCall, Fields]:
    """Return a call of a function or of a custom tool.

    The text `input` of a custom tool becomes `{"input": text}`.
    """
    kind = "custom" if "custom" in given and "function" not in given else "function"
    inner = given.pop(kind, None)
    if not isinstance(inner, dict):
        raise InvalidInput(f"{field}.{kind}", "must be an object")
    flat = {name: inner.pop(name) for name in ("name", "arguments") if name in inner}
    if kind == "custom":
        flat["arguments"] = as_json(
            {"input": validation.text(f"{field}.custom.input", inner.pop("input", ""))}
        )
    if "id" in given:
        flat["id"] = given.pop("id")
    call, kept = call_of(field, flat)
    kept |= {"inner": inner} if inner else {}
    return call, kept | (
        {"outer": given, "kind": kind} if given != {"type": "function"} or kind == "custom" else {}
    )


def tool_call_back(call: ToolCall, kept: Fields) -> Fields:
    flat = call_back(call, kept, "text")
    outer = {**kept.get("outer", {"type": "function"}), **({"id": flat.pop("id")} if "id" in flat else {})}
    if (
        kept.get("kind") == "custom"
        and set(written := parse_arguments(call) or {}) == {"input"}
        and isinstance(written["input"], str)
    ):
        return {**outer, "custom": {**kept.get("inner", {}), "name": call.name, "input": written["input"]}}
    if kept.get("kind") == "custom":
        outer["type"] = "function"
    return {**outer, "function": {**kept.get("inner", {}), **flat}}


def _function_call(call: ToolCall, kept: Fields) -> Fields:
    return {
        name: value
        for name, value in call_back(call, kept, "text").items()
        if name != "id" or "id" in kept.get("fields", {})
    }
