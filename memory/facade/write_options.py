"""The options of a write, as callers of `write_with_report` pass them.

They are its arguments besides the text and the scope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict, cast

from memory.domain.corrections import unknown_arguments
from memory.domain.entry import EntryDraft, EntryType, PartialDraft
from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope
from memory.domain.versions import ExpectedVersion
from memory.facade.arguments import EntryData, Metadata, Moment, Vector, draft_of, function
from memory.orchestrator.enrichment.conflicts import Resolver
from memory.orchestrator.storage.deliveries import Consistency

IfExists: TypeAlias = Literal["error", "update", "replace", "keep"]
"""The behaviour of a write if its key has an entry already; see `Memory.write`."""


class EntryFields(TypedDict, total=False):
    """The arguments that become fields of the entry; see `Memory.write`."""

    type: EntryType | str
    title: str | None
    source: str | None
    tags: Sequence[str]
    metadata: Metadata | None
    data: EntryData | None
    vector: Vector | None
    searchable: bool
    confidence: float | None
    artifact_id: str | None
    created_at: Moment | None
    expires_at: Moment | timedelta | None
    refresh_on_read: bool
    conversation_id: str | None
    number_in_conversation: int | None
    speaker: str | None
    agent: str | None
    run: str | None
    origins: Sequence[str]
    key: str | None


class EntryPatch(TypedDict, total=False):
    """The arguments of `Memory.update` but the entry: changes and options."""

    content: str
    title: str | None
    type: EntryType | str
    source: str | None
    agent: str | None
    run: str | None
    origins: Sequence[str]
    tags: Sequence[str]
    metadata: Metadata
    data: EntryData | None
    vector: Vector | None
    searchable: bool
    confidence: float
    artifact_id: str | None
    expires_at: Moment | timedelta | None
    refresh_on_read: bool
    expected_version: str | None
    request_id: str | None
    consistency: Consistency | None


class WriteMode(TypedDict, total=False):
    """The arguments that say how to write an entry; see `Memory.write`."""

    revive: bool
    consistency: Consistency | None
    supersedes: str | Sequence[str]
    if_exists: IfExists
    expected_version: ExpectedVersion | None
    detect_conflicts: bool
    resolve: Resolver | None
    auto_tag: bool | None
    auto_supersede: bool | None
    request_id: str | None


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
    fields, mode = _split(options)
    return _kind(mode)(**{**fields, "scope": scope, "content": content}), mode


def split_draft(given: EntryDraft | Mapping[str, Any], for_all: WriteMode) -> tuple[EntryDraft, WriteMode]:
    """Split a draft, or the arguments of `write`, into a checked draft and the mode.

    `for_all` is the mode of the whole call.

    Raises:
        WrongArguments: `write` does not accept an argument.
    """
    if not isinstance(given, Mapping):
        return draft_of(given, _kind(for_all)), {}
    accepted = ("content", "scope", *WriteOptions.__annotations__)
    if unknown := [name for name in map(str, given) if name not in accepted]:
        raise unknown_arguments("Memory.write", unknown, accepted, first="content")
    fields, mode = _split(given)
    return draft_of(fields, _kind({**for_all, **mode})), mode


def _kind(mode: WriteMode) -> type[EntryDraft]:
    return PartialDraft if mode.get("if_exists") == "update" else EntryDraft


def _split(given: Mapping[str, Any]) -> tuple[dict[str, Any], WriteMode]:
    mode = {name: given[name] for name in WriteMode.__annotations__ if name in given}
    return {name: value for name, value in given.items() if name not in mode}, cast("WriteMode", mode)
