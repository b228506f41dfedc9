"""The argument and the result of the caller's `on_window_exit`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from memory.domain.entry import EntryDraft
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, origins_of
from memory.domain.scope import Scope

ELSEWHERE: Literal["elsewhere"] = "elsewhere"
"""Replaces the callback: leaving messages wait for another process that has one."""
MOST_MADE = 100
"""The maximum number of entries of one call of the callback."""


@dataclass(frozen=True, slots=True)
class ExitedMessages:
    """Messages that left the window of a session, in order, as copies with their ids.

    They leave by a compaction, because `replace` or a provider drops them, or because
    the session ends. Each message is passed once. In a shared session, each user's
    messages are passed separately. `user` is who said them, or the session's user.

    `numbers` are the numbers of the messages in the session's history. `summary`
    replaces them in the window now. It is None if no summary does, or if the summary
    covers messages of others.
    """

    session_id: str
    user: str | None
    agent: str | None
    namespace: str | None
    messages: list[Message]
    numbers: list[int]
    summary: Message | None = None

    @property
    def scope(self) -> Scope:
        """The default scope of derived entries: the user's, else the session's."""
        return Scope.session(self.session_id) if self.user is None else Scope.user(self.user)


Made: TypeAlias = str | EntryDraft | Mapping[str, Any] | None
"""A text, a draft, or the arguments of `write`; None derives nothing.

The default scope is that of `ExitedMessages`.
"""
WindowExitFunction: TypeAlias = Callable[
    [ExitedMessages], Made | Sequence[Made] | Awaitable[Made | Sequence[Made]]
]
"""Derives entries from messages that left the window. It may be async.
"""


def drafts_of(made: object, leaving: ExitedMessages) -> list[EntryDraft]:
    """Check the result of a callback, and return it as drafts.

    Raises:
        InvalidInput: the callback returned something that is not an entry.
    """
    several = list(made) if isinstance(made, Sequence) and not isinstance(made, str) else [made]
    if len(several) > MOST_MADE:
        raise InvalidInput(
            "on_window_exit",
            f"returned {len(several)} entries. Return at most {MOST_MADE} per call",
        )
    return [_draft(one, leaving) for one in several if one is not None]


def _draft(made: object, leaving: ExitedMessages) -> EntryDraft:
    if isinstance(made, str):
        return _with_origin(EntryDraft(scope=leaving.scope, content=made), leaving)
    if isinstance(made, EntryDraft):
        made = dict(made)  # checked again: its lists may have changed
    if not isinstance(made, Mapping):
        raise InvalidInput(
            "on_window_exit",
            f"returned {type(made).__name__}. Return text, drafts, arguments of write, or a list of these",
        )
    given = {"scope": leaving.scope, **made}
    if isinstance(given["scope"], str):
        given["scope"] = Scope.parse(given["scope"])
    if given.get("key") is not None:
        raise InvalidInput(
            "key",
            "cannot be set on an entry that on_window_exit returns: each is stored exactly once without it."
            " Omit it",
        )
    return _with_origin(EntryDraft(**given), leaving)


def _with_origin(draft: EntryDraft, leaving: ExitedMessages) -> EntryDraft:
    """Return the draft with the session as its origin.

    Its metadata names the session, as promoted entries do. Its agent is the session's,
    unless it names one. Its origins include the sources of the messages.
    """
    heard = [one for message in leaving.messages for one in origins_of(message)]
    metadata = {"created_in_session_id": leaving.session_id} | draft.metadata
    return draft.model_copy(
        update={
            "metadata": metadata,
            "agent": draft.agent or leaving.agent,
            "origins": tuple(dict.fromkeys([*draft.origins, *heard])),
        }
    )
