"""Convert events of Google's Agent Development Kit: a content with an author."""

from __future__ import annotations

from collections.abc import Sequence

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.shapes import gemini
from memory.domain.shapes.fields import Fields, object_at
from memory.domain.shapes.pieces import Piece, kept_object, time_at

NAME = "adk"


def is_one(fields: Fields) -> bool:
    return (
        isinstance(fields.get("author"), str)
        and "role" not in fields
        and ({"invocation_id", "invocationId", "actions"} & fields.keys() != set() or _has_content(fields))
    )


def _has_content(fields: Fields) -> bool:
    content = fields.get("content")
    return isinstance(content, dict) and "parts" in content


def pieces(fields: Fields) -> list[Piece]:
    author = fields.get("author")
    if not isinstance(author, str) or not author:
        raise InvalidInput("author", "must name who made the event, such as 'user'")
    content = fields.get("content")
    if content is None:
        found = [Piece(Role.USER if author == "user" else Role.ASSISTANT)]
    else:
        given = object_at(content, "content")
        role = given.get("role") or ("user" if author == "user" else "model")
        found = gemini.contents({**given, "role": role}, ("content",))
    for piece in found:
        piece.at = time_at(fields, "timestamp")
        if piece.role is Role.ASSISTANT and author != "user":
            piece.name = author
    usage = fields.get("usage_metadata", fields.get("usageMetadata"))
    found[0].usage = kept_object(usage)
    return found


def to_fields(messages: Sequence[Message], *, foreign_reasoning: bool = True) -> list[Fields]:
    """Return events; each has an author, and no id, which ADK gives."""
    found: list[Fields] = []
    said = [message for message in messages if message.role is not Role.SYSTEM]
    for content in gemini.to_fields(said, foreign_reasoning=foreign_reasoning):
        answers = any("functionResponse" in part for part in content["parts"])
        author = "model" if content["role"] == "model" or answers else "user"
        found.append({"author": author, "content": content})
    names = [message.name for message in said if message.role is Role.ASSISTANT]
    spoken = [event for event in found if event["content"]["role"] == "model"]
    for event, name in zip(spoken, names, strict=True):
        event["author"] = name or "model"
    return found
