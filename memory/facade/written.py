"""How one thing is remembered, as callers say it: what `remember` takes besides the
text and the scope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict, cast

from memory.domain.corrections import unknown_arguments
from memory.domain.entry import EntryDraft, EntryType
from memory.domain.scope import Scope
from memory.facade.arguments import Metadata, Moment, draft_of
from memory.orchestrator.checking import Decide
from memory.orchestrator.deliveries import Consistency

OnConflict: TypeAlias = Literal["refuse", "update"]
"""What becomes of a write under a key whose entry says something else."""


class HowWritten(TypedDict, total=False):
    """How, and not what; see `Memory.write`."""

    revive: bool
    consistency: Consistency | None
    supersedes: str | Sequence[str]
    on_conflict: OnConflict
    check: bool
    decide: Decide | None
    auto_tag: bool | None
    auto_supersede: bool | None


class WriteOptions(HowWritten, total=False):
    """All that `write` takes besides the text and the scope."""

    type: EntryType | str
    title: str | None
    source: str | None
    tags: Sequence[str]
    metadata: Metadata | None
    confidence: float | None
    artifact_id: str | None
    created_at: Moment | None
    expires_at: Moment | timedelta | None
    conversation_id: str | None
    number_in_conversation: int | None
    speaker: str | None
    agent: str | None
    run: str | None
    origins: Sequence[str]
    key: str | None


def divided(scope: Scope, content: str, options: WriteOptions) -> tuple[EntryDraft, HowWritten]:
    """What is to be written, checked, and how. Raises `InvalidInput` for a name that
    `write` does not take.
    """
    check_write_names("Memory.write_with_report", options, "wait")
    said = {name: value for name, value in options.items() if name not in HowWritten.__annotations__}
    how = {name: value for name, value in options.items() if name in HowWritten.__annotations__}
    return EntryDraft(**{**said, "scope": scope, "content": content}), cast("HowWritten", how)


def check_write_names(called: str, given: Mapping[str, Any], *more: str) -> None:
    """Refuse arguments that `write` does not accept, and that are none of `more`.

    Raises:
        WrongArguments: Its text names the right ones.
    """
    accepted = ("content", "scope", *WriteOptions.__annotations__, *more)
    if unknown := [name for name in map(str, given) if name not in accepted]:
        raise unknown_arguments(called, unknown, accepted, first="content")


def apart(given: EntryDraft | Mapping[str, Any]) -> tuple[EntryDraft, HowWritten]:
    """A draft, or the arguments of `write`: what is to be written, checked, and how, as
    far as it says.
    """
    if not isinstance(given, Mapping):
        return draft_of(given), {}
    check_write_names("Memory.write", given)
    how = {name: given[name] for name in HowWritten.__annotations__ if name in given}
    return draft_of({name: value for name, value in given.items() if name not in how}), cast(
        "HowWritten", how
    )
