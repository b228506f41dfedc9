"""Convert contents of Gemini, and events of Google's ADK, which have one inside.

Fields may have the names of the REST API (`functionCall`) or of the Python library
(`function_call`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.shapes.content_parts import content_as, image_of
from memory.domain.shapes.fields import Fields, object_at
from memory.domain.shapes.pieces import (
    Path,
    Piece,
    has_role,
    json_value,
    name_at,
    objects_at,
    result_text,
    segments,
    text_at,
    tool_name_of,
)
from memory.domain.shapes.tool_calls import arguments_of, is_made_up

NAME = "gemini"
_ROLES = {"user": Role.USER, "model": Role.ASSISTANT, "function": Role.USER, "tool": Role.USER}
_KINDS = {
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
    "thought",
    "thoughtSignature",
}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _field(fields: Fields, name: str) -> Any:
    """Return the value of a field by its name in the REST API, in either spelling."""
    return next(
        (value for given, value in fields.items() if _camel(given) == name and value is not None), None
    )


def _kinds_of(part: Fields) -> set[str]:
    return {_camel(name) for name, value in part.items() if value is not None} & _KINDS


def is_one(fields: Fields) -> bool:
    parts = fields.get("parts")
    return (
        isinstance(parts, list)
        and bool(parts)
        and "kind" not in fields
        and fields.get("content") is None
        and (fields.get("role") is None or has_role(fields, _ROLES))
        and all(isinstance(part, dict) and "type" not in part and _kinds_of(part) for part in parts)
    )


def pieces(fields: Fields) -> list[Piece]:
    return contents(fields, ())


def contents(fields: Fields, prefix: Path) -> list[Piece]:
    """Return the pieces of a content, whose path in the original is `prefix`."""
    at = "".join(f"{name}." for name in prefix)
    given = fields.get("role") or "user"
    if not isinstance(given, str) or given not in _ROLES:
        raise InvalidInput(f"{at}role", f"must be one of {', '.join(_ROLES)}, not {given!r}")
    role = _ROLES[given]
    parts = objects_at(fields, "parts", at)
    found: list[Piece] = []
    for group in segments(parts, lambda part: _field(part, "functionResponse") is not None):
        piece = Piece(role, [(*prefix, "parts", n) for n in group])
        for n in group:
            _add_part(piece, parts[n], f"{at}parts[{n}]")
        found.append(piece)
    return found or [Piece(role)]


def _add_part(piece: Piece, part: Fields, path: str) -> None:
    kinds = _kinds_of(part)
    if not kinds:
        raise InvalidInput(path, f"must have one of the fields {', '.join(sorted(_KINDS))}")
    call, response = _field(part, "functionCall"), _field(part, "functionResponse")
    if "text" in kinds:
        add = piece.add_thought if part.get("thought") is True else piece.add_text
        add(text_at(part, path, "text"))
    elif call is not None:
        given = object_at(call, f"{path}.functionCall")
        call_id = text_at(given, f"{path}.functionCall", "id")
        piece.add_call(call_id or None, name_at(given, f"{path}.functionCall", "name"), given.get("args"))
    elif response is not None:
        given = object_at(response, f"{path}.functionResponse")
        piece.role, piece.name = Role.TOOL, text_at(given, path, "name") or None
        piece.tool_call_id = text_at(given, path, "id") or None
        value = given.get("response")
        piece.add_text(result_text(value))
        piece.is_error = isinstance(value, dict) and value.keys() == {"error"}
        for _ in objects_at(given, "parts", f"{path}.functionResponse."):
            piece.add_other("file")
    elif (blob := _field(part, "inlineData")) is not None:
        _add_blob(piece, object_at(blob, f"{path}.inlineData"))
    elif (file := _field(part, "fileData")) is not None:
        media, address = _field(object_at(file, f"{path}.fileData"), "mimeType"), _field(file, "fileUri")
        if isinstance(media, str) and media.startswith("image/") and isinstance(address, str):
            piece.add_image(url=address)
        else:
            piece.add_other("file")
    elif (code := _field(part, "executableCode")) is not None:
        piece.add_text(text_at(object_at(code, f"{path}.executableCode"), path, "code"))
    elif (output := _field(part, "codeExecutionResult")) is not None:
        piece.add_text(text_at(object_at(output, f"{path}.codeExecutionResult"), path, "output"))
    else:
        piece.add_other("reasoning" if kinds <= {"thought", "thoughtSignature"} else "tool")


def _add_blob(piece: Piece, blob: Fields) -> None:
    media, data = _field(blob, "mimeType"), blob.get("data")
    if isinstance(media, str) and media.startswith("image/") and isinstance(data, str):
        piece.add_image(data.replace("-", "+").replace("_", "/"), media)
    else:
        piece.add_other(media.split("/")[0] if isinstance(media, str) else "file")


def to_fields(messages: Sequence[Message], *, foreign_reasoning: bool = True) -> list[Fields]:
    names = tool_name_of(messages)
    found: list[Fields] = []
    joins = False
    for message in messages:
        if message.role is Role.SYSTEM:
            continue
        role = "model" if message.role is Role.ASSISTANT else "user"
        parts = _parts(message, names, foreign_reasoning)
        if joins and message.role is Role.TOOL:
            found[-1]["parts"] += parts
        else:
            found.append({"role": role, "parts": parts})
        joins = message.role is Role.TOOL
    return found


def _parts(message: Message, names: dict[str, str], foreign_reasoning: bool) -> list[Fields]:
    content = content_as(message, NAME)
    if message.role is Role.TOOL:
        text = message.text
        value = json_value(text)
        key = "error" if message.is_error else "result"
        answer: Fields = {
            "name": message.name or names.get(message.tool_call_id or "", "unknown"),
            "response": value if isinstance(value, dict) and not message.is_error else {key: text},
        }
        return [{"functionResponse": {**_id(message.tool_call_id, answer["name"]), **answer}}]
    given = [{"type": "text", "text": content}] if isinstance(content, str) else content
    thought = (
        [{"text": message.reasoning, "thought": True}] if message.reasoning and foreign_reasoning else []
    )
    said = [_part(part) for part in given if part.get("text") != ""]
    calls = [
        {"functionCall": {**_id(call.id, call.name), "name": call.name, "args": arguments_of(call)}}
        for call in message.tool_calls
    ]
    return [*thought, *said, *calls] or [{"text": ""}]


def _id(call_id: str | None, name: str) -> Fields:
    return {} if call_id is None or is_made_up(call_id, name) else {"id": call_id}


def _part(part: Fields) -> Fields:
    image = image_of(part)
    if image is not None and image.data is not None:
        return {"inlineData": {"mimeType": image.media_type, "data": image.data}}
    if image is not None:
        return {"fileData": {"fileUri": image.url, "mimeType": "image/*"}}
    return {"text": part["text"]}
