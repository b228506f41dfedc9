"""Check, copy and convert one given message of any shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.message import Message
from memory.domain.shapes import anthropic, langchain, native, openai, plain
from memory.domain.shapes.fields import Fields

_OPENAI_ROLES = ("developer", "function")
_OPENAI_FIELDS = ("function_call", "reasoning_content", "refusal", "annotations", "audio")
_OPENAI_PARTS = {"image_url", "input_audio", "file", "refusal"}
_CONTENT_FIELDS: tuple[str, ...] = (
    "content",
    "tool_calls",
    "function_call",
    "reasoning",
    "reasoning_content",
    "refusal",
    "audio",
)
"""Fields with the content of a message. Any of them may be empty."""
_CONTENT_OF_LANGCHAIN: tuple[str, ...] = ("content", "tool_calls", "invalid_tool_calls")
_SEEN_BY_MODELS = {
    *_CONTENT_FIELDS,
    *_CONTENT_OF_LANGCHAIN,
    "role",
    "name",
    "tool_call_id",
    "id",
    "type",
    "finish_reason",
}
"""Fields that must be JSON. In other fields a placeholder replaces a bad value."""
_CONTENT_ELSEWHERE = ("parts", "text", "message", "contents")
"""Fields in which other formats have the text. They are not read."""
_ANTHROPIC_ROLES = ("user", "assistant", "system")
_ANTHROPIC_FIELDS = ("stop_reason", "stop_sequence")
_ANTHROPIC_PARTS = {
    "tool_use",
    "tool_result",
    "thinking",
    "redacted_thinking",
    "document",
    "server_tool_use",
    "search_result",
}


def import_message(given: object) -> list[Message]:
    """Convert one message of any format to ours, as copies.

    It may be:

    - a dict of OpenAI, Anthropic or LangChain;
    - an object of LangChain or of the vendors' own libraries;
    - `{role, content}` with our other fields;
    - a `Message` or its `model_dump`.

    A message of Anthropic with results of tools becomes several.

    Raises:
        InvalidInput: It names the wrong field, or `message` if this is no message.
    """
    fields = _copy_fields(_as_mapping(given))
    _check_content(fields)
    messages = _from_fields(fields)
    for message in messages:
        _check_names(message)
    return messages


def import_messages(given: Sequence[object], field: str = "message") -> list[Message]:
    """Convert a list of messages of any format to ours, in order, as copies.

    Raises:
        InvalidInput: It names the position and the field of the wrong message.
    """
    found: list[Message] = []
    for number, one in enumerate(given):
        try:
            found += import_message(one)
        except InvalidInput as exc:
            inner = "" if exc.field == "message" else f".{exc.field}"
            raise InvalidInput(f"{field}[{number}]{inner}", exc.problem) from None
    return found


def _check_content(fields: Fields) -> None:
    """Raise `InvalidInput` for a message without text in any known field.

    It would be stored without its text.
    """
    path, given, known = "", fields, _CONTENT_FIELDS
    if langchain.is_one(fields):
        path, given, known = "data.", fields["data"], _CONTENT_OF_LANGCHAIN
        raw = given.get("additional_kwargs")
        if isinstance(raw, dict) and any(raw.get(name) for name in _CONTENT_FIELDS):
            return
    elif fields.get("role") is None:
        return  # a missing role has its own error
    if any(given.get(name) for name in known):
        return
    elsewhere = next((name for name in _CONTENT_ELSEWHERE if given.get(name)), None)
    if elsewhere is None and any(name in given for name in known):
        return
    unread = f"; '{path}{elsewhere}' is not read" if elsewhere is not None else ""
    problem = "is empty" if "content" in given else "is missing"
    raise InvalidInput(
        f"{path}content",
        f"{problem}, and so are tool calls and reasoning{unread}. Pass the text as 'content'",
    )


def _check_names(message: Message) -> None:
    """Check the length of names and ids, which are stored in the row of a message."""
    named = {
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        "finish_reason": message.finish_reason,
    }
    for number, call in enumerate(message.tool_calls):
        named |= {f"tool_calls[{number}].id": call.id, f"tool_calls[{number}].name": call.name}
    for field, value in named.items():
        if value is not None and validation.is_large(value):
            raise InvalidInput(field, f"exceeds {validation.LARGE_TEXT_BYTES} bytes")


def _from_fields(fields: Fields) -> list[Message]:
    if native.is_dump(fields):
        return native.from_fields(fields)
    if langchain.is_one(fields):
        return langchain.from_fields(fields)
    if _is_openai(fields):
        return openai.from_fields(fields)
    if _is_anthropic(fields):
        return anthropic.from_fields(fields)
    return plain.from_fields(fields)


def _as_mapping(given: object) -> Mapping[Any, Any]:
    if isinstance(given, Message):
        return given.model_dump(warnings=False)
    if isinstance(given, Mapping):
        fields = given
    elif langchain.is_object(given):
        fields = langchain.dictionary_of(given)
    elif (
        hasattr(given, "role") and hasattr(given, "content") and callable(getattr(given, "model_dump", None))
    ):
        fields = _dump_model(given)
    else:
        raise InvalidInput(
            "message",
            f"must be a message, such as {{'role': 'user', 'content': 'hello'}}, or a LangChain message, "
            f"not {type(given).__name__}",
        )
    return {
        name: [_dump_model(one) for one in value] if isinstance(value, list | tuple) else value
        for name, value in fields.items()
    }


def _dump_model(one: Any) -> Any:
    """Return the fields of an object, such as a block of a vendor's library."""
    return (
        one.model_dump(warnings=False)
        if not isinstance(one, type) and callable(getattr(one, "model_dump", None))
        else one
    )


def _copy_fields(given: Mapping[Any, Any]) -> Fields:
    """Return a checked copy of the fields.

    Texts over 64 KiB may have 32 MiB in total, and all other fields 1 MiB. A time may
    be a datetime, which is checked when it is taken.
    """
    named = validation.named_moment(given)
    moments = {named: given[named]} if named is not None and isinstance(given[named], datetime) else {}
    try:
        copied = validation.json_object(
            "message",
            {**given, **dict.fromkeys(moments)},
            max_bytes=validation.MAX_ROW_BYTES,
            large_texts=validation.MAX_MESSAGE_BYTES,
            may_replace=_is_unseen,
        )
    except InvalidInput as exc:
        raise InvalidInput(exc.field.removeprefix("message."), exc.problem) from None
    return {**copied, **moments}


def _is_unseen(path: str) -> bool:
    """Return whether models do not see the value at this path of a message.

    A bad value there must not refuse the turn.
    """
    names = path.split(".")[1:]
    if names[:1] == ["data"]:
        del names[0]
    return bool(names) and names[0].partition("[")[0] not in _SEEN_BY_MODELS


def _is_openai(fields: Fields) -> bool:
    if fields.get("role") in _OPENAI_ROLES or any(name in fields for name in _OPENAI_FIELDS):
        return True
    return any(
        "function" in call or "custom" in call for call in _objects(fields.get("tool_calls"))
    ) or _has_part(fields, _OPENAI_PARTS)


def _is_anthropic(fields: Fields) -> bool:
    if fields.get("role") not in _ANTHROPIC_ROLES:
        return False
    if any(name in fields for name in _ANTHROPIC_FIELDS) or _has_part(fields, _ANTHROPIC_PARTS):
        return True
    return any(part.get("type") == "image" and "source" in part for part in _objects(fields.get("content")))


def _has_part(fields: Fields, kinds: set[str]) -> bool:
    return any(
        isinstance(kind := part.get("type"), str) and kind in kinds
        for part in _objects(fields.get("content"))
    )


def _objects(value: object) -> list[Fields]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
