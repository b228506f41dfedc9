"""Results of message providers, managers and `/mem` commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory.domain.message import Message
from memory.domain.results import ResultMixin
from memory.domain.shapes import export_messages


@dataclass(frozen=True, slots=True, repr=False)
class ProviderEntry(ResultMixin):
    """One session of a provider.

    `id` and `created_at` stay the same when the session is written again; `tags` and
    `agent` are those of the latest write. `accessed_at` is the time of the last read.
    `token_count` counts the messages without a summary.
    """

    id: str
    session_id: str
    messages: list[Message]
    created_at: datetime
    accessed_at: datetime | None = None
    agent: str | None = None
    tags: list[str] = field(default_factory=list)
    token_count: int | None = None

    def to(
        self, format: str, *, foreign_reasoning: bool = True, strict: bool = False
    ) -> list[dict[str, Any]]:
        """Return the messages in a format; see `memory.formats.export_messages`.

        Args:
            format: `"openai"`, `"anthropic"`, `"langchain"` or `"plain"`.
            foreign_reasoning: As in `export_messages`.
            strict: As in `export_messages`.
        """
        return export_messages(self.messages, format, foreign_reasoning=foreign_reasoning, strict=strict)


@dataclass(frozen=True, slots=True, repr=False)
class StoreEntry(ResultMixin):
    """A result of a store. The manager sets `store_name`."""

    content: str
    store_name: str | None = None
    metadata: dict[str, Any] | None = None
    score: None = None
    """Always None: results of several stores are concatenated, without a sort key."""
    relevance: float | None = None
    """How well the entry answers, from 0 to 1; None if the store does not say."""


@dataclass(frozen=True, slots=True, repr=False)
class Result(ResultMixin):
    """The answer to one command; `text` is what an agent reads, in its frame.

    `cacheable` says whether the answer may be shown again instead of running the
    command again. It is false for an error, an incomplete answer, and a command that
    changes something.
    """

    command: str
    text: str
    is_error: bool
    cacheable: bool
