"""The derivation record: the sources from which an entry was made.

It is in one place, so that an erasure can find the entry and a commit can check its
sources.

A derived entry names its sources twice. Its body has them in full (`SOURCES`): entries
with version, scope and generation, messages with the incarnation of their session and
their numbers. The field `derived_from` has a reference for each, by which an erasure
finds the entry with one query. An entry inherits the sources of its sources, so that a
copy of a copy is found by the first original too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from memory.domain import ids
from memory.domain.json_values import is_same_json
from memory.orchestrator.storage.collections import DERIVED_FROM
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.orchestrator.storage.session_keys import scope_of
from memory.policies.entry_filters import shown_texts
from memory.ports.record import JsonValue, PendingStep, Record, Standing

CONFIRM_SOURCES = "confirm_sources"
"""The pending step of a derived entry until its sources have been checked after the
write. See `derivatives.py`.
"""
CONFIRMS = (PendingStep(CONFIRM_SOURCES, CONFIRM_SOURCES),)
SOURCES = "sources"
"""In the body of a derived entry: all of its sources."""


@dataclass(frozen=True, slots=True)
class EntrySource:
    """An entry from which another was made, as it was read."""

    entry_id: str
    version: int
    scope: str
    generation: int
    automatic: bool
    """Whether a rule, enrichment or an extraction made the derived entry, and no caller
    asked for it.
    """
    direct: bool = True
    moved: bool = False
    """Whether the derived entry took its place: the call deleted the source."""

    def references(self, tenant: str) -> list[str]:
        return [] if self.moved else [entry_reference(self.entry_id), scope_reference(tenant, self.scope)]

    def as_inherited(self, *, automatic: bool) -> EntrySource:
        return replace(self, direct=False, automatic=self.automatic and automatic)

    def to_json(self) -> dict[str, JsonValue]:
        flags: dict[str, JsonValue] = {
            name: True for name in ("automatic", "direct", "moved") if getattr(self, name)
        }
        return {
            "entry": self.entry_id,
            "version": self.version,
            "scope": self.scope,
            "generation": self.generation,
            **flags,
        }


@dataclass(frozen=True, slots=True)
class MessageSource:
    """Messages of one incarnation of a session.

    They are given by their places in the log, or by their numbers in the conversation.
    """

    session_id: str
    incarnation: str
    places: Places = NOWHERE
    numbers: tuple[int, int] = (1, 0)
    """The first and the last number."""
    direct: bool = True

    def references(self, tenant: str) -> list[str]:
        return [scope_reference(tenant, scope_of(self.session_id))]

    def as_inherited(self, *, automatic: bool) -> MessageSource:
        return replace(self, direct=False)

    def has(self, place: int, number: int) -> bool:
        return place in self.places or self.numbers[0] <= number <= self.numbers[1]

    def to_json(self) -> dict[str, JsonValue]:
        direct: dict[str, JsonValue] = {"direct": True} if self.direct else {}
        return {
            "session": self.session_id,
            "incarnation": self.incarnation,
            "places": self.places.to_json(),
            "numbers": list(self.numbers),
            **direct,
        }


Source = EntrySource | MessageSource


def is_unconfirmed(record: Standing) -> bool:
    """Return whether the sources of a derived entry have not been checked yet."""
    return any(owed.step == CONFIRM_SOURCES for owed in record.owed)


def entry_reference(entry_id: str) -> str:
    return f"e:{entry_id}"


def note_reference(entry_id: str) -> str:
    """Return the reference to an entry that only an advisor's note mentions."""
    return f"n:{entry_id}"


def scope_reference(tenant: str, scope: str) -> str:
    """Return the reference to all records of a scope or conversation."""
    return f"p:{ids.partition_digest(tenant, scope):x}"


def sources_of(record: Record) -> list[Source]:
    told: Any = record.body.get(SOURCES, ())
    return [_source(one) for one in told]


def _source(told: Mapping[str, Any]) -> Source:
    if "session" in told:
        first, last = told["numbers"]
        return MessageSource(
            told["session"],
            told["incarnation"],
            Places.from_json(told["places"]),
            (first, last),
            told.get("direct", False),
        )
    flags = {name: bool(told.get(name)) for name in ("automatic", "direct", "moved")}
    return EntrySource(told["entry"], told["version"], told["scope"], told["generation"], **flags)


def read_sources(told: object) -> tuple[Source, ...]:
    """Return the sources in an export, with generation 0: every erasure here is later.

    Raises:
        ValueError: The value is not in the form that an export writes.
    """
    try:
        found = [_source(one) for one in told]  # type: ignore[attr-defined]
        as_written = [source.to_json() for source in found] == told and all(
            _are_names(source) for source in found
        )
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ValueError("is not in the form that an export writes") from error
    if not as_written:
        raise ValueError("is not in the form that an export writes")
    return tuple(
        replace(source, generation=0) if isinstance(source, EntrySource) else source for source in found
    )


def _are_names(source: Source) -> bool:
    named = (
        (source.entry_id, source.scope)
        if isinstance(source, EntrySource)
        else (source.session_id, source.incarnation)
    )
    return all(isinstance(name, str) for name in named)


def with_sources(record: Record, sources: Iterable[Source]) -> Record:
    """Return the record with these sources added to its own."""
    every = [*sources_of(record), *sources]
    return _with_exact_sources(record, every) if every else record


def as_moved(record: Record, entry_ids: Collection[str], moved: bool) -> Record | None:
    """Return the record with these sources marked as moved, or as not moved.

    None if they are marked so already.
    """
    every = sources_of(record)
    told = [
        replace(one, moved=moved)
        if isinstance(one, EntrySource) and one.direct and one.entry_id in entry_ids
        else one
        for one in every
    ]
    return None if told == every else _with_exact_sources(record, told)


def _with_exact_sources(record: Record, every: Sequence[Source]) -> Record:
    """Return the record with exactly these sources."""
    notes = [one for one in _references_in(record) if one.startswith("n:")]
    references = [reference for source in every for reference in source.references(record.key.tenant)]
    body: dict[str, JsonValue] = {
        **record.body,
        SOURCES: [source.to_json() for source in dict.fromkeys(every)],
    }
    fields = {**record.fields, DERIVED_FROM: tuple(dict.fromkeys([*notes, *references])) or None}
    return replace(record, fields=fields, body=body)


def with_notes(record: Record, entry_ids: Sequence[str]) -> Record:
    """Return the record with notes that mention exactly these entries."""
    others = [one for one in _references_in(record) if not one.startswith("n:")]
    references = (*others, *map(note_reference, entry_ids))
    return (
        replace(record, fields={**record.fields, DERIVED_FROM: references or None})
        if references or others
        else record
    )


def _references_in(record: Record) -> Sequence[str]:
    return record.fields.get(DERIVED_FROM) or ()  # type: ignore[return-value]


def made_of(record: Record, sources: Sequence[Record], *, automatic: bool, moved: bool = False) -> Record:
    """Return the record with these entries, and their own sources, as its sources."""
    named: list[Source] = []
    for source in sources:
        named.append(
            EntrySource(
                source.key.id, source.version, source.scope, source.generation or 0, automatic, moved=moved
            )
        )
        named += [one.as_inherited(automatic=automatic) for one in sources_of(source)]
    return with_sources(record, named)


def still_says(now: Record, then: Record) -> bool:
    """Return whether an entry still has the content that was read.

    Added tags or metadata do not matter.
    """
    if now.version == then.version:
        return True
    kept = all(shown_texts(now).get(name) == shown_texts(then).get(name) for name in ("title", "content"))
    kept = kept and is_same_json(now.body.get("data"), then.body.get("data"))
    tags = set(_tags(then)) <= set(_tags(now))
    before, after = _metadata(then), _metadata(now)
    return (
        kept
        and tags
        and all(name in after and is_same_json(after[name], value) for name, value in before.items())
    )


def _tags(record: Record) -> Sequence[str]:
    return record.fields.get("tags") or ()  # type: ignore[return-value]


def _metadata(record: Record) -> Mapping[str, Any]:
    return record.body.get("metadata") or {}


_LEARNT: ContextVar[tuple[object, str, MessageSource] | None] = ContextVar("learnt", default=None)


@contextmanager
def track_source(placement: object, tenant: str, source: MessageSource) -> Iterator[None]:
    """Treat the writes in this context as learnt from these messages.

    It applies to writes into the stores of this placement.
    """
    token = _LEARNT.set((placement, tenant, source))
    try:
        yield
    finally:
        _LEARNT.reset(token)


def tracked_source(placement: object, tenant: str) -> MessageSource | None:
    """Return the messages from which current writes are learnt, or None."""
    learnt = _LEARNT.get()
    return None if learnt is None or learnt[0] is not placement or learnt[1] != tenant else learnt[2]
