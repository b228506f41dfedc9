"""The file format of imports and exports.

A file has one JSON object per line (JSON Lines), or one JSON array of objects, in
UTF-8. An object is a message:

    {"role": "user", "content": "...", "time": "2026-01-31T09:30:00Z", "id": "m1"}

`role` and `content` are required.

- The creation time is the first of `at`, `time`, `timestamp`, `created_at`,
  `createdAt`, `create_time`, `ts` and `date`. It is ISO 8601 with a zone, or seconds
  since 1970; numbers above 10^12 are milliseconds.
- The entry's id derives from `id`, so a repeated import writes nothing twice. If the
  message names a conversation, the id derives from it too, because many exports number
  the messages of each conversation from 1. Without an `id`, it derives from the file's
  name and the message's position. The entry has no `key`.
- `tags`, `metadata`, `type`, `title`, `source` and `expires_at` are those of the entry.
- The role and all other fields are kept in the entry's metadata. Nothing is dropped.

The content is the speaker's own words. `speaker` or `name` says who that is.
`conversation_id` or `session_id` names the conversation. The default is the session
that the message goes to, or the file. Messages of a conversation are numbered 1, 2, 3
in the order of the file, unless they have a `number_in_conversation`. The entry has
these as fields, and its metadata keeps the values of the file. They are ignored when a
repeated message is recognised, because a file may contain the beginning of another.

An object can also be a line of an export, marked by its `format`:

- an entry, or one of its kept versions after it;
- a relation;
- an artifact and a chunk of its bytes, before entries that point to it (see
  `artifact_lines.py`);
- a document, which keeps its scope and key;
- a record of another kind. Sessions and events of their logs keep the session's id.

Unless an import keeps ids, an entry gets a new one. It derives from the key of the
entry, or from the old id of an entry without a key. References in the file are changed
to the new id. Kept versions are left out.
References to entries that are not in the file are provenance and stay unchanged.

Errors describe the problem of a line without quoting it.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import IO, Any, TypeVar

from memory.domain import validation
from memory.domain.document import Document, check_key, check_value
from memory.domain.enrichment import NOTES, EnrichmentNotes
from memory.domain.entry import Entry, EntryDraft, ImportedDraft, MessageDraft
from memory.domain.errors import InvalidInput
from memory.domain.ids import digest_of, is_id, keyed_id, partition_digest
from memory.domain.json_values import RepeatedKey, distinct_keys
from memory.domain.relation import Relation
from memory.domain.relation_labels import LABELS
from memory.domain.scope import Scope, ScopeKind
from memory.domain.scratchpad import Scratchpad
from memory.domain.shapes import native
from memory.domain.time import micros
from memory.domain.versions import check_version, version_text
from memory.facade.arguments import agent_of, length
from memory.facade.transfer.artifact_lines import (
    ARTIFACT_FORMAT,
    CHUNK_FORMAT,
    ArtifactLine,
    ChunkLine,
    artifact_line,
    chunk_line,
)
from memory.orchestrator.conversations.window_exits import LEAVE, is_to_be_asked
from memory.orchestrator.documents.documents import PutRequest
from memory.orchestrator.entries.relations import SAID_OF_LINKS
from memory.orchestrator.entries.scratchpads import CAP
from memory.orchestrator.entries.writing import check_not_later
from memory.orchestrator.storage.collections import (
    ARTIFACTS,
    ENTRIES,
    MANIFESTS,
    MESSAGES,
    RUNS,
    SESSIONS,
    TASKS,
)
from memory.orchestrator.storage.entry_records import WRITTEN_AS, entry_of, own_vector
from memory.orchestrator.storage.kinds import KINDS, Kind
from memory.orchestrator.storage.session_keys import scope_of
from memory.orchestrator.storage.sources import SOURCES, MessageSource, Source, read_sources
from memory.orchestrator.transfer.records import (
    SAID,
    ImportedEntry,
    check_storable,
    exported_kinds,
    id_here,
    noted_of,
    stores_problem,
)
from memory.orchestrator.transfer.session_import import SessionMapping, check_carried, incarnation_here
from memory.policies.routing import TIERS
from memory.ports import codec
from memory.ports.collections import Collection
from memory.ports.record import JsonValue, Key, PendingStep, Record

FORMAT = "memory-entry/3"
"""The format of an exported entry.

The number grows if fields are added or a field changes its meaning. Earlier numbers can
still be read.
"""
VERSION_FORMAT = "memory-version/2"
"""The format of a kept version of an exported entry."""
RELATION_FORMAT = "memory-relation/1"
SCRATCHPAD_FORMAT = "memory-scratchpad/1"
"""The format of an exported scratchpad."""
DOCUMENT_FORMAT = "memory-document/1"
"""The format of an exported document, with its value."""
RECORD_FORMAT = "memory-record/2"
"""The format of an exported record of any other kind."""

OF_SESSIONS = frozenset({MESSAGES, ARTIFACTS, TASKS, RUNS})
"""Kinds that need their session, and are referred to by it alone."""

_READ = {
    FORMAT: 3,
    "memory-entry/2": 2,
    "memory-entry/1": 1,
    VERSION_FORMAT: 2,
    "memory-version/1": 1,
    RELATION_FORMAT: 1,
    SCRATCHPAD_FORMAT: 1,
    DOCUMENT_FORMAT: 1,
    RECORD_FORMAT: 2,
    "memory-record/1": 1,
}
_READ |= {ARTIFACT_FORMAT: 1, CHUNK_FORMAT: 1}
_OWN = ("tags", "type", "title", "source", "expires_at")
_CONVERSATION = ("conversation_id", "session_id")
_SPEAKER = ("speaker", "name")
_OF_A_RECORD = ("id", "scope", "created_at", "updated_at", "expires_at", "fields", "body", "texts")
_STORES_OWN = (
    "format",
    "id",
    "updated_at",
    "version",
    "tier",
    "number",
    "replaced_version",
    "noted",
    "artifact_was",
    "sources",
)  # fields of an exported entry that the new store sets itself
_LAST_VERSION = micros(datetime(9999, 12, 31, tzinfo=UTC))


class BadLine(InvalidInput):
    """An object of a file that cannot be imported, with its line."""

    def __init__(self, name: str, line: int, problem: str) -> None:
        super().__init__(f"{name} line {line}", problem)
        self.line = line


@dataclass(frozen=True, slots=True)
class MessageLine:
    """A validated message or exported entry.

    `again` says that the file contains the same one above.
    """

    line: int
    draft: EntryDraft
    again: bool = False
    as_it_was: ImportedEntry | None = None
    """Set for an exported entry that keeps its id."""

    def pointing_to(self, artifact_id: str | None) -> MessageLine:
        """Return the entry with the new id of its artifact; None for no artifact."""
        draft = _pointing_to(self.draft, artifact_id)
        return replace(
            self,
            draft=draft,
            as_it_was=None if self.as_it_was is None else _as_pointing_to(self.as_it_was, artifact_id),
        )


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A validated kept version of the entry with this id in this scope."""

    line: int
    entry_id: str
    scope: Scope
    as_it_was: ImportedEntry

    @property
    def draft(self) -> ImportedDraft:
        return self.as_it_was.draft

    def pointing_to(self, artifact_id: str | None) -> VersionLine:
        """See `MessageLine.pointing_to`."""
        return replace(self, as_it_was=_as_pointing_to(self.as_it_was, artifact_id))


@dataclass(frozen=True, slots=True)
class RelationLine:
    """A validated relation. It has old ids until `IdMapping.link` replaces them."""

    line: int
    source_id: str
    label: str
    target_id: str
    created_at: datetime
    said: Mapping[str, JsonValue] | None = None
    """Who made the relation: an advisor, with its reason, or a caller of a server."""


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A validated record of another kind.

    Its ids are old ones until `IdMapping.row` replaces them. A version of 0 means that
    the line has none.
    """

    line: int
    kind: Kind
    record: Record

    @property
    def name(self) -> str:
        """The name in references: the old id, or the scope of a session."""
        return self.record.scope if self.kind.conversational else self.record.key.id


@dataclass(frozen=True, slots=True)
class ScratchpadLine:
    """A validated scratchpad."""

    line: int
    agent: str | None
    content: str


@dataclass(frozen=True, slots=True)
class DocumentLine:
    """A validated document of the scope into which it is imported."""

    line: int
    put: PutRequest


@dataclass(frozen=True, slots=True)
class ForeignLine:
    """A line that cannot keep its id in this tenant and scope, with the reason.

    Items that refer to it are refused too.
    """

    line: int
    collection: Collection
    id: str
    problem: str


Item = (
    MessageLine
    | VersionLine
    | RelationLine
    | RecordLine
    | ScratchpadLine
    | DocumentLine
    | ArtifactLine
    | ChunkLine
    | ForeignLine
)


Draft = TypeVar("Draft", bound=EntryDraft)


def _pointing_to(draft: Draft, artifact_id: str | None) -> Draft:
    was = {"artifact_was": draft.artifact_id} if isinstance(draft, ImportedDraft) else {}
    return draft.model_copy(update={"artifact_id": artifact_id, **was})


def _as_pointing_to(one: ImportedEntry, artifact_id: str | None) -> ImportedEntry:
    return replace(one, draft=_pointing_to(one.draft, artifact_id))


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to read the lines of a file.

    - `scope`: where everything goes, including exported entries. Without it, those keep
      their own scope.
    - `messages_to`: where messages go without `scope`.
    - `same_ids_of`: the tenant in which exported records keep their ids.
    - `latest`: entries with a later time are bad, and entries that no store accepts. A
      second read omits it, because the entries are already checked.
    - `unread`: the problems of lines that could not be copied into the file.
    """

    scope: Scope | None = None
    messages_to: Scope | None = None
    same_ids_of: str | None = None
    latest: datetime | None = None
    unread: Mapping[int, str] | None = None


def read(
    stream: IO[bytes], name: str, how: ImportOptions = ImportOptions(), since: int = 1
) -> Iterator[Item | BadLine]:
    """Yield the items of a file from line `since` on, validated as a write does.

    A bad item is replaced by its `BadLine`.

    Raises:
        BadLine: If the rest of the file cannot be read.
    """
    seen: dict[tuple[str, str | None], tuple[int, bytes]] = {}
    heard = Counter[tuple[str, str | None]]()
    for position, (line, found) in enumerate(objects(stream, name, since), start=1):
        if isinstance(found, BadLine):
            yield BadLine(name, line, how.unread[line]) if how.unread and line in how.unread else found
            continue
        try:
            item = _item(found, line, (name, position), how)
            if how.latest is not None and isinstance(item, MessageLine | VersionLine):
                _check_entry(item, how.latest)
        except InvalidInput as exc:
            yield BadLine(name, line, _problem_without_values(exc, found))
            continue
        if isinstance(item, MessageLine):
            said = blake2b(json.dumps(found, sort_keys=True).encode(), digest_size=16).digest()
            first_line, first = seen.setdefault((item.draft.scope.text, item.draft.key), (line, said))
            if first != said:
                yield BadLine(
                    name,
                    line,
                    f"id: {found.get('id')!r} is already used on line {first_line} for other content. Change"
                    " one of the ids",
                )
                continue
            item = replace(item, again=first_line != line)
            if isinstance(item.draft, MessageDraft) and not item.again:
                item = replace(item, draft=_with_number(item.draft, heard))
        yield item


def _with_number(draft: MessageDraft, heard: Counter[tuple[str, str | None]]) -> MessageDraft:
    """Set the message's number in its conversation, unless it has one.

    `heard` counts the messages of each conversation so far.
    """
    conversation = draft.scope.text, draft.conversation_id
    heard[conversation] += 1
    return (
        draft
        if draft.number_in_conversation is not None
        else draft.model_copy(update={"number_in_conversation": heard[conversation]})
    )


def _check_entry(item: MessageLine | VersionLine, latest: datetime) -> None:
    """Raise `InvalidInput` if a write would refuse the entry.

    It checks the time of a message, and whether a store accepts an exported entry. Such
    an entry keeps its moments, also those that lie ahead.
    """
    if isinstance(item.draft, ImportedDraft):
        check_storable(item.draft, item.as_it_was)
    else:
        check_not_later(item.draft, latest)


def last_moment(item: Item) -> datetime | None:
    """Return the latest moment at which the item was written; None if it has none."""
    if isinstance(item, RecordLine):
        return max(item.record.created_at, item.record.updated_at)
    if not isinstance(item, MessageLine | VersionLine) or not isinstance(item.draft, ImportedDraft):
        return None
    kept = item.as_it_was
    moments = (item.draft.created_at, item.draft.valid_from, None if kept is None else kept.updated_at)
    return max((one for one in moments if one is not None), default=None)


def _item(found: Mapping[str, Any], line: int, place: tuple[str, int], how: ImportOptions) -> Item:
    scope, same_ids_of = how.scope, how.same_ids_of
    form = found.get("format")
    if form is None or "role" in found:
        return MessageLine(line, _message_draft(found, place, scope or how.messages_to))
    if form not in _READ if isinstance(form, str) else True:
        raise InvalidInput("format", f"is not known; this version reads {', '.join(_READ)}")
    if form == RELATION_FORMAT:
        return _link(found, line)
    if form == SCRATCHPAD_FORMAT:
        return _pad(found, line)
    if form == DOCUMENT_FORMAT:
        return _document(found, line, scope)
    if form == CHUNK_FORMAT:
        return chunk_line(found, line)
    if form == ARTIFACT_FORMAT:
        artifact = artifact_line(found, line)
        return (
            artifact
            if same_ids_of is None
            else _unless_foreign(artifact, MANIFESTS, artifact.id, same_ids_of, artifact.scope)
        )
    if str(form).startswith("memory-record/"):
        row = _row(found, line, scope, versioned=form == RECORD_FORMAT)
        return (
            row
            if same_ids_of is None
            else _unless_foreign(row, row.kind.collection, row.record.key.id, same_ids_of, row.record.scope)
        )
    if str(form).startswith("memory-version/"):
        draft = _entry_draft(found, scope)
        version = VersionLine(line, str(draft.key), draft.scope, _as_it_was(found, draft))
        return (
            version
            if same_ids_of is None
            else _unless_foreign(version, ENTRIES, version.entry_id, same_ids_of, draft.scope.text)
        )
    draft = _entry_draft(found, scope)
    if same_ids_of is None:
        return MessageLine(line, draft)
    message = MessageLine(line, draft, as_it_was=_as_it_was(found, draft))
    return _unless_foreign(message, ENTRIES, str(draft.key), same_ids_of, draft.scope.text)


def _unless_foreign(
    item: MessageLine | VersionLine | RecordLine | ArtifactLine,
    collection: Collection,
    item_id: str,
    tenant: str,
    scope: str,
) -> Item:
    """Return the item if its id belongs to this partition (see `memory.domain.ids`)."""
    if not is_id(item_id):
        return ForeignLine(
            item.line,
            collection,
            item_id,
            "id: was not assigned by a store. Import without same_ids (--same-ids) to assign a new one",
        )
    if digest_of(item_id) != partition_digest(tenant, scope):
        return ForeignLine(
            item.line,
            collection,
            item_id,
            "id: belongs to another tenant or scope. Import without same_ids (--same-ids) to assign a"
            " new one",
        )
    return item


class IdMapping:
    """The ids in a file, and their replacements in this tenant."""

    def __init__(self, tenant: str, *, same: bool) -> None:
        self._tenant = tenant
        self._same = same
        self._scopes: dict[Collection, dict[str, str]] = {}
        self._identities: dict[str, str] = {}
        self._refused: dict[Collection, set[str]] = {}
        self._moving = SessionMapping(tenant)

    def note(self, item: Item) -> None:
        """Note the id of an item."""
        if isinstance(item, MessageLine) and isinstance(item.draft, ImportedDraft):
            self._scopes.setdefault(ENTRIES, {})[str(item.draft.key)] = item.draft.scope.text
            self._identities[str(item.draft.key)] = str(item.draft.identity)
        elif (
            isinstance(item, RecordLine) and item.kind.collection not in OF_SESSIONS
        ):  # which nothing refers to
            self._scopes.setdefault(item.kind.collection, {})[item.name] = item.record.scope
            if item.kind.conversational:
                self._moving.note(item.record)
        elif isinstance(item, ForeignLine):
            self.refuse(item.collection, item.id)

    def refuse(self, collection: Collection, old: str) -> None:
        """Refuse an id, and so the items that refer to it."""
        self._refused.setdefault(collection, set()).add(old)

    def missing_id(self, item: Item) -> str | None:
        """Return the first required id of an item that the file lacks so far."""
        return next(
            (
                old
                for collection, old in _needs(item)
                if not self._has(collection, old) and not self._is_refused(collection, old)
            ),
            None,
        )

    def refused_id(self, item: Item) -> str | None:
        """Return the first required id of an item that was refused."""
        return next((old for collection, old in _needs(item) if self._is_refused(collection, old)), None)

    def message(self, item: MessageLine) -> MessageLine:
        """Return the message with its references replaced by new ids."""
        if self._same or not isinstance(item.draft, ImportedDraft):
            return item
        draft, changed = item.draft, dict[str, Any]()
        if draft.promoted_from_id is not None:
            changed["promoted_from_id"] = self._new(ENTRIES, draft.promoted_from_id)
        if draft.compacted_from_ids is not None:
            changed["compacted_from_ids"] = tuple(
                self._new(ENTRIES, source) for source in draft.compacted_from_ids
            )
        if draft.contributors is not None:
            changed["contributors"] = tuple(
                c.model_copy(update={"entry_id": self._new(ENTRIES, c.entry_id)}) for c in draft.contributors
            )
        changed["sources"] = tuple(self._source(source) for source in draft.sources)
        return replace(item, draft=draft.model_copy(update=changed))

    def _source(self, source: Source) -> Source:
        """Return a source of an entry with its new ids."""
        if isinstance(source, MessageSource):
            return replace(
                source,
                incarnation=incarnation_here(self._tenant, scope_of(source.session_id), source.incarnation),
            )
        scope = self._scopes.get(ENTRIES, {}).get(source.entry_id, source.scope)
        return replace(source, entry_id=self._new(ENTRIES, source.entry_id), scope=scope)

    def link(self, item: RelationLine) -> RelationLine:
        """Return the relation with the new ids of its entries."""
        return replace(
            item, source_id=self._new(ENTRIES, item.source_id), target_id=self._new(ENTRIES, item.target_id)
        )

    def row(self, item: RecordLine) -> RecordLine:
        """Return the record as this tenant stores it."""
        if item.kind.conversational:
            return replace(item, record=self._moving.here(item.record))
        record, parents = item.record, KINDS.parents(item.kind.collection)
        named = {
            field: self._new(parents[field], str(record.fields[field]))
            for field in parents
            if record.fields.get(field) is not None
        }
        key = Key(self._tenant, self._new(item.kind.collection, record.key.id, item.kind))
        return replace(item, record=replace(record, key=key, fields={**record.fields, **named}))

    def _has(self, collection: Collection, old: str) -> bool:
        return old in self._scopes.get(collection, ())

    def _is_refused(self, collection: Collection, old: str) -> bool:
        return old in self._refused.get(collection, ())

    def _new(self, collection: Collection, old: str, kind: Kind | None = None) -> str:
        scope = self._scopes.get(collection, {}).get(old)
        if self._same or scope is None:
            return old
        return (
            keyed_id(self._tenant, scope, self._identities.get(old, old))
            if collection is ENTRIES
            else id_here(self._tenant, kind or KINDS.of(collection), scope, old)
        )


def _needs(item: Item) -> list[tuple[Collection, str]]:
    """Return the collections and old ids that an item requires."""
    if isinstance(item, VersionLine):
        return [(ENTRIES, item.entry_id)]
    if isinstance(item, RelationLine):
        return [(ENTRIES, item.source_id), (ENTRIES, item.target_id)]
    if isinstance(item, RecordLine) and item.kind.collection in OF_SESSIONS:
        return [(SESSIONS, item.name)]
    if isinstance(item, ArtifactLine):
        return [(SESSIONS, item.scope)]
    if isinstance(item, RecordLine):
        parents = KINDS.parents(item.kind.collection)
        return [
            (parents[name], str(item.record.fields[name]))
            for name in parents
            if item.record.fields.get(name) is not None
        ]
    return []


def exported_scratchpad(pad: Scratchpad) -> dict[str, Any]:
    """Return the line of a scratchpad, with its content as one text."""
    return {"format": SCRATCHPAD_FORMAT, "agent": pad.agent, "content": pad.content}


def exported_document(document: Document) -> dict[str, Any]:
    """Return the line of a document. Bytes are base64."""
    value = b64encode(document.value).decode() if document.form == "bytes" else document.value
    expires_at = document.expires_at
    return {
        "format": DOCUMENT_FORMAT,
        "scope": document.scope,
        "key": document.key,
        "form": document.form,
        "value": value,
        "created_at": document.created_at.isoformat(),
        **({"metadata": document.metadata} if document.metadata else {}),
        **({} if expires_at is None else {"expires_at": expires_at.isoformat()}),
        **({} if document.lifetime is None else {"lifetime": document.lifetime.total_seconds()}),
    }


def exported_relation(relation: Relation) -> dict[str, Any]:
    """Return the line of a relation; it comes after the entries that it links."""
    ends = {"source_id": relation.source_id, "label": relation.label, "target_id": relation.target_id}
    said = {name: value for name in SAID_OF_LINKS if (value := getattr(relation, name)) is not None}
    return {"format": RELATION_FORMAT, **ends, "created_at": relation.created_at.isoformat(), **said}


def exported_entry(
    entry: Entry, noted: Mapping[str, JsonValue] | None = None, vector: bytes | None = None
) -> dict[str, Any]:
    """Return the line of an entry as JSON.

    Fields without a value and the tenant are left out. `noted` has further data of the
    engine for imports that keep ids. `vector` is the caller's own vector.
    """
    left_out = {"tenant", "scope", *({"searchable"} if entry.searchable else ())}
    fields = entry.model_dump(mode="json", exclude=left_out, exclude_none=True)
    return {
        "format": FORMAT,
        "scope": entry.scope.text,
        **fields,
        **({} if vector is None else {"vector": b64encode(vector).decode()}),
        **({"noted": dict(noted)} if noted else {}),
    }


def exported_version(record: Record) -> dict[str, Any]:
    """Return the line of a kept version, which comes after its entry and has its id.

    The version was stored until `replaced_version`.
    """
    line = exported_entry(entry_of(record), noted_of(record), own_vector(record)) | {
        "format": VERSION_FORMAT,
        "replaced_version": version_text(int(str(record.fields["replaced_version"]))),
    }
    del line["tier"]
    return line


def exported_record(kind: Kind, record: Record) -> dict[str, Any]:
    """Return the line of a record of another kind.

    Times are microseconds since 1970, and bytes are base64.
    """
    said = codec.to_json(record)
    line = {
        "format": RECORD_FORMAT,
        "kind": kind.collection.name,
        **{name: said[name] for name in (*_OF_A_RECORD, "version", "tier")},
    }
    return line | ({"owes": [LEAVE]} if any(is_to_be_asked(owed) for owed in record.owed) else {})


def objects(stream: IO[bytes], name: str, since: int) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Yield every object of the file from a line on, with its line number.

    An array is read as a whole, lines one by one.
    """
    started = False
    for number, raw in enumerate(stream, start=1):
        line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if not line.strip():
            continue
        if not started and line.lstrip().startswith(b"["):
            yield from (
                (at, found) for at, found in _array(line + stream.read(), name, number) if at >= since
            )
            return
        started = True
        if number >= since:
            yield number, _object(line, name, number)


def _object(line: bytes, name: str, number: int) -> dict[str, Any] | BadLine:
    try:
        found = json.loads(line.decode(), object_pairs_hook=distinct_keys)
    except RepeatedKey as exc:
        return BadLine(name, number, _twice(exc))
    except UnicodeDecodeError as exc:
        return BadLine(name, number, f"not UTF-8 at byte {exc.start + 1}")
    except json.JSONDecodeError as exc:
        return BadLine(
            name,
            number,
            f"not JSON ({exc.msg} at column {exc.colno}); each line is one object, or the file is one array",
        )
    except (RecursionError, ValueError):
        return BadLine(name, number, "not JSON that can be read: nested too deeply or a number too long")
    return found if isinstance(found, dict) else BadLine(name, number, _not_an_object(found))


def _array(data: bytes, name: str, first_line: int) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Yield the items of a JSON array, each with its line number."""
    text = _decode(data, name, first_line)
    decoder, at, line, counted_to = json.JSONDecoder(), text.index("[") + 1, first_line, 0
    strict = json.JSONDecoder(object_pairs_hook=distinct_keys)
    at = _skip_space(text, at)
    while not text.startswith("]", at):
        problem = None
        try:
            try:
                found, end = strict.raw_decode(text, at)
            except RepeatedKey as exc:
                problem, (found, end) = _twice(exc), decoder.raw_decode(text, at)
        except json.JSONDecodeError as exc:
            raise BadLine(
                name,
                first_line + exc.lineno - 1,
                f"not JSON ({exc.msg} at column {exc.colno}); nothing after it can be read",
            ) from None
        except (RecursionError, ValueError):
            raise BadLine(
                name, first_line + text.count("\n", 0, at), "nested too deeply or a number too long"
            ) from None
        line += text.count("\n", counted_to, at)
        counted_to = at
        if problem is None and not isinstance(found, dict):
            problem = _not_an_object(found)
        yield line, found if problem is None else BadLine(name, line, problem)
        at = _skip_space(text, end)
        if text.startswith(",", at):
            at = _skip_space(text, at + 1)
        elif not text.startswith("]", at):
            raise BadLine(
                name,
                first_line + text.count("\n", 0, at),
                "the array is incomplete here: expected ',' or ']'",
            )
    if rest := text[at + 1 :].strip():
        raise BadLine(
            name,
            first_line + text.count("\n", 0, text.index(rest, at + 1)),
            "there is text after the end of the array",
        )


def _twice(error: RepeatedKey) -> str:
    return f"{error}, and all but the last value would be lost. Correct the line"


def _decode(data: bytes, name: str, first_line: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise BadLine(name, first_line + data.count(b"\n", 0, exc.start), "not UTF-8") from None


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _not_an_object(found: object) -> str:
    return (
        f"holds {type(found).__name__} where an object such as {{'role': 'user', 'content': '...'}} is"
        " expected"
    )


_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")


def _problem_without_values(exc: InvalidInput, found: Mapping[str, Any]) -> str:
    """Return the problem of an object without the values that it contains.

    A damaged file may contain private text anywhere.
    """
    texts = [value for value in found.values() if isinstance(value, str)]

    def hide_value(quoted: re.Match[str]) -> str:
        inner = quoted.group()[1:-1]
        return (
            "<the value>" if any(inner in text or inner in repr(text) for text in texts) else quoted.group()
        )

    return f"{exc.field.partition('.')[0]}: {_QUOTED.sub(hide_value, exc.problem)}"


_MEMORIES_AS_MESSAGES = (
    """jq -c '.. | objects | select(has("memory")) | {role: "user", content: .memory} + del(.memory)'"""
)


def _message_draft(found: Mapping[str, Any], place: tuple[str, int], scope: Scope | None) -> MessageDraft:
    if scope is None:
        raise InvalidInput(
            "scope",
            "a message needs a session or another scope. Pass messages_to= (on the command line --session"
            " or --scope)",
        )
    fields = dict(found)
    if native.is_dump(fields):
        fields = native.said_in(fields)
    role, content = fields.pop("role", None), fields.pop("content", None)
    if role is None and found.keys() >= {"scope", "version"}:
        raise InvalidInput(
            "role", "is missing. To import an entry, keep its line as the export wrote it, with its format"
        )
    if not isinstance(role, str) or not role:
        raise InvalidInput(
            "role", _without_role(found) if role is None else "must be text, such as 'user' or 'assistant'"
        )
    if not isinstance(content, str):
        raise InvalidInput(
            "content", "is missing" if content is None else f"must be text, not {type(content).__name__}"
        )
    values = {name: fields.pop(name) for name in _OWN if name in fields}
    name, position = place
    conversation, created_at = _first_identifier(fields, _CONVERSATION), _time(fields)
    key = _key(conversation, _id_text(fields.pop("id", None), "id")) or f"{name}:{position}"
    said = {
        "conversation_id": conversation or (scope.id if scope.kind is ScopeKind.SESSION else name),
        "number_in_conversation": fields.get("number_in_conversation"),
        "speaker": _first_identifier(fields, _SPEAKER),
    }
    metadata = _metadata(fields.pop("metadata", None), {"role": role, **fields})
    return MessageDraft(
        scope=scope, content=content, created_at=created_at, metadata=metadata, key=key, **said, **values
    )


def _without_role(found: Mapping[str, Any]) -> str:
    """Return the problem of an object without a role, and how to import mem0's."""
    if "memory" not in found and not isinstance(found.get("results"), list):
        return (
            "is missing. A line is a message with role and content, or a line of an export. Write other texts"
            " with write_many()"
        )
    return f"is missing. Import a file of mem0 by its messages: {_MEMORIES_AS_MESSAGES}"


def _key(conversation: str | None, message_id: str | None) -> str | None:
    """Return the key of a message: its id within the conversation that it names.

    Keys of different conversations always differ.
    """
    if message_id is None or conversation is None:
        return None if message_id is None else validation.identifier("id", message_id)
    key = f"{len(conversation)}:{conversation}:{validation.identifier('id', message_id)}"
    return (
        key
        if len(key.encode()) <= validation.MAX_ID_BYTES
        else blake2b(key.encode(), digest_size=16).hexdigest()
    )


def _first_identifier(fields: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the value of the first of these fields that has one."""
    return next(
        (
            validation.identifier(name, said)
            for name in names
            if (said := _id_text(fields.get(name), name)) is not None
        ),
        None,
    )


def _id_text(value: object, field: str) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise InvalidInput(field, f"must be text or a whole number, not {type(value).__name__}")
    return None if value is None or value == "" else str(value)


def _time(fields: dict[str, Any]) -> Any:
    """Return the time under the first name that has one.

    Values under the other names are kept as ordinary fields.
    """
    named = validation.named_moment(fields)
    return None if named is None else validation.time(named, fields.pop(named))


def _metadata(own: object, kept: dict[str, Any]) -> dict[str, Any]:
    """Return the message's metadata, merged with the other fields of the file."""
    metadata = validation.json_object("metadata", {} if own is None else own)
    for name, value in kept.items():
        if metadata.setdefault(name, value) != value:
            raise InvalidInput(
                name, "has one value in the message and another in its metadata. Keep one of them"
            )
    return metadata


def _entry_draft(found: Mapping[str, Any], scope: Scope | None) -> ImportedDraft:
    fields = {name: value for name, value in found.items() if name not in _STORES_OWN}
    if scope is not None:
        fields["scope"] = scope
    elif isinstance(fields.get("scope"), str):
        fields["scope"] = Scope.parse(fields["scope"])
    key = _id_text(found.get("id"), "id")
    if key is None:
        raise InvalidInput("id", "is missing from the exported entry")
    for name in ("artifact_was", "named", "written_as"):
        if name in fields:
            raise InvalidInput(name, "is not a field of an exported entry. Remove it from the file")
    named = fields.pop("key", None)
    if (vector := fields.get("vector")) is not None:
        fields["vector"] = _from_base64("vector", vector)
    return ImportedDraft(
        **fields, key=key, named=named, written_as=_written_as(found), sources=_sources_of(found)
    )


def _written_as(found: Mapping[str, Any]) -> str | None:
    """Return the digest of the write that made an exported entry."""
    noted: Any = found.get("noted")
    if not isinstance(noted, dict):
        return None
    body = noted.get("body")
    before = body.get(WRITTEN_AS) if isinstance(body, dict) else None
    digest = before or noted.get("request_digest")
    return None if digest is None else validation.identifier("noted", digest)


def _sources_of(found: Mapping[str, Any]) -> tuple[Source, ...]:
    """Return the sources of an exported entry."""
    noted: Any = found.get("noted")
    try:
        return read_sources(noted.get("body", {}).get(SOURCES, [])) if isinstance(noted, dict) else ()
    except (AttributeError, ValueError):
        raise InvalidInput("noted", "is not in the form that an export writes") from None


def _as_it_was(found: Mapping[str, Any], draft: ImportedDraft) -> ImportedEntry:
    """Return the stored state of an exported entry or kept version."""
    version = _version("version", found.get("version"))
    noted = found.get("noted", {})
    if not isinstance(noted, dict) or not noted.keys() <= {"previous", "request_digest", "body"}:
        raise InvalidInput("noted", "is not in the form that an export writes")
    body = validation.json_object("noted", noted.get("body", {}))
    if SAID & body.keys() or not _are_notes(body.get(NOTES, {})):
        raise InvalidInput("noted", "is not in the form that an export writes")
    previous = None if noted.get("previous") is None else _version("noted", noted["previous"])
    replaced_by = (
        _version("replaced_version", found.get("replaced_version"))
        if str(found["format"]).startswith("memory-version/")
        else None
    )
    if replaced_by is not None and replaced_by <= version:
        raise InvalidInput("replaced_version", "must be greater than version")
    if previous is not None and previous >= version:
        raise InvalidInput("noted", "the previous version must be less than version")
    for name in ("created_at", "updated_at"):
        if found.get(name) is None:
            raise InvalidInput(name, "is missing from the exported entry")
    return ImportedEntry(
        id=str(draft.key),
        draft=draft,
        version=version,
        updated_at=validation.time("updated_at", found["updated_at"]),
        tier=_tier_of(found, draft.scope) if replaced_by is None else "mid",
        previous=previous,
        digest=(
            None
            if noted.get("request_digest") is None
            else validation.identifier("noted", noted["request_digest"])
        ),
        noted={name: value for name, value in body.items() if name != SOURCES},
        replaced_by=replaced_by,
    )


def _are_notes(found: object) -> bool:
    """Return whether the value is a valid note about enrichment."""
    try:
        return isinstance(found, dict) and bool(EnrichmentNotes(**found))
    except (InvalidInput, TypeError):  # an unknown field
        return False


def _version(field: str, value: object) -> int:
    """Validate a version: the time it was stored at, in microseconds since 1970.

    Entries of earlier formats, and records, have it as a number.
    """
    if isinstance(value, str):
        value = check_version(field, value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LAST_VERSION:
        raise InvalidInput(field, "must be a version, as the export wrote it")
    return value


MAX_SAID_BYTES = 2_000


def _link(found: Mapping[str, Any], line: int) -> RelationLine:
    known = ("format", "source_id", "label", "target_id", "created_at")
    for field in (*known, *found):
        if field not in (*known, *SAID_OF_LINKS):
            raise InvalidInput(
                field, f"is not a field of a relation (known: {', '.join((*known, *SAID_OF_LINKS))})"
            )
        if field not in found:
            raise InvalidInput(field, "is missing from the exported relation")
    ends = {end: validation.identifier(end, found[end]) for end in ("source_id", "target_id")}
    if ends["source_id"] == ends["target_id"]:
        raise InvalidInput("target_id", "self-loops not allowed")
    said = {
        name: validation.text(name, found[name], max_bytes=MAX_SAID_BYTES)
        for name in SAID_OF_LINKS
        if name in found
    }
    return RelationLine(
        line,
        **ends,
        label=validation.one_of("label", found["label"], LABELS),
        created_at=validation.time("created_at", found["created_at"]),
        said=said,
    )


def _pad(found: Mapping[str, Any], line: int) -> ScratchpadLine:
    if missing := {"agent", "content"} - found.keys():
        raise InvalidInput(min(missing), "is missing from the exported scratchpad")
    return ScratchpadLine(
        line, agent_of(found["agent"]), validation.text("content", found["content"], max_bytes=CAP)
    )


def _from_base64(field: str, value: Any) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidInput(field, "is not base64") from None


def _document(found: Mapping[str, Any], line: int, scope: Scope | None) -> DocumentLine:
    if missing := {"scope", "key", "form", "value", "created_at"} - found.keys():
        raise InvalidInput(min(missing), "is missing from the exported document")
    form, value = validation.one_of("form", found["form"], ("json", "bytes")), found["value"]
    if form == "bytes":
        value = _from_base64("value", value)
    into = scope or Scope.parse(found["scope"])
    expires_at = found.get("expires_at")
    put = PutRequest(
        into.text,
        check_key(found["key"]),
        check_value(value),
        validation.json_object("metadata", found.get("metadata", {})),
        lifetime=length("lifetime", found["lifetime"]) if "lifetime" in found else None,
        created_at=validation.time("created_at", found["created_at"]),
        expires_at=None if expires_at is None else validation.time("expires_at", expires_at),
    )
    return DocumentLine(line, put)


_NOT_CARRIED: dict[str, Any] = {
    "tenant": "",
    "version": 0,
    "vector": None,
    "generation": None,
    "role": "home",
    "tier": "",
    "owed": [],
}
_NOT_CARRIED |= {"previous": None, "accesses": 0, "accessed_at": None, "cached_at": None, "epoch": None}


def _tier_of(found: Mapping[str, Any], scope: Scope) -> str:
    """Return the tier of an exported entry, but not one before its scope's first tier.

    An entry in an earlier tier would not be found.
    """
    tier, born = validation.one_of("tier", found.get("tier"), TIERS), KINDS.of(ENTRIES).route(scope.kind).tier
    return max(tier, born, key=TIERS.index)


def _row(found: Mapping[str, Any], line: int, scope: Scope | None, *, versioned: bool) -> RecordLine:
    known = {kind.collection.name: kind for kind in exported_kinds(KINDS)}
    kind = known.get(str(found.get("kind")))
    if kind is None:
        raise InvalidInput("kind", "is not known to this version")
    for field in _OF_A_RECORD:
        if field not in found:
            raise InvalidInput(field, "is missing from the exported record")
    validation.identifier("id", found["id"])
    try:
        said = (
            {
                "version": _version("version", found.get("version")),
                "tier": validation.one_of("tier", found.get("tier"), TIERS),
            }
            if versioned
            else {}
        )
        record = codec.record_from_json(kind.collection, {**found, **_NOT_CARRIED, **said})
        if problem := stores_problem(kind.collection, record):
            raise InvalidInput("format", f"is not a valid record of kind '{kind.collection.name}': {problem}")
        if "owes" in found and (kind.collection is not MESSAGES or found["owes"] != [LEAVE]):
            raise InvalidInput("owes", "is not in the form that an export writes")
        if kind.conversational:
            check_carried(kind, record)
            # a session keeps its id, regardless of the target scope
            return RecordLine(
                line, kind, replace(record, owed=(PendingStep(LEAVE, LEAVE),)) if "owes" in found else record
            )
    except InvalidInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise InvalidInput(
            "format", f"is not a valid record of kind '{kind.collection.name}' ({type(exc).__name__})"
        ) from exc
    into = scope or Scope.parse(record.scope)
    return RecordLine(line, kind, replace(record, scope=into.text))
