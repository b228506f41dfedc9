"""Sessions and their histories, contexts and compactions, as callers see them.

All are copies: changing them changes no store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from memory.domain.corrections import explain_subscripts
from memory.domain.message import Message
from memory.domain.results import Answer, Page, ResultMixin
from memory.domain.shapes import ExportedMessages, export_messages
from memory.domain.versions import ABSENT, ExpectedVersion

STATUSES = ("active", "archived", "ended")


@dataclass(frozen=True, slots=True, repr=False)
class SessionInfo(ResultMixin):
    """A session and its counts.

    `message_count` is the length of its history, including the system message and
    summaries. Callers give the `title`. `preview` is the beginning of the user's first
    message, in one line of up to 120 characters. `version` counts the changes of the
    window, and `last_compaction_id` names the last compaction. Both are None in a list.
    There, the counts of a session that is being written to may be some seconds old.
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
    attributes_version: str
    """Changes with each `sessions.update`; pass it there as `expected_version`."""
    version: int | None = None
    last_compaction_id: str | None = None
    expires_at: datetime | None = None
    """After this moment the session is hidden, and a sweep erases it."""
    accessed_at: datetime | None = None
    """When a provider last read the session; None if no provider did."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """The first and last places of parts of the log that were lost.

    They were lost because the store was restored to an earlier moment. Only gaps are
    listed that the newest part of the log shows and this process has read. Empty in a
    list of sessions.
    """


@dataclass(frozen=True, slots=True, repr=False)
class SessionPage(Page[SessionInfo]):
    """A page of sessions in order. `cursor` gets the next page, if any."""

    sessions: list[SessionInfo]
    cursor: str | None = None


class SessionState(dict[str, Any]):
    """A copy of the state of a session, which is a JSON object.

    `version` changes with each change of the state. Pass it as `expected_version` of
    `Session.append`. It is `ABSENT` before the first change.
    """

    version: ExpectedVersion

    def __init__(
        self, state: Mapping[str, Any] = MappingProxyType({}), version: ExpectedVersion = ABSENT
    ) -> None:
        super().__init__(state)
        self.version = version

    def __reduce__(self) -> tuple[type[SessionState], tuple[dict[str, Any], ExpectedVersion]]:
        return SessionState, (dict(self), self.version)


class ErasedScope(int):
    """The number of erased entries of a scope, and the sessions that remain.

    `documents` is the number of erased documents. `sessions_left` has the ids of
    sessions that the erasure does not cover: those with the user of a `user:` scope, or
    the conversation of a `session:` scope. Erase them with `erase_user`, or delete the
    session. `scopes` counts the scopes of an erased subtree that had data; it is 1 for
    a scope. `held` has the ids of entries in other scopes that were derived from the
    erased ones, and that a legal hold keeps. They may hold the erased text.
    """

    sessions_left: tuple[str, ...]
    documents: int
    scopes: int
    held: tuple[str, ...]

    def __new__(
        cls,
        entries: int,
        sessions_left: Iterable[str] = (),
        documents: int = 0,
        scopes: int = 1,
        held: Iterable[str] = (),
    ) -> ErasedScope:
        made = super().__new__(cls, entries)
        made.sessions_left = tuple(sessions_left)
        made.documents = documents
        made.scopes = scopes
        made.held = tuple(held)
        return made

    def __reduce__(self) -> tuple[type[ErasedScope], tuple[Any, ...]]:
        return ErasedScope, (int(self), self.sessions_left, self.documents, self.scopes, self.held)

    def __repr__(self) -> str:
        left = f", sessions_left={list(self.sessions_left)}" if self.sessions_left else ""
        documents = f", documents={self.documents}" if self.documents else ""
        scopes = f", scopes={self.scopes}" if self.scopes != 1 else ""
        held = f", held={list(self.held)}" if self.held else ""
        return f"ErasedScope({int(self)}{left}{documents}{scopes}{held})"

    def __str__(self) -> str:
        return str(int(self))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "entries": int(self),
            "sessions_left": list(self.sessions_left),
            "documents": self.documents,
            "scopes": self.scopes,
            "held": list(self.held),
        }


@dataclass(frozen=True, slots=True, repr=False)
class DeletedEntries(ResultMixin):
    """The result of `entries.delete_many`.

    `deleted` is the number of deleted entries that matched the filter. `held` has the
    ids of matching entries that a legal hold keeps. `kept` and `is_complete` are as in
    `DeletedEntry`, for all deleted entries together.
    """

    deleted: int = 0
    held: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    is_complete: bool = True


class DeletedEntry(int):
    """The number of deleted entries, 1 or 0. It is true if there was one.

    `kept` has the ids of entries that were derived from it and remain: copies by
    `promote`, results of `compact`, and entries under legal hold. They may hold its
    text. `is_complete` is false if a store did not answer. Then `kept` may be
    incomplete, and a sweep deletes the rest.
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
class ErasedUser(ResultMixin):
    """The counts of what was erased with a user.

    They count whole sessions, messages in sessions of others, and entries and documents
    of the user's scope. `held` says what remains under legal hold: it has one sentence
    for each session, one for the entries, and one for each entry of another scope that
    was derived from erased data.
    """

    sessions: int
    messages: int
    entries: int
    held: list[str] = field(default_factory=list)
    documents: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class ErasedTenant(ResultMixin):
    """The counts of what was erased of a tenant.

    `scopes` counts scopes and conversations. `records` counts records by kind and by
    the store that was their home.
    """

    scopes: int
    records: dict[str, dict[str, int]] = field(default_factory=dict)


@explain_subscripts
@dataclass(frozen=True, slots=True, repr=False)
class HistoryItem(ResultMixin):
    """A message of a session's history.

    `number` counts from 1 in the order in which messages enter the history, and never
    changes.
    """

    message: Message
    number: int
    turn: int
    created_at: datetime
    updated_at: datetime
    is_summary: bool = False
    excluded: str | None = None
    """Why it left the window other than by a compaction; None if it did not."""
    archived_by: str | None = None
    """The id of the compaction that removed it from the window."""
    is_redacted: bool = False
    """Whether it was erased.

    Then it has no text, and only the id of its record. Only its number and its role are
    left.
    """


@explain_subscripts
@dataclass(frozen=True, slots=True, repr=False)
class FoundMessage(ResultMixin):
    """A message that a search found, and its session.

    `score` and `relevance` have the same meaning as for an entry (`FoundEntry`).
    """

    item: HistoryItem
    score: float | None
    """The final sort key. It does not increase within one result."""
    session_id: str
    explanation: dict[str, Any] = field(default_factory=dict)
    """How its rank came about, if the search was called with `explain=True`."""
    relevance: float | None = None
    """How well the message answers, from 0 to 1, comparable across questions.

    None if the embedder has no calibration.
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
        """The name in the message; None if it has none."""
        return self.item.message.name


class FoundMessages(Answer[FoundMessage]):
    """Messages that a search found, best first."""


@dataclass(frozen=True, slots=True, repr=False)
class HistoryPage(Page[HistoryItem]):
    """A page of a history in order. `cursor` gets the next page, if any."""

    items: list[HistoryItem]
    cursor: str | None = None

    def to(self, format: str, *, foreign_reasoning: bool = True, strict: bool = False) -> ExportedMessages:
        """Return the messages in a format; see `memory.formats.export_messages`.

        `without_equivalent` of the result lists the parts that the format cannot hold.

        Args:
            format: One of `memory.formats.FORMATS`, such as `"openai"`.
            foreign_reasoning: As in `export_messages`.
            strict: As in `export_messages`.
        """
        return export_messages(
            [item.message for item in self.items], format, foreign_reasoning=foreign_reasoning, strict=strict
        )


@explain_subscripts
@dataclass(frozen=True, slots=True, repr=False)
class Context(ResultMixin):
    """The messages to send to a model, in order, and the tokens of each.

    `left_out` counts the messages of the window that are not shown, because they are
    older or did not fit. `over_budget` is the number of tokens by which the messages
    that must be kept exceed the budget. `invalid` has the ids of tool results without a
    call, as far back as the read went. `interrupted` has the ids of calls among the
    messages that were never answered.
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
    """The layer of each message: `system`, `summary`, `recent` or `recalled`."""
    degraded: list[str] = field(default_factory=list)
    """Why the store could not be read. Usually empty.

    If it is not empty, this is the window as this process last read it, within the last
    minute.
    """
    window_version: str | None = None
    """Changes with each change of the window, also with edits of its messages.

    Pass it as `expected_version` of `session.replace`. None if only a part of the
    window was read.
    """

    @property
    def total_tokens(self) -> int:
        return sum(self.tokens) + self.tools_tokens

    def to(self, format: str, *, foreign_reasoning: bool = True, strict: bool = False) -> ExportedMessages:
        """Return the messages in a format; see `memory.formats.export_messages`.

        `without_equivalent` of the result lists the parts that the format cannot hold.

        Args:
            format: One of `memory.formats.FORMATS`, such as `"openai"`.
            foreign_reasoning: As in `export_messages`.
            strict: As in `export_messages`.
        """
        return export_messages(self.messages, format, foreign_reasoning=foreign_reasoning, strict=strict)


@dataclass(frozen=True, slots=True, repr=False)
class Compaction(ResultMixin):
    """A compaction: the messages that it removed from the window, and their summary."""

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
