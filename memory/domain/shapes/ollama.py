"""Convert messages of Ollama: images beside the content, and calls without ids."""

from __future__ import annotations

from collections.abc import Sequence

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.shapes.content_parts import content_as, image_of
from memory.domain.shapes.fields import Fields, object_at
from memory.domain.shapes.pieces import (
    Piece,
    has_role,
    list_at,
    name_at,
    objects_at,
    role_at,
    text_at,
    tool_name_of,
)
from memory.domain.shapes.tool_calls import arguments_of

NAME = "ollama"
_ROLES = {role.value: role for role in Role}


def is_one(fields: Fields) -> bool:
    """Return whether only Ollama has such a message.

    Its other messages look like those of OpenAI.
    """
    return (
        has_role(fields, _ROLES)
        and isinstance(fields.get("content", ""), str)
        and "type" not in fields
        and any(fields.get(name) for name in ("images", "thinking"))
    )


def pieces(fields: Fields) -> list[Piece]:
    role = role_at(fields, _ROLES)
    piece = Piece(role)
    piece.add_text(text_at(fields, "", "content"))
    piece.add_thought(text_at(fields, "", "thinking"))
    for n, image in enumerate(list_at(fields, "images")):
        if not isinstance(image, str):
            raise InvalidInput(f"images[{n}]", f"must be Base64 text, not {type(image).__name__}")
        piece.add_image(image)
    for n, call in enumerate(objects_at(fields, "tool_calls")):
        path = f"tool_calls[{n}].function"
        given = object_at(call.get("function"), path)
        piece.add_call(
            text_at(call, f"tool_calls[{n}]", "id") or None,
            name_at(given, path, "name"),
            given.get("arguments"),
        )
    if piece.role is Role.TOOL:
        piece.name = text_at(fields, "", "tool_name", "name") or None
        piece.tool_call_id = text_at(fields, "", "tool_call_id") or None
    return [piece]


def to_fields(messages: Sequence[Message], *, foreign_reasoning: bool = True) -> list[Fields]:
    names = tool_name_of(messages)
    return [_message(message, names, foreign_reasoning) for message in messages]


def _message(message: Message, names: dict[str, str], foreign_reasoning: bool) -> Fields:
    content = content_as(message, NAME)
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    images = [image for part in parts if (image := image_of(part)) is not None]
    fields: Fields = {
        "role": message.role.value,
        "content": "\n".join(
            [part["text"] for part in parts if "text" in part]
            + [f"[image {image.url}]" for image in images if image.data is None]
        ),
    }
    if shown := [image.data for image in images if image.data is not None]:
        fields["images"] = shown
    if message.reasoning and foreign_reasoning:
        fields["thinking"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {"function": {"name": call.name, "arguments": arguments_of(call)}} for call in message.tool_calls
        ]
    if message.role is Role.TOOL and (name := message.name or names.get(message.tool_call_id or "")):
        fields["tool_name"] = name
    return fields
