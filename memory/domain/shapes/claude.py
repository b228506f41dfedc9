"""Convert lines of transcripts of Claude Code and the Claude Agent SDK.

A line of `user` or `assistant` has a message of Anthropic's API inside. All other lines
say nothing to a model; they are kept as they came.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.shapes import anthropic
from memory.domain.shapes.content_parts import image_of
from memory.domain.shapes.fields import Fields, object_at
from memory.domain.shapes.pieces import (
    Piece,
    kept_object,
    name_at,
    objects_at,
    segments,
    text_at,
    time_at,
)

NAME = "claude"
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT}
_BESIDE = {"uuid", "parentUuid", "sessionId", "leafUuid", "messageId", "isSnapshotUpdate"}
"""Fields that show that an object is a line of a transcript."""


def is_one(fields: Fields) -> bool:
    kind = fields.get("type")
    if not isinstance(kind, str) or "role" in fields or "data" in fields:
        return False
    message = fields.get("message")
    if isinstance(message, dict):
        return kind in _ROLES and "role" in message
    return not _BESIDE.isdisjoint(fields)


def pieces(fields: Fields) -> list[Piece]:
    kind = name_at(fields, "", "type")
    at = time_at(fields, "timestamp")
    if kind not in _ROLES or not isinstance(fields.get("message"), dict):
        return [Piece(Role.ASSISTANT, at=at)]
    given = object_at(fields["message"], "message")
    role = _ROLES.get(text_at(given, "message", "role"), _ROLES[kind])
    content = given.get("content")
    found: list[Piece] = []
    if isinstance(content, str):
        found.append(Piece(role))
        found[0].add_text(content)
    else:
        blocks = objects_at(given, "content", "message.")
        for group in segments(blocks, lambda block: block.get("type") == "tool_result"):
            found.append(Piece(role, [("message", "content", n) for n in group]))
            for n in group:
                _add_block(found[-1], blocks[n], f"message.content[{n}]")
        found = found or [Piece(role)]
    for piece in found:
        piece.at = at
    found[0].usage = kept_object(given.get("usage"))
    found[0].finish_reason = text_at(given, "message", "stop_reason")
    return found


def _add_block(piece: Piece, block: Fields, path: str) -> None:
    kind = name_at(block, path, "type")
    source = block.get("source")
    if kind == "text":
        piece.add_text(text_at(block, path, "text"))
    elif kind == "thinking":
        piece.add_thought(text_at(block, path, "thinking"))
        if not block.get("thinking"):
            piece.add_other("reasoning")
    elif kind == "redacted_thinking":
        piece.add_other("reasoning")
    elif kind == "tool_use":
        piece.add_call(name_at(block, path, "id"), name_at(block, path, "name"), block.get("input"))
    elif kind == "tool_result":
        _add_result(piece, block, path)
    elif (image := image_of(block)) is not None:
        piece.add_image(image.data, image.media_type, image.url)
    elif isinstance(source, dict) and source.get("type") == "text":
        piece.add_text(text_at(source, f"{path}.source", "data"))
    else:
        piece.add_other(kind)


def _add_result(piece: Piece, block: Fields, path: str) -> None:
    piece.role, piece.tool_call_id = Role.TOOL, name_at(block, path, "tool_use_id")
    piece.is_error = block.get("is_error") is True
    inner = block.get("content")
    if isinstance(inner, str):
        piece.add_text(inner)
        return
    for n, one in enumerate(objects_at(block, "content", f"{path}.")):
        if one.get("type") == "tool_result":
            raise InvalidInput(f"{path}.content[{n}].type", "must not be 'tool_result' again")
        _add_block(piece, one, f"{path}.content[{n}]")


def to_fields(messages: Sequence[Message], *, foreign_reasoning: bool = True) -> list[Fields]:
    """Return lines with messages of Anthropic, without a transcript's own fields."""
    return [
        {
            "type": message["role"],
            "message": {
                **message,
                "content": message["content"]
                if isinstance(message["content"], list) or message["role"] == "user"
                else [{"type": "text", "text": message["content"]}],
            },
        }
        for message in anthropic.to_fields(messages, foreign_reasoning=foreign_reasoning)
    ]
