"""The options of a write, as callers of `write_with_report` pass them.

They are its arguments besides the text and the scope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict, cast

from memory.domain.corrections import unknown_arguments
from memory.domain.entry import EntryDraft, EntryType
from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope
from memory.facade.arguments import Metadata, Moment, draft_of, function
from memory.orchestrator.enrichment.conflicts import Resolver
from memory.orchestrator.storage.deliveries import Consistency

IfExists: TypeAlias = Literal["error", "replace"]
"""The behaviour of a write whose key holds an entry with other content."""


class EntryFields(TypedDict, total=False):
    """The arguments that become fields of the entry; see `Memory.write`."""

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


class WriteMode(TypedDict, total=False):
    """The arguments that say how to write an entry; see `Memory.write`."""

    revive: bool
    consistency: Consistency | None
    supersedes: str | Sequence[str]
    if_exists: IfExists
    detect_conflicts: bool
    resolve: Resolver | None
    auto_tag: bool | None
    auto_supersede: bool | None


class WriteOptions(EntryFields, WriteMode, total=False):
    """All arguments of `write` besides the text and the scope."""


def check_resolver(resolve: Resolver | None, *, detects: bool) -> None:
    """Raise `InvalidInput` unless `resolve` is None or a function that is used."""
    if resolve is None:
        return
    if not detects:
        raise InvalidInput("resolve", "needs detect_conflicts=True. Pass both, or leave it out")
    function("resolve", resolve)


def split_options(scope: Scope, content: str, options: WriteOptions) -> tuple[EntryDraft, WriteMode]:
    """Split the options of a write into a checked draft and the mode."""
    fields = {name: value for name, value in options.items() if name not in WriteMode.__annotations__}
    mode = {name: value for name, value in options.items() if name in WriteMode.__annotations__}
    return EntryDraft(**{**fields, "scope": scope, "content": content}), cast("WriteMode", mode)


def check_write_names(called: str, given: Mapping[str, Any], *more: str) -> None:
    """Refuse arguments that `write` does not accept, and that are none of `more`.

    Raises:
        WrongArguments: Its text names the right ones.
    """
    accepted = ("content", "scope", *WriteOptions.__annotations__, *more)
    if unknown := [name for name in map(str, given) if name not in accepted]:
        raise unknown_arguments(called, unknown, accepted, first="content")


def split_draft(given: EntryDraft | Mapping[str, Any]) -> tuple[EntryDraft, WriteMode]:
    """Split a draft, or the arguments of `write`, into a checked draft and the mode."""
    if not isinstance(given, Mapping):
        return draft_of(given), {}
    check_write_names("Memory.write", given)
    mode = {name: given[name] for name in WriteMode.__annotations__ if name in given}
    return draft_of({name: value for name, value in given.items() if name not in mode}), cast(
        "WriteMode", mode
    )
