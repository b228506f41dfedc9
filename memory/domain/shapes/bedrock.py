"""Convert messages of Amazon Bedrock's Converse API.

A content block is an object with one field, which says its kind. Bytes are bytes, as
boto3 has them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.shapes.content_parts import content_as, image_of
from memory.domain.shapes.fields import Fields, object_at
from memory.domain.shapes.pieces import (
    Piece,
    has_role,
    name_at,
    objects_at,
    result_text,
    role_at,
    segments,
    text_at,
)
from memory.domain.shapes.tool_calls import arguments_of

NAME = "bedrock"
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT}
_KINDS = {
    "text",
    "image",
    "document",
    "video",
    "audio",
    "toolUse",
    "toolResult",
    "guardContent",
    "cachePoint",
    "reasoningContent",
    "citationsContent",
    "searchResult",
    "json",
}


def is_one(fields: Fields) -> bool:
    blocks = fields.get("content")
    return (
        has_role(fields, _ROLES)
        and "type" not in fields
        and isinstance(blocks, list)
        and bool(blocks)
        and all(isinstance(one, dict) and len(one) == 1 and one.keys() <= _KINDS for one in blocks)
    )


def pieces(fields: Fields) -> list[Piece]:
    role = role_at(fields, _ROLES)
    blocks = objects_at(fields, "content")
    for n, block in enumerate(blocks):
        if len(block) != 1 or not block.keys() <= _KINDS:
            raise InvalidInput(
                f"content[{n}]", f"must be an object with one of the fields {', '.join(sorted(_KINDS))}"
            )
    found: list[Piece] = []
    for group in segments(blocks, lambda block: "toolResult" in block):
        piece = Piece(role, [("content", n) for n in group])
        for n in group:
            _add_block(piece, blocks[n], f"content[{n}]")
        found.append(piece)
    return found or [Piece(role)]


def _add_block(piece: Piece, block: Fields, path: str) -> None:
    ((kind, value),) = block.items()
    path = f"{path}.{kind}"
    if kind == "text":
        piece.add_text(text_at(block, path.rpartition(".")[0], "text"))
        return
    if kind == "json":
        piece.add_text(result_text(value))
        return
    given = object_at(value, path)
    if kind == "toolUse":
        piece.add_call(name_at(given, path, "toolUseId"), name_at(given, path, "name"), given.get("input"))
    elif kind == "toolResult":
        _add_result(piece, given, path)
    elif kind == "image":
        _add_image(piece, given)
    elif kind == "reasoningContent" and isinstance(given.get("reasoningText"), dict):
        piece.add_thought(text_at(given["reasoningText"], f"{path}.reasoningText", "text"))
    elif kind in ("citationsContent", "searchResult"):
        for part in objects_at(given, "content", f"{path}."):
            piece.add_text(text_at(part, f"{path}.content", "text"))
    elif kind == "guardContent" and isinstance(given.get("text"), dict):
        piece.add_text(text_at(given["text"], f"{path}.text", "text"))
    elif kind != "cachePoint":
        _add_document(piece, kind, given)


def _add_result(piece: Piece, given: Fields, path: str) -> None:
    piece.role, piece.tool_call_id = Role.TOOL, name_at(given, path, "toolUseId")
    piece.is_error = given.get("status") == "error"
    for n, inner in enumerate(objects_at(given, "content", f"{path}.")):
        if len(inner) != 1 or "toolResult" in inner:
            raise InvalidInput(f"{path}.content[{n}]", "must be an object with one field, and no result")
        _add_block(piece, inner, f"{path}.content[{n}]")


def _add_document(piece: Piece, kind: str, given: Fields) -> None:
    source = given.get("source")
    text = source.get("text") if isinstance(source, dict) else None
    if isinstance(text, str) and text:
        piece.add_text(text)
    else:
        piece.add_other({"reasoningContent": "reasoning"}.get(kind, kind))


def _add_image(piece: Piece, image: Fields) -> None:
    source = image.get("source")
    data = source.get("bytes") if isinstance(source, dict) else None
    form = image.get("format")
    piece.add_image(
        data if isinstance(data, str) else None, f"image/{form}" if isinstance(form, str) else None
    )


def to_fields(messages: Sequence[Message], *, foreign_reasoning: bool = True) -> list[Fields]:
    found: list[Fields] = []
    joins = False
    for message in messages:
        if message.role is Role.SYSTEM:
            continue
        role = "assistant" if message.role is Role.ASSISTANT else "user"
        blocks = _blocks(message, foreign_reasoning)
        if joins and role == "user":
            found[-1]["content"] += blocks
        else:
            found.append({"role": role, "content": blocks})
        joins = message.role is Role.TOOL
    return found


def _blocks(message: Message, foreign_reasoning: bool) -> list[Fields]:
    content = content_as(message, NAME)
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    blocks = [block for part in parts if (block := _block(part))]
    if message.role is Role.TOOL:
        result: Fields = {"toolUseId": message.tool_call_id or "", "content": blocks}
        if message.is_error:
            result["status"] = "error"
        return [{"toolResult": result}]
    thought = (
        [{"reasoningContent": {"reasoningText": {"text": message.reasoning}}}]
        if message.reasoning and foreign_reasoning and message.role is Role.ASSISTANT
        else []
    )
    uses = [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": arguments_of(call)}}
        for call in message.tool_calls
    ]
    return [*thought, *blocks, *uses]


def _block(part: Fields) -> Fields:
    image = image_of(part)
    if image is not None and image.data is not None:
        try:
            data = base64.b64decode(image.data)
        except ValueError:  # no Base64: the caller stored it so
            return {"text": "[image]"}
        return {"image": {"format": image.media_type.removeprefix("image/"), "source": {"bytes": data}}}
    if image is not None:
        return {"text": f"[image {image.url}]"}
    return {"text": part["text"]} if part.get("text") else {}
