"""The formats whose originals are kept whole, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from memory.domain.message import Message
from memory.domain.shapes import (
    adk,
    bedrock,
    claude,
    gemini,
    llamaindex,
    ollama,
    pydantic_ai,
    responses,
    vercel,
)
from memory.domain.shapes.fields import Fields
from memory.domain.shapes.pieces import Piece


class Format(Protocol):
    """A module that converts one format."""

    NAME: str

    def is_one(self, fields: Fields) -> bool:
        """Return whether only this format has such a message."""
        ...

    def pieces(self, fields: Fields) -> list[Piece]:
        """Return the messages of an original.

        Raises:
            InvalidInput: This is no message of the format; it names the wrong field.
        """
        ...

    def to_fields(self, messages: Sequence[Message], *, foreign_reasoning: bool = True) -> list[Fields]:
        """Return messages of another format, or changed ones, in this format."""
        ...


_MODULES: tuple[Format, ...] = (
    claude,
    adk,
    pydantic_ai,
    llamaindex,
    vercel,
    gemini,
    bedrock,
    responses,
    ollama,
)
KEPT_WHOLE: dict[str, Format] = {module.NAME: module for module in _MODULES}
"""In the order in which they are tried."""
_SIGNS = frozenset({"type", "author", "kind", "blocks", "parts", "images", "thinking"})
"""Such a message has one of these fields, or a list as content."""
FORMATS = (
    "openai",
    "openai_responses",
    "anthropic",
    "langchain",
    *sorted(KEPT_WHOLE.keys() - {"openai_responses"}),
    "plain",
)


def recognise(fields: Fields) -> str | None:
    """Return the name of the format that alone has such a message; None if none has."""
    if _SIGNS.isdisjoint(fields) and not isinstance(fields.get("content"), list):
        return None
    return next((name for name, module in KEPT_WHOLE.items() if module.is_one(fields)), None)
