"""Messages of OpenAI's chat completions, and of the many servers that speak the same."""

from __future__ import annotations

from memory.domain import door
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes.calls import as_json, call_back, call_of, id_without, is_made_up, kept_of, parsed, told_apart, worth_keeping
from memory.domain.shapes.fields import Fields, Given, content_back, given_back, own, speaker_back
from memory.domain.shapes.parts import content_as

_ROLES = {**{role.value: role for role in Role}, "developer": Role.SYSTEM, "function": Role.TOOL}
_REASONING = ("reasoning_content", "reasoning")
"""Where servers that give it put it; OpenAI's own keeps it to itself."""


def taken(fields: Fields) -> list[Message]:
    given = Given(fields)
    role, content, seen = given.role(_ROLES), given.content(), given.seen()
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
    message.extra = {**given.kept(), **worth_keeping([kept for _, kept in pairs], "text")}
    if reasoned != _REASONING[0]:
        message.extra["reasoned"] = reasoned
    return [message]


def given(message: Message, *, foreign_reasoning: bool = True) -> Fields:
    kept = own(message, "openai")
    calls = list(zip(message.tool_calls, kept_of(message, "openai"), strict=True))
    names_no_call = (kept.get("role") == "function" or "no_call_id" in kept) and is_made_up(message.tool_call_id, message.name)
    fields = given_back(
        kept,
        message,
        tool_calls=[tool_call_back(call, known) for call, known in calls if not known.get("legacy")],
        function_call=next((_function_call(call, known) for call, known in calls if known.get("legacy")), None),
        tool_call_id=None if names_no_call else message.tool_call_id,
        name=speaker_back(kept, message),
    )
    if message.reasoning and (foreign_reasoning or message.shape == "openai"):
        fields[kept.get("reasoned", _REASONING[0])] = message.reasoning
    nothing = None if message.tool_calls else ""
    return {"role": kept.get("role", message.role.value), **fields, **content_back(kept, content_as(message, "openai"), nothing)}


def tool_call(field: str, given: Fields) -> tuple[ToolCall, Fields]:
    """A call of a function, or of a custom tool, whose `input` is text and becomes `{"input": text}`."""
    kind = "custom" if "custom" in given and "function" not in given else "function"
    inner = given.pop(kind, None)
    if not isinstance(inner, dict):
        raise InvalidInput(f"{field}.{kind}", "must be an object")
    flat = {name: inner.pop(name) for name in ("name", "arguments") if name in inner}
    if kind == "custom":
        flat["arguments"] = as_json({"input": door.text(f"{field}.custom.input", inner.pop("input", ""))})
    if "id" in given:
        flat["id"] = given.pop("id")
    call, kept = call_of(field, flat)
    kept |= {"inner": inner} if inner else {}
    return call, kept | ({"outer": given, "kind": kind} if given != {"type": "function"} or kind == "custom" else {})


def tool_call_back(call: ToolCall, kept: Fields) -> Fields:
    flat = call_back(call, kept, "text")
    outer = {**kept.get("outer", {"type": "function"}), **({"id": flat.pop("id")} if "id" in flat else {})}
    if kept.get("kind") == "custom" and set(written := parsed(call) or {}) == {"input"} and isinstance(written["input"], str):
        return {**outer, "custom": {**kept.get("inner", {}), "name": call.name, "input": written["input"]}}
    if kept.get("kind") == "custom":
        outer["type"] = "function"
    return {**outer, "function": {**kept.get("inner", {}), **flat}}


def _function_call(call: ToolCall, kept: Fields) -> Fields:
    return {name: value for name, value in call_back(call, kept, "text").items() if name != "id" or "id" in kept.get("fields", {})}
