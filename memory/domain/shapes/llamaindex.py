"""Convert `ChatMessage` of LlamaIndex: a role, blocks, and further arguments."""

from __future__ import annotations

from collections.abc import Sequence

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.shapes.content_parts import content_as, image_of
from memory.domain.shapes.fields import Fields
from memory.domain.shapes.pieces import Piece, has_role, name_at, objects_at, role_at, text_at

NAME = "llamaindex"
_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "chatbot": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}


def is_one(fields: Fields) -> bool:
    blocks = fields.get("blocks")
    return has_role(fields, _ROLES) and isinstance(blocks, list)


def pieces(fields: Fields) -> list[Piece]:
    role = role_at(fields, _ROLES)
    piece = Piece(role)
    for n, block in enumerate(objects_at(fields, "blocks")):
        _add_block(piece, block, f"blocks[{n}]")
    others = fields.get("additional_kwargs")
    if not isinstance(others, dict | None):
        raise InvalidInput("additional_kwargs", f"must be an object, not {type(others).__name__}")
    for n, call in enumerate(objects_at(others or {}, "tool_calls", "additional_kwargs.")):
        _add_call(piece, call, f"additional_kwargs.tool_calls[{n}]")
    if piece.role is Role.TOOL and others:
        piece.tool_call_id = text_at(others, "additional_kwargs", "tool_call_id") or None
        piece.name = text_at(others, "additional_kwargs", "name", "tool_name") or None
        piece.is_error = others.get("is_error") is True
    return [piece]


def _add_call(piece: Piece, call: Fields, path: str) -> None:
    """Add a call in the form of OpenAI or of Anthropic, if no block has it already."""
    inner = call.get("function")
    named = inner if isinstance(inner, dict) else call
    call_id = text_at(call, path, "id", "call_id", "tool_call_id")
    if not (call_id and any(known.id == call_id for known in piece.calls)):
        name = name_at(named, path, "name")
        piece.add_call(call_id or None, name, named.get("arguments", named.get("input")))


def _add_block(piece: Piece, block: Fields, path: str) -> None:
    kind = name_at(block, path, "block_type")
    if kind == "text":
        piece.add_text(text_at(block, path, "text"))
    elif kind == "thinking":
        piece.add_thought(text_at(block, path, "content"))
    elif kind == "tool_call":
        piece.add_call(
            text_at(block, path, "tool_call_id") or None,
            name_at(block, path, "tool_name"),
            block.get("tool_kwargs"),
        )
    elif kind == "image":
        url = block.get("url")
        piece.add_image(
            text_at(block, path, "image") or None,
            text_at(block, path, "image_mimetype") or None,
            url if isinstance(url, str) else None,
        )
    elif kind in ("citable", "citation"):
        inner = block.get("content" if kind == "citable" else "cited_content")
        for n, one in enumerate(inner if isinstance(inner, list) else [inner]):
            if isinstance(one, dict):
                _add_block(piece, one, f"{path}.content[{n}]")
    elif kind != "cache":
        piece.add_other(kind)


def to_fields(messages: Sequence[Message], *, foreign_reasoning: bool = True) -> list[Fields]:
    return [_message(message, foreign_reasoning) for message in messages]


def _message(message: Message, foreign_reasoning: bool) -> Fields:
    content = content_as(message, NAME)
    given = [{"type": "text", "text": content}] if isinstance(content, str) else content
    thought = (
        [{"block_type": "thinking", "content": message.reasoning}]
        if message.reasoning and foreign_reasoning
        else []
    )
    others: Fields = {}
    if message.tool_calls:
        others["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.role is Role.TOOL:
        others |= {
            name: value
            for name, value in (
                ("tool_call_id", message.tool_call_id),
                ("name", message.name),
                ("is_error", message.is_error),
            )
            if value
        }
    return {
        "role": message.role.value,
        "additional_kwargs": others,
        "blocks": [*thought, *(_block(part) for part in given if part.get("text") != "")],
    }


def _block(part: Fields) -> Fields:
    image = image_of(part)
    if image is not None and image.data is not None:
        return {"block_type": "image", "image": image.data, "image_mimetype": image.media_type}
    if image is not None:
        return {"block_type": "image", "url": image.url}
    return {"block_type": "text", "text": part["text"]}
