"""Convert `ModelMessage` of Pydantic AI: requests and responses, made of parts."""

from __future__ import annotations

from collections.abc import Sequence

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.shapes.content_parts import content_as, image_of
from memory.domain.shapes.fields import Fields
from memory.domain.shapes.pieces import (
    Piece,
    json_value,
    kept_object,
    name_at,
    objects_at,
    result_text,
    text_at,
    time_at,
    tool_name_of,
)

NAME = "pydantic_ai"
_ROLES_OF_PARTS = {
    "system-prompt": Role.SYSTEM,
    "tool-return": Role.TOOL,
    "retry-prompt": Role.TOOL,
}


def is_one(fields: Fields) -> bool:
    parts = fields.get("parts")
    return str(fields.get("kind")) in ("request", "response") and isinstance(parts, list)


def pieces(fields: Fields) -> list[Piece]:
    kind = fields.get("kind")
    if kind not in ("request", "response"):
        raise InvalidInput("kind", f"must be 'request' or 'response', not {kind!r}")
    parts = objects_at(fields, "parts")
    found: list[Piece] = []
    for n, part in enumerate(parts):
        given = name_at(part, f"parts[{n}]", "part_kind")
        role = Role.ASSISTANT
        if kind == "request":
            role = _ROLES_OF_PARTS.get(given, Role.USER)
            if given == "retry-prompt" and not part.get("tool_name"):
                role = Role.USER
        if not found or kind == "request":
            found.append(Piece(role))
        found[-1].paths.append(("parts", n))
        (_add_request_part if kind == "request" else _add_response_part)(
            found[-1], given, part, f"parts[{n}]"
        )
    if not found:
        found = [Piece(Role.USER if kind == "request" else Role.ASSISTANT)]
    for piece in found:
        piece.at = time_at(fields, "timestamp")
    found[0].usage = kept_object(fields.get("usage"))
    found[0].finish_reason = text_at(fields, "", "finish_reason")
    return found


def _add_request_part(piece: Piece, kind: str, part: Fields, path: str) -> None:
    content = part.get("content")
    if kind in ("tool-return", "retry-prompt"):
        piece.name = text_at(part, path, "tool_name") or None
        piece.tool_call_id = text_at(part, path, "tool_call_id") or None
        piece.is_error = kind == "retry-prompt" or part.get("outcome") in ("failed", "denied", "retried")
        piece.add_text(result_text(content))
    elif isinstance(content, str):
        piece.add_text(content)
    elif isinstance(content, list):
        for n, one in enumerate(content):
            _add_content(piece, one, f"{path}.content[{n}]")
    else:
        piece.add_other(kind)


def _add_content(piece: Piece, one: object, path: str) -> None:
    if isinstance(one, str):
        piece.add_text(one)
        return
    if not isinstance(one, dict):
        raise InvalidInput(path, f"must be text or an object, not {type(one).__name__}")
    kind = name_at(one, path, "kind")
    data, media = one.get("data"), one.get("media_type")
    if isinstance(one.get("content"), str):
        piece.add_text(one["content"])
    elif kind == "image-url":
        piece.add_image(url=text_at(one, path, "url"))
    elif kind == "binary" and isinstance(data, str) and isinstance(media, str) and media.startswith("image/"):
        piece.add_image(data.replace("-", "+").replace("_", "/"), media)
    elif kind != "cache-point":
        piece.add_other(kind.removesuffix("-url"))


def _add_response_part(piece: Piece, kind: str, part: Fields, path: str) -> None:
    if kind == "text":
        piece.add_text(text_at(part, path, "content"))
    elif kind == "thinking":
        piece.add_thought(text_at(part, path, "content"))
        if not part.get("content"):
            piece.add_other("reasoning")
    elif kind == "tool-call":
        piece.add_call(
            text_at(part, path, "tool_call_id") or None, name_at(part, path, "tool_name"), part.get("args")
        )
    else:
        piece.add_other("compaction" if kind == "compaction" else kind)


def to_fields(messages: Sequence[Message], *, foreign_reasoning: bool = True) -> list[Fields]:
    """Return requests and responses; neighbouring requests become one."""
    names = tool_name_of(messages)
    found: list[Fields] = []
    for message in messages:
        if message.role is Role.ASSISTANT:
            found.append({"kind": "response", "parts": _response_parts(message, foreign_reasoning)})
        else:
            part = _request_part(message, names)
            if found and found[-1]["kind"] == "request":
                found[-1]["parts"].append(part)
            else:
                found.append({"kind": "request", "parts": [part]})
    return found


def _request_part(message: Message, names: dict[str, str]) -> Fields:
    if message.role is Role.TOOL:
        name = message.name or names.get(message.tool_call_id or "", "unknown")
        told = {"tool_name": name, "tool_call_id": message.tool_call_id or ""}
        if message.is_error:
            return {"part_kind": "retry-prompt", "content": message.text, **told}
        return {"part_kind": "tool-return", "content": json_value(message.text), **told}
    if message.role is Role.SYSTEM:
        return {"part_kind": "system-prompt", "content": message.text}
    content = content_as(message, NAME)
    return {
        "part_kind": "user-prompt",
        "content": content if isinstance(content, str) else [_content(part) for part in content],
    }


def _content(part: Fields) -> str | Fields:
    image = image_of(part)
    if image is not None and image.data is not None:
        return {"kind": "binary", "data": image.data, "media_type": image.media_type}
    if image is not None:
        return {"kind": "image-url", "url": image.url}
    return str(part["text"])


def _response_parts(message: Message, foreign_reasoning: bool) -> list[Fields]:
    content = content_as(message, NAME)
    texts = [content] if isinstance(content, str) else [str(part.get("text", "[image]")) for part in content]
    thought = (
        [{"part_kind": "thinking", "content": message.reasoning}]
        if message.reasoning and foreign_reasoning
        else []
    )
    return [
        *thought,
        *({"part_kind": "text", "content": text} for text in texts if text),
        *(
            {
                "part_kind": "tool-call",
                "tool_name": call.name,
                "args": call.arguments,
                "tool_call_id": call.id,
            }
            for call in message.tool_calls
        ),
    ]
