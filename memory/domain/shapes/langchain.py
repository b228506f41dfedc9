"""Convert LangChain's messages.

They are objects, recognised by their attributes, or the dictionaries that
`message_to_dict` makes of them.
"""

from __future__ import annotations

from typing import Any

from memory.domain import validation
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes import openai
from memory.domain.shapes.blocks import Blocks, Call, together
from memory.domain.shapes.content_parts import as_parts, content_as
from memory.domain.shapes.fields import Fields, MessageFields, content_back, given_back, own
from memory.domain.shapes.tool_calls import (
    call_back,
    call_of,
    id_without,
    kept_of,
    parse_arguments,
    told_apart,
    worth_keeping,
)

_ROLES = {
    "human": Role.USER,
    "HumanMessageChunk": Role.USER,
    "ai": Role.ASSISTANT,
    "AIMessageChunk": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "SystemMessageChunk": Role.SYSTEM,
    "tool": Role.TOOL,
    "ToolMessageChunk": Role.TOOL,
    "function": Role.TOOL,
    "FunctionMessageChunk": Role.TOOL,
}
"""The speaker of each type of message."""
_NAMING_THEIRS = ("chat", "ChatMessageChunk")
_SPEAKERS = {
    **{role.value: role for role in Role},
    "human": Role.USER,
    "ai": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "developer": Role.SYSTEM,
}
"""The speaker of a message that names its role."""
TYPES = frozenset((*_ROLES, *_NAMING_THEIRS))
_NAMES = {Role.USER: "human", Role.ASSISTANT: "ai", Role.SYSTEM: "system", Role.TOOL: "tool"}
_ATTRIBUTES = (
    "content",
    "additional_kwargs",
    "response_metadata",
    "type",
    "name",
    "id",
    "role",
    "tool_calls",
    "invalid_tool_calls",
    "usage_metadata",
    "tool_call_id",
    "artifact",
    "status",
)
_USAGE = ("input_tokens", "output_tokens", "total_tokens")


def is_object(message: Any) -> bool:
    """Return whether a message has the attributes of LangChain's own objects."""
    kind = getattr(message, "type", None)
    return (
        isinstance(kind, str)
        and kind in TYPES
        and hasattr(message, "content")
        and (kind in _NAMING_THEIRS or not hasattr(message, "role"))
    )


def dictionary_of(message: Any) -> Fields:
    """Return the dictionary of a message object."""
    dump = getattr(message, "model_dump", None)
    data = (
        dict(dump(warnings=False))
        if callable(dump)
        else {name: getattr(message, name) for name in _ATTRIBUTES if hasattr(message, name)}
    )
    return {"type": message.type, "data": data}


def is_one(fields: Fields) -> bool:
    """Return whether the dictionary has the form of `message_to_dict`."""
    kind = fields.get("type")
    return (
        isinstance(kind, str)
        and kind in TYPES
        and isinstance(fields.get("data"), dict)
        and "role" not in fields
    )


def from_fields(fields: Fields) -> list[Message]:
    kind, given = fields["type"], MessageFields(fields["data"])
    content, at = given.content(), given.moment()
    if at is None and (named := validation.named_moment(fields)) is not None:
        at = validation.time(named, fields[named])
    found = _taken_apart(content)
    calls = _calls(given)
    thought = given.look_at("additional_kwargs", dict) or {}
    answered = given.look_at("response_metadata", dict) or {}
    reasoned = thought.get("reasoning_content")
    name, tool_call_id = given.text("name"), given.text("tool_call_id")
    message = Message(
        role=_role(kind, given),
        content=content if found is None else found.parts or "",
        reasoning=(found.reasoning if found else None)
        or (reasoned if isinstance(reasoned, str) and reasoned else None),
        tool_calls=[call for call, _ in calls],
        tool_call_id=tool_call_id
        if tool_call_id is not None or kind != "function"
        else id_without(name or ""),
        is_error=given.left.get("status") == "error",
        name=name,
        usage=given.look_at("usage_metadata", dict),
        finish_reason=next(
            (answered[key] for key in ("finish_reason", "stop_reason") if isinstance(answered.get(key), str)),
            None,
        ),
        at=at,
        shape="langchain",
    )
    kept = worth_keeping([kept for _, kept in calls], "object")
    outer = {name: value for name, value in fields.items() if name not in ("type", "data")}
    message.extra = {
        "type": kind,
        **given.extra_fields(),
        **(found.extra_fields if found else {}),
        **kept,
        **({"outer": outer} if outer else {}),
    }
    return [message]


def to_fields(message: Message, *, foreign_reasoning: bool = True) -> Fields:
    kept = own(message, "langchain")
    kind = kept.get("type", _NAMES[message.role])
    is_own = message.shape == "langchain"
    calls = list(zip(message.tool_calls, kept_of(message, "langchain"), strict=True))
    sound = [
        (call, known)
        for call, known in calls
        if not known.get("invalid") and parse_arguments(call) is not None
    ]
    data: Fields = {} if is_own else _defaults(message, kind, foreign_reasoning)
    data |= given_back(
        kept,
        message,
        name=message.name,
        tool_call_id=None if kind == "function" else message.tool_call_id,
        tool_calls=[_call_back(call, known) for call, known in sound if not known.get("elsewhere")],
        invalid_tool_calls=[
            _invalid_back(call, known)
            for call, known in calls
            if (call, known) not in sound and not known.get("elsewhere")
        ],
    )
    if message.role is Role.TOOL and message.is_error:
        data["status"] = "error"
    if message.id is not None and not is_own:
        data["id"] = message.id
    content = content_as(message, "langchain")
    if "blocks" in kept:
        content = together(message.model_copy(update={"tool_calls": []}), kept, as_parts(content), _call_back)
    return {**kept.get("outer", {}), "type": kind, "data": {**data, **content_back(kept, content)}}


def _role(kind: str, given: MessageFields) -> Role:
    return (
        _ROLES[kind]
        if kind in _ROLES
        else _SPEAKERS[validation.one_of("role", given.left.get("role"), _SPEAKERS)]
    )


def _taken_apart(content: str | list[Fields]) -> Blocks | None:
    """Separate thinking and repeated calls from the parts.

    The calls are repeated, because `tool_calls` has them too.
    """
    if isinstance(content, str):
        return None
    found = Blocks()
    for block in content:
        kind = block["type"]
        if kind in ("thinking", "reasoning") and isinstance(block.get(kind), str):
            found.add_thinking(kind, block)
        elif kind in ("tool_use", "tool_call", "redacted_thinking", "input_json_delta"):
            found.add_verbatim(block)
        else:
            found.add_part(block)
    return found


def _calls(given: MessageFields) -> list[Call]:
    """Return the calls, including those whose arguments are not JSON.

    Older messages may have calls only in OpenAI's fields. These are returned too.
    """
    calls = [_call(f"tool_calls[{n}]", call) for n, call in enumerate(given.objects("tool_calls"))]
    for n, call in enumerate(given.objects("invalid_tool_calls")):
        made, kept = _call(f"invalid_tool_calls[{n}]", {**call, "name": call.get("name") or "unknown"})
        calls.append((made, {**kept, "invalid": True, **({} if call.get("name") else {"nameless": True})}))
    raw = (given.look_at("additional_kwargs", dict) or {}).get("tool_calls")
    if not calls and isinstance(raw, list):
        copies = [
            {**call, "function": dict(call["function"])}
            for call in raw
            if isinstance(call, dict) and isinstance(call.get("function"), dict)
        ]
        calls = [
            (openai.tool_call(f"additional_kwargs.tool_calls[{n}]", call)[0], {"elsewhere": True})
            for n, call in enumerate(copies)
        ]
    return told_apart(calls)


def _call(field: str, call: Fields) -> Call:
    made, kept = call_of(field, call, "args")
    others = kept.pop("fields", {})
    return made, kept if others == {"type": "tool_call"} else {**kept, "fields": others}


def _call_back(call: ToolCall, kept: Fields) -> Fields:
    usual = {} if "fields" in kept else {"type": "tool_call"}
    return {
        **usual,
        **call_back(
            call,
            {**kept, "arguments": "none" if kept.get("arguments") == "none" else "object"},
            "object",
            "args",
        ),
    }


def _invalid_back(call: ToolCall, kept: Fields) -> Fields:
    if not kept.get("invalid"):
        return {
            "type": "invalid_tool_call",
            "id": call.id,
            "name": call.name,
            "args": call.arguments,
            "error": None,
        }
    back = call_back(call, kept, "text", "args")
    return {**back, **({"name": None} if kept.get("nameless") else {})}


def _defaults(message: Message, kind: str, foreign_reasoning: bool) -> Fields:
    """Return the fields of LangChain's dictionary for a message of another shape."""
    reasoning = {"reasoning_content": message.reasoning} if message.reasoning and foreign_reasoning else {}
    data: Fields = {
        "additional_kwargs": reasoning,
        "response_metadata": {},
        "type": kind,
        "name": None,
        "id": None,
    }
    if message.role is Role.ASSISTANT:
        data["response_metadata"] = {"finish_reason": message.finish_reason} if message.finish_reason else {}
        data |= {"tool_calls": [], "invalid_tool_calls": [], "usage_metadata": _usage(message.usage or {})}
    if message.role is Role.TOOL:
        data |= {"tool_call_id": "", "artifact": None, "status": "success"}
    return data


def _usage(usage: Fields) -> Fields | None:
    """Return the counts by LangChain's names, from its own, Anthropic's or OpenAI's."""
    asked, answered = (
        usage.get("input_tokens", usage.get("prompt_tokens")),
        usage.get("output_tokens", usage.get("completion_tokens")),
    )
    if not isinstance(asked, int) or not isinstance(answered, int):
        return None
    return dict(zip(_USAGE, (asked, answered, asked + answered), strict=True))
