"""Messages of a conversation, as callers read and write them, from any framework."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field

from memory.domain import validation
from memory.domain.corrections import explain_guesses, explain_subscripts
from memory.domain.provenance import origin, signed_metadata, writers_in
from memory.domain.results import ShortRepr

CHANGEABLE = ("content", "reasoning", "tool_calls", "usage", "finish_reason", "metadata", "name")
"""The fields of a message that can be changed."""
SYSTEM = "system"
"""The id of a session's system message, in every session."""


class Role(StrEnum):
    """The role of the speaker of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolCall(validation.ValidatedModel):
    """A call of a tool by an assistant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str
    arguments: str = "{}"
    """JSON text exactly as the model wrote it, unchanged when it is read."""


@explain_subscripts
@explain_guesses
class Message(validation.ValidatedModel):
    """One message. It is a copy: changing it changes no store.

    `content` is text, or a list of parts if it is more than text. Each part is an
    object with a `type`, as it was given. In a tool's message, `tool_call_id` names the
    call that it answers, and `is_error` says that the tool failed. `is_summary` marks a
    summary of messages that left the window. `is_final` is false while
    `Session.stream` writes the message, and no compaction archives it then. `tokens` is
    the caller's token count, which replaces counting. `shape` names the format in which
    the message was appended. `extra` holds the other fields of that format, and exports
    return them. `raw` is the message in that format.
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
            (name, ShortRepr(value))
            for name, value in {**said, "tool_call_id": self.tool_call_id}.items()
            if value not in (None, [], "")
        ]

    @property
    def text(self) -> str:
        """The text of the message: its text parts in order, without other parts."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(text for part in self.content if (text := text_of(part)))

    @property
    def raw(self) -> dict[str, Any] | None:
        """A copy of the message in the format in which it was appended (`shape`).

        It is equal to what was appended, unless the message was changed since. If the
        original became several messages, this is only the part of this message.
        `Context.to`, `HistoryPage.to` and `Session.pop` return the whole original. It
        is None for a system message in a format without system messages.
        """
        from memory.domain.shapes.exporter import export_originals

        return next(iter(export_originals([self])), None)

    @property
    def said_or_thought(self) -> str:
        """The text of the message, or its reasoning if it has no text."""
        return self.text or self.reasoning or ""

    @property
    def placeholders(self) -> list[str]:
        """The paths of values that JSON cannot hold, outside of what a model is sent.

        A placeholder with the name of its type is stored for each.
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
        """Whether it has no content, no reasoning and no calls."""
        return not (self.content or self.reasoning or self.tool_calls)


def source_of(message: Message) -> str | None:
    """Return the source of a message: the `source` in its metadata.

    Without one, the source of a tool's message is `tool:` and the name of the tool.
    """
    said = message.metadata.get("source")
    if isinstance(said, str) and said.strip():
        return said[: validation.MAX_SOURCE_CHARS]
    return (
        f"tool:{message.name}"[: validation.MAX_SOURCE_CHARS]
        if message.role is Role.TOOL and message.name
        else None
    )


def origins_of(message: Message) -> list[str]:
    """Return the origins of a message: its source, and the callers of servers.

    A server notes the callers that wrote it in its metadata (see `signed_metadata`).
    """
    source = source_of(message)
    named = [*([] if source is None else [source]), *writers_in(message.metadata)]
    return [origin("source", one) for one in named]


def signed_message(message: Message, stored: Message | None, writer: str) -> Message:
    """Return a message with its writer noted after those of the stored message.

    A message that changes nothing of the stored one has no new writer.
    """
    writers = [] if stored is None else writers_in(stored.metadata)
    if stored is None or any(
        _unsigned_value(message, name) != _unsigned_value(stored, name) for name in CHANGEABLE
    ):
        writers = list(dict.fromkeys([*writers, writer]))
    return message.model_copy(update={"metadata": signed_metadata(message.metadata, writers)})


def _unsigned_value(message: Message, name: str) -> Any:
    value = getattr(message, name)
    return signed_metadata(value, ()) if name == "metadata" else value


def text_of(part: Mapping[str, Any]) -> str:
    """Return the text of a part; empty if the part is not text."""
    text = part.get("text")
    return text if isinstance(text, str) else ""
