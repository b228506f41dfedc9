"""Messages of a conversation, as callers see them and hand them in, whichever framework
they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memory.domain import validation
from memory.domain.corrections import explain_guesses, explain_subscripts
from memory.domain.shown import Brief

SYSTEM = "system"
"""The id of a session's system message, in every session (B14)."""


class Role(StrEnum):
    """Who speaks (C10)."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolCall(BaseModel):
    """What an assistant asks a tool to do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str
    arguments: str = "{}"
    """JSON text, as the model wrote it: given back to the letter."""


@explain_subscripts
@explain_guesses
class Message(BaseModel):
    """One message: a copy of your own, changing it changes no store (C12).

    `content` is text, or a list of parts where it is more than text; each part is an
    object with a `type`, as it was given. Of a tool's message `tool_call_id` names the
    call it answers, and `is_error` says that the tool failed. `is_summary` marks what
    stands for messages that left the window (B37). `is_final` is false while a message
    is being said (`Session.stream`): no compaction archives it. `tokens` is what it
    costs where the caller says so, which wins over counting (A114). What else a
    framework's message carried is in `extra`, and goes back to that framework (`shape`)
    with it.
    """

    model_config = ConfigDict(extra="forbid")

    id: str | None = None
    role: Role
    content: str | list[dict[str, Any]] = ""
    reasoning: str | None = None
    tool_calls: list[ToolCall] = Field(default_factory=list)
    tool_call_id: str | None = None
    is_error: bool = False
    is_summary: bool = False
    is_final: bool = True
    tokens: int | None = None
    name: str | None = None
    at: datetime | None = None
    usage: dict[str, Any] | None = None
    finish_reason: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    shape: str = "plain"
    extra: dict[str, Any] = Field(default_factory=dict)

    def __repr_args__(self) -> Any:
        said = {
            "id": self.id,
            "role": self.role.value,
            "content": self.text,
            "calls": [call.name for call in self.tool_calls],
        }
        return [
            (name, Brief(value))
            for name, value in {**said, "tool_call_id": self.tool_call_id}.items()
            if value not in (None, [], "")
        ]

    @property
    def text(self) -> str:
        """What it says, its parts of text in order; other parts say nothing here."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(text for part in self.content if (text := text_of(part)))

    @property
    def said_or_thought(self) -> str:
        """Its text; where it says nothing, its reasoning (B49)."""
        return self.text or self.reasoning or ""

    @property
    def placeholders(self) -> list[str]:
        """Paths of the values that JSON cannot hold, beside what a model is sent: a
        placeholder with the type's name is stored for each.
        """
        kept = dict(self.extra)
        given = kept.pop("fields", {})
        found = [
            *validation.placeholders("metadata", self.metadata),
            *validation.placeholders("usage", self.usage),
        ]
        return [*found, *validation.placeholders("", given), *validation.placeholders("extra", kept)]

    @property
    def is_empty(self) -> bool:
        """Whether it says and asks nothing."""
        return not (self.content or self.reasoning or self.tool_calls)


def source_of(message: Message) -> str | None:
    """Where what it says comes from: the `source` in its metadata; of a tool's message,
    where there is none, `tool:` and the tool's name.
    """
    said = message.metadata.get("source")
    if isinstance(said, str) and said.strip():
        return said[: validation.MAX_SOURCE_CHARS]
    return (
        f"tool:{message.name}"[: validation.MAX_SOURCE_CHARS]
        if message.role is Role.TOOL and message.name
        else None
    )


def text_of(part: Mapping[str, Any]) -> str:
    """The text of a part; empty where it is something else."""
    text = part.get("text")
    return text if isinstance(text, str) else ""
