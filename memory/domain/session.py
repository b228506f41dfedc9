"""Sessions and what is read of them, as callers see it: copies of your own, changing
them changes no store (B17).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory.domain.corrections import explain_subscripts
from memory.domain.message import Message
from memory.domain.shapes import export_messages
from memory.domain.shown import Answer, Shown

STATUSES = ("active", "archived", "ended")
EXCLUDED = ("manual", "empty_response", "invalid_response", "invalid_input", "erased")
"""Why a message is no longer in the window (B28); callers may give reasons of their
own.
"""


@dataclass(frozen=True, slots=True, repr=False)
class SessionInfo(Shown):
    """A session and its counts. `message_count` is the length of its history, the
    system message and summaries included (B25).

    `title` is given by callers; `preview` is how the user's first message begins, in a
    line of up to 120 characters. `version` counts the changes of its window, and
    `last_compaction_id` names the last compaction: both are None in a list, where
    counts may be some seconds behind for a session that is being written to.
    """

    id: str
    status: str
    user: str | None
    agent: str | None
    namespace: str | None
    title: str | None
    preview: str | None
    tags: list[str]
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    message_count: int
    compaction_count: int
    version: int | None = None
    last_compaction_id: str | None = None
    expires_at: datetime | None = None
    """After this moment it is hidden, and erased by a sweep."""
    accessed_at: datetime | None = None
    """When a provider last read it (C9); None where none did."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Stretches of its log, first and last place of each, at which what stood was lost,
    as far as its newest part tells and this process has read: the store was set back to
    an earlier moment. Not told in a list.
    """


@dataclass(frozen=True, slots=True, repr=False)
class SessionPage(Shown):
    """Some sessions in order; `cursor` asks for those behind them, None where there are
    none.
    """

    sessions: list[SessionInfo]
    cursor: str | None = None


class ErasedScope(int):
    """How many entries of a scope were erased: a number, with what the erasure left.

    `sessions_left` has the ids of sessions that the erasure does not reach: those with
    the user of a `user:` scope, or the conversation of a `session:` scope.
    `erase_user`, or the deletion of the session, reaches them.
    """

    sessions_left: tuple[str, ...]

    def __new__(cls, entries: int, sessions_left: Iterable[str] = ()) -> ErasedScope:
        made = super().__new__(cls, entries)
        made.sessions_left = tuple(sessions_left)
        return made

    def __reduce__(self) -> tuple[type[ErasedScope], tuple[int, tuple[str, ...]]]:
        return ErasedScope, (int(self), self.sessions_left)

    def __repr__(self) -> str:
        left = f", sessions_left={list(self.sessions_left)}" if self.sessions_left else ""
        return f"ErasedScope({int(self)}{left})"

    def __str__(self) -> str:
        return str(int(self))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"entries": int(self), "sessions_left": list(self.sessions_left)}


class DeletedEntry(int):
    """How many entries were deleted, 1 or 0: true if there was one.

    `kept` has the ids of entries that were made of it and stay: copies by `promote`,
    results of `compact`, and what is under legal hold. They may hold its text.
    `is_complete` is false if a store did not answer: then `kept` may lack some, and a
    sweep deletes what remains.
    """

    kept: tuple[str, ...]
    is_complete: bool

    def __new__(cls, entries: int, kept: Iterable[str] = (), is_complete: bool = True) -> DeletedEntry:
        made = super().__new__(cls, entries)
        made.kept, made.is_complete = tuple(kept), is_complete
        return made

    def __reduce__(self) -> tuple[type[DeletedEntry], tuple[int, tuple[str, ...], bool]]:
        return DeletedEntry, (int(self), self.kept, self.is_complete)

    def __repr__(self) -> str:
        kept = f", kept={list(self.kept)}" if self.kept else ""
        return f"DeletedEntry({int(self)}{kept}{'' if self.is_complete else ', is_complete=False'})"

    def __str__(self) -> str:
        return str(int(self))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"deleted": bool(self), "kept": list(self.kept), "is_complete": self.is_complete}


@dataclass(frozen=True, slots=True, repr=False)
class ErasedUser(Shown):
    """What was erased with a user: so many sessions as a whole, messages in others'
    sessions, entries of the user's scope.

    `held` says what was left, since it is under legal hold: a sentence for each
    session, and for the entries.
    """

    sessions: int
    messages: int
    entries: int
    held: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, repr=False)
class ErasedTenant(Shown):
    """What was erased of a tenant: so many scopes and conversations, and how many
    records by kind and store, where they were at home.
    """

    scopes: int
    records: dict[str, dict[str, int]] = field(default_factory=dict)


@explain_subscripts
@dataclass(frozen=True, slots=True, repr=False)
class HistoryItem(Shown):
    """A message of a session's history. `number` counts from 1 as messages enter the
    history and never changes (B23).
    """

    message: Message
    number: int
    turn: int
    created_at: datetime
    updated_at: datetime
    is_summary: bool = False
    excluded: str | None = None
    """Why it left the window otherwise than by a compaction (B28); None where it did
    not.
    """
    archived_by: str | None = None
    """The compaction that took it out of the window (B36)."""
    is_redacted: bool = False
    """Whether it was erased: then it says nothing, has no id but that of its record,
    and its number and its role are all that is left of it.
    """


@explain_subscripts
@dataclass(frozen=True, slots=True, repr=False)
class FoundMessage(Shown):
    """A message that a search found, and its session. `score` and `relevance` mean what
    they mean for an entry (`FoundEntry`).
    """

    item: HistoryItem
    score: float | None
    """The final sort key. It does not increase within one result."""
    session_id: str
    explanation: dict[str, Any] = field(default_factory=dict)
    """How it came to its place, where that was asked for."""
    relevance: float | None = None
    """How well the message answers, from 0 to 1, comparable across questions. None
    where the embedder has no calibration.
    """

    @property
    def content(self) -> str:
        """The text of the message."""
        return self.item.message.text

    @property
    def id(self) -> str | None:
        """The id of the message."""
        return self.item.message.id

    @property
    def message(self) -> Message:
        return self.item.message

    @property
    def speaker(self) -> str | None:
        """Who said it, where the message has a name."""
        return self.item.message.name


class FoundMessages(Answer[FoundMessage]):
    """Messages that a search found, best first."""


@dataclass(frozen=True, slots=True, repr=False)
class HistoryPage(Shown):
    """Some messages of a history in order; `cursor` asks for those behind them, None
    where there are none.
    """

    items: list[HistoryItem]
    cursor: str | None = None

    def to(
        self, format: str, *, foreign_reasoning: bool = True, strict: bool = False
    ) -> list[dict[str, Any]]:
        """Return the messages in the format of a library: `openai`, `anthropic`,
        `langchain` or `plain`. See `memory.formats.export_messages`.
        """
        return export_messages(
            [item.message for item in self.items], format, foreign_reasoning=foreign_reasoning, strict=strict
        )


@explain_subscripts
@dataclass(frozen=True, slots=True, repr=False)
class Context(Shown):
    """What a model would be sent: messages in order, and what each takes.

    `left_out` is how many messages of the window are not shown: those that are older,
    or had no room. `over_budget` is by how many tokens what must be kept is too much;
    `invalid` are the ids of results, as far back as was looked, that answer no call,
    and `interrupted` those of calls among the messages that were never answered.
    """

    messages: list[Message]
    tokens: list[int]
    version: int
    left_out: int = 0
    over_budget: int = 0
    invalid: list[str] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)
    tools_tokens: int = 0
    layers: list[str] = field(default_factory=list)
    """Of each message: `system`, `summary` or `recent` (B51), or `recalled`."""
    degraded: list[str] = field(default_factory=list)
    """Why this is the window as this process last saw it, within the last minute, and
    not as it is: the store did not answer. Mostly empty.
    """

    @property
    def total_tokens(self) -> int:
        return sum(self.tokens) + self.tools_tokens

    def to(
        self, format: str, *, foreign_reasoning: bool = True, strict: bool = False
    ) -> list[dict[str, Any]]:
        """Return the messages in the format of a library: `openai`, `anthropic`,
        `langchain` or `plain`. See `memory.formats.export_messages`.
        """
        return export_messages(self.messages, format, foreign_reasoning=foreign_reasoning, strict=strict)


@dataclass(frozen=True, slots=True, repr=False)
class Compaction(Shown):
    """One compaction (B38): which messages it took out of the window, and what stands
    in their place.
    """

    id: str
    session_id: str
    compacted_at: datetime
    summary: Message
    archived_ids: list[str]
    messages_before: int
    messages_after: int
    reason: str
    tokens_before: int | None = None
    tokens_after: int | None = None
    trigger_id: str | None = None
