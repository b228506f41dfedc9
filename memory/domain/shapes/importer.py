"""Check, copy and convert one given message of any shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.message import Message
from memory.domain.shapes import anthropic, langchain, native, openai, originals, plain
from memory.domain.shapes.fields import Fields
from memory.domain.shapes.registry import FORMATS, KEPT_WHOLE, recognise

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
_CONTENT_ELSEWHERE = ("parts", "text", "message", "contents", "blocks", "output")
"""Fields in which other formats have the text. They are not read."""
_READ: dict[str, tuple[str, ...]] = {
    "anthropic": ("content",),
    "bedrock": ("content",),
    "gemini": ("parts",),
    "llamaindex": ("blocks",),
    "ollama": ("content", "tool_calls"),
    "openai_responses": ("content", "output"),
    "vercel": ("parts",),
}
"""The fields in which a format has the content, where messages look alike."""
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


_KNOWN = f"Known formats: {', '.join(FORMATS)}"


def import_message(given: object, format: str = "auto") -> list[Message]:
    """Convert one message of any format to ours, as copies.

    It may be:

    - a dict in one of the `FORMATS`;
    - an object of LangChain, LlamaIndex, Pydantic AI, Google's or the vendors' own
      libraries;
    - `{role, content}` with our other fields;
    - a `Message` or its `model_dump`.

    A message with several results of tools becomes several messages. Only plain
    messages and those of OpenAI's chat completions can have your id in their field
    `id`. Ids inside other formats are not used, because frameworks repeat them.

    Args:
        given: The message.
        format: One of `FORMATS`, or `"auto"`, which recognises the format.

    Raises:
        InvalidInput: The message is of no known format. The error names the wrong
            field, or `message`.
    """
    if format != "auto":
        validation.one_of("format", format, ("auto", *FORMATS))
    fields = dict(_as_mapping(given))
    name = format
    if native.is_dump(fields):
        name = "auto"
    elif format == "auto":
        name = recognise(fields) or "auto"
    else:
        _refuse_foreign(format, fields)
    if name in KEPT_WHOLE:
        encoded, kinds = originals.encode(fields)
        copied = _copy_fields(encoded, keeps_all=True)
        messages = originals.keep(name, copied, KEPT_WHOLE[name].pieces(copied), kinds)
        if not KEPT_WHOLE[name].is_one(fields):  # only the caller says that it is one
            _refuse_unread(name, fields, messages)
    else:
        checked = _copy_fields(fields)
        _check_content(checked)
        messages = _from_fields(checked, name)
        _refuse_unread(name, fields, messages)
    for message in messages:
        _check_names(message)
    return messages


def import_messages(
    given: Sequence[object], field: str = "message", *, format: str = "auto"
) -> list[Message]:
    """Convert a list of messages of any format to ours, in order, as copies.

    Raises:
        InvalidInput: It names the position and the field of the wrong message.
    """
    return [message for group in import_groups(given, field, format=format) for message in group]


def import_groups(
    given: Sequence[object], field: str = "message", *, format: str = "auto"
) -> list[list[Message]]:
    """Convert like `import_messages`, and return a list of messages for each item."""
    found: list[list[Message]] = []
    for number, one in enumerate(given):
        try:
            found.append(import_message(one, format))
        except InvalidInput as exc:
            if exc.field == "format":
                raise
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
        raise InvalidInput("role", f"is missing, and the fields are of no format that is known. {_KNOWN}")
    if any(given.get(name) for name in known):
        return
    elsewhere = next((name for name in _CONTENT_ELSEWHERE if given.get(name)), None)
    if elsewhere is None and any(name in given for name in known):
        return
    unread = f"; '{path}{elsewhere}' is not read" if elsewhere is not None else ""
    problem = "is empty" if "content" in given else "is missing"
    raise InvalidInput(
        f"{path}content",
        f"{problem}, and so are tool calls and reasoning{unread}. Pass the text as 'content'. {_KNOWN}",
    )


def _refuse_unread(format: str, fields: Fields, messages: Sequence[Message]) -> None:
    """Raise `InvalidInput` for content that a format does not read, if it has no other.

    The message is of another format then, and would be stored without its text.
    """
    if format not in _READ or any(one.content or one.reasoning or one.tool_calls for one in messages):
        return
    names = dict.fromkeys((*_CONTENT_FIELDS, *_CONTENT_ELSEWHERE))
    unread = next((name for name in names if name not in _READ[format] and fields.get(name)), None)
    if unread is not None:
        raise InvalidInput(
            unread,
            f"is not read in the format '{format}', which has the text in '{_READ[format][0]}'. Name the"
            f" format of the message, or omit format=. {_KNOWN}",
        )


def _refuse_foreign(format: str, fields: Fields) -> None:
    """Raise `InvalidInput` for a message that only another format has."""
    module = KEPT_WHOLE.get(format)
    if format == "plain" or (module is not None and module.is_one(fields)):
        return
    found = recognise(fields) or ("langchain" if langchain.is_one(fields) else None)
    sign = next((name for name in ("type", "kind", "blocks", "parts", "author") if name in fields), "content")
    if found is None and format in ("anthropic", "openai", "openai_responses"):
        is_anthropic, is_openai = _is_anthropic(fields), _is_openai(fields)
        if is_anthropic and not is_openai:
            found, sign = "anthropic", _path_of_part(fields, _ANTHROPIC_PARTS)
        elif is_openai and not is_anthropic:
            found = "openai"
            sign = "tool_calls" if fields.get("tool_calls") else _path_of_part(fields, _OPENAI_PARTS)
            if format == "openai_responses" and _has_part(fields, {"refusal"}):
                return  # both formats have such a part
    if found is None or found == format or {found, format} == {"openai", "ollama"}:
        return
    raise InvalidInput(
        sign,
        f"is of the format {found!r}, and format={format!r} was given. Name that format, or omit format=",
    )


def _path_of_part(fields: Fields, kinds: set[str]) -> str:
    """Return the path of the first part of these kinds, or of the role."""
    for number, part in enumerate(_objects(fields.get("content"))):
        kind = part.get("type")
        if isinstance(kind, str) and kind in kinds:
            return f"content[{number}].type"
    return "role"


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


def _from_fields(fields: Fields, format: str) -> list[Message]:
    if native.is_dump(fields):
        return native.from_fields(fields)
    if format == "langchain" and not langchain.is_one(fields):
        raise InvalidInput("type", "is missing, or is no message type of LangChain's `message_to_dict`")
    if format in _OLDER:
        return _OLDER[format](fields)
    if langchain.is_one(fields):
        return langchain.from_fields(fields)
    if _is_openai(fields):
        return openai.from_fields(fields)
    if _is_anthropic(fields):
        return anthropic.from_fields(fields)
    return plain.from_fields(fields)


_OLDER: dict[str, Callable[[Fields], list[Message]]] = {
    "langchain": langchain.from_fields,
    "openai": openai.from_fields,
    "anthropic": anthropic.from_fields,
    "plain": plain.from_fields,
}


def _as_mapping(given: object) -> Mapping[Any, Any]:
    if isinstance(given, Message):
        return given.model_dump(warnings=False)
    if isinstance(given, Mapping):
        fields = given
    elif langchain.is_object(given):
        fields = langchain.dictionary_of(given)
    elif (dumped := _dump_of_framework(given)) is not None:
        fields = dumped
    elif (
        hasattr(given, "role") and hasattr(given, "content") and callable(getattr(given, "model_dump", None))
    ):
        fields = _dump_model(given)
    else:
        raise InvalidInput(
            "message",
            "must be a message, such as {'role': 'user', 'content': 'hello'}, or a message object of a"
            f" framework, not {type(given).__name__}. {_KNOWN}",
        )
    return {
        name: [_dump_model(one) for one in value] if isinstance(value, list | tuple) else value
        for name, value in fields.items()
    }


def _dump_of_framework(given: Any) -> Fields | None:
    """Return the fields of a message object of a framework; None if it is none.

    Pydantic AI has dataclasses; Gemini, ADK, LlamaIndex and the Responses API have
    pydantic models, whose messages show themselves by their fields.
    """
    if isinstance(given, type):
        return None
    if is_dataclass(given) and hasattr(given, "kind") and hasattr(given, "parts"):
        return dict(TypeAdapter[Any](type(given)).dump_python(given, mode="json"))
    if not callable(getattr(given, "model_dump", None)):
        return None
    if hasattr(given, "blocks") or hasattr(given, "parts") or hasattr(given, "author"):
        return dict(given.model_dump(mode="json", exclude_none=not hasattr(given, "blocks"), warnings=False))
    if isinstance(getattr(given, "type", None), str) and not hasattr(given, "role"):
        return dict(given.model_dump(mode="json", exclude_none=True, warnings=False))
    return None


def _dump_model(one: Any) -> Any:
    """Return the fields of an object, such as a block of a vendor's library."""
    return (
        one.model_dump(warnings=False)
        if not isinstance(one, type) and callable(getattr(one, "model_dump", None))
        else one
    )


def _copy_fields(given: Mapping[Any, Any], *, keeps_all: bool = False) -> Fields:
    """Return a checked copy of the fields.

    Texts over 64 KiB may have 32 MiB in total, and all other fields 1 MiB. The time
    of the message may be a datetime, which is checked later. With `keeps_all`, a value
    that JSON cannot hold is refused in every place.
    """
    named = None if keeps_all else validation.named_moment(given)
    moments = {named: given[named]} if named is not None and isinstance(given[named], datetime) else {}
    try:
        copied = validation.json_object(
            "message",
            {**given, **dict.fromkeys(moments)},
            max_bytes=validation.MAX_ROW_BYTES,
            large_texts=validation.MAX_MESSAGE_BYTES,
            may_replace=None if keeps_all else _is_unseen,
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
