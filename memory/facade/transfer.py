"""Conversations and exports as files: what an import reads, what an export writes.

A file holds one JSON object a line (JSON Lines) or one JSON array of objects, in UTF-8. An object is a message:

    {"role": "user", "content": "...", "time": "2026-01-31T09:30:00Z", "id": "m1"}

`role` and `content` are required. `time` (or `timestamp`, `created_at`) becomes the entry's creation time; `id` its key, so that importing again
writes nothing twice; without an `id` the key is the file's name and the message's position. `tags`, `metadata`, `type`, `title`, `source`
and `expires_at` are the entry's own. The role and every field not named here are kept in the entry's metadata: nothing is dropped.

Or it is an entry, a relation or another record as `export` wrote it, marked by its `format`. An entry gets a new id, its old one becomes its
key, and whatever in the file names the old one names the new one afterwards (decision A5). What names an entry that is not in the file is
provenance and stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import IO, Any

from memory.domain import door
from memory.domain.entry import Entry, EntryDraft, ImportedDraft
from memory.domain.errors import InvalidInput
from memory.domain.ids import keyed_id
from memory.domain.scope import Scope
from memory.orchestrator.collections import ENTRIES
from memory.orchestrator.kinds import KINDS, Kind
from memory.orchestrator.relations import LABELS, Relation
from memory.orchestrator.transfer import carried, id_here
from memory.ports import codec
from memory.ports.collections import Collection
from memory.ports.record import Key, Record

FORMAT = "memory-entry/1"
"""What marks an exported entry. The number grows when the meaning of a field changes."""
RELATION_FORMAT = "memory-relation/1"
"""What marks an exported relation."""
RECORD_FORMAT = "memory-record/1"
"""What marks an exported record of any other kind."""

_TIMES = ("time", "timestamp", "created_at")
_OWN = ("tags", "type", "title", "source", "expires_at")
_OF_A_RECORD = ("id", "scope", "created_at", "updated_at", "expires_at", "fields", "body", "texts")
_STORES_OWN = ("format", "id", "updated_at", "version", "tier")  # of an exported entry: the new store gives its own


class BadLine(InvalidInput):
    """One object of a file that cannot be imported, and where it stands."""

    def __init__(self, name: str, line: int, problem: str) -> None:
        super().__init__(f"{name} line {line}", problem)
        self.line = line


@dataclass(frozen=True, slots=True)
class Message:
    """One object of a file, checked. `again` says that the same one stood further up in the file."""

    line: int
    draft: EntryDraft
    again: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """One exported relation, checked. Its ends are old ids until `rewritten`."""

    line: int
    source_id: str
    label: str
    target_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Row:
    """One exported record of another kind. Its id, and the ids it names, are old ones until `rows_here`."""

    line: int
    kind: Kind
    record: Record


def read(stream: IO[bytes], name: str, scope: Scope | None = None, *, messages_to: Scope | None = None) -> Iterator[Message | Link | Row | BadLine]:
    """The messages, relations and other records of a file, in order, each checked as a write would check it; a `BadLine` in place of what is wrong.

    `scope` is where everything goes, also exported entries, which otherwise keep their own; `messages_to` where messages go without it.
    A file that cannot be read on raises its `BadLine`.
    """
    seen: dict[tuple[str, str | None], tuple[int, EntryDraft]] = {}
    for position, (line, found) in enumerate(_objects(stream, name), start=1):
        if isinstance(found, BadLine):
            yield found
            continue
        try:
            if found.get("format") == RELATION_FORMAT:
                yield _link(found, line)
                continue
            if found.get("format") == RECORD_FORMAT:
                yield _row(found, line, scope)
                continue
            draft = _draft(found, f"{name}:{position}", scope, scope or messages_to)
            first_line, first = seen.setdefault((draft.scope.text, draft.key), (line, draft))
            if first != draft:
                raise InvalidInput("id", f"{draft.key!r} already stands on line {first_line} with other content")
        except InvalidInput as exc:
            yield BadLine(name, line, str(exc))
        else:
            yield Message(line, draft, again=first is not draft)


def rewritten(items: Sequence[Message | Link | Row], name: str, tenant: str) -> tuple[list[Message], list[Link], list[BadLine]]:
    """The messages and the links of a whole file with the ids that its entries will have in this tenant; links to what is not in it are bad."""
    messages = [item for item in items if isinstance(item, Message)]
    new = _new_ids(items, tenant)[ENTRIES]
    links, bad = list[Link](), list[BadLine]()
    for item in items:
        if isinstance(item, Link):
            lost = [end for end in (item.source_id, item.target_id) if end not in new]
            if lost:
                bad.append(BadLine(name, item.line, f"links entry {lost[0]}, which is not in this file"))
            else:
                links.append(replace(item, source_id=new[item.source_id], target_id=new[item.target_id]))
    return [replace(m, draft=_rewritten(m.draft, new)) for m in messages], links, bad


def _new_ids(items: Sequence[Message | Link | Row], tenant: str) -> dict[Collection, dict[str, str]]:
    """The new id of every entry and every other record of a file, by its old one."""
    drafts = [item.draft for item in items if isinstance(item, Message) and isinstance(item.draft, ImportedDraft)]
    new = {ENTRIES: {draft.key: keyed_id(tenant, draft.scope.text, draft.key) for draft in drafts if draft.key is not None}}
    for item in items:
        if isinstance(item, Row):
            old = item.record.key.id
            new.setdefault(item.kind.collection, {})[old] = id_here(tenant, item.kind, item.record.scope, old)
    return new


def rows_here(items: Sequence[Message | Link | Row], name: str, tenant: str) -> tuple[list[Row], list[BadLine]]:
    """The other records of a whole file as they will stand in this tenant; those that belong to what is not in it are bad."""
    new, rows, bad = _new_ids(items, tenant), list[Row](), list[BadLine]()
    for item in items:
        if isinstance(item, Row):
            collection, fields = item.kind.collection, dict(item.record.fields)
            parents = KINDS.parents(collection)
            named = {field: str(fields[field]) for field in parents if fields.get(field) is not None}
            lost = [old for field, old in named.items() if old not in new.get(parents[field], {})]
            if lost:
                bad.append(BadLine(name, item.line, f"belongs to {lost[0]}, which is not in this file"))
                continue
            fields |= {field: new[parents[field]][old] for field, old in named.items()}
            here = replace(item.record, key=Key(tenant, new[collection][item.record.key.id]), fields=fields)
            rows.append(replace(item, record=here))
    return rows, bad


def _rewritten(draft: EntryDraft, new: Mapping[str, str]) -> EntryDraft:
    if not isinstance(draft, ImportedDraft):
        return draft
    changed: dict[str, Any] = {}
    if draft.promoted_from_id is not None:
        changed["promoted_from_id"] = new.get(draft.promoted_from_id, draft.promoted_from_id)
    if draft.compacted_from_ids is not None:
        changed["compacted_from_ids"] = tuple(new.get(source, source) for source in draft.compacted_from_ids)
    if draft.contributors is not None:
        changed["contributors"] = tuple(c.model_copy(update={"entry_id": new.get(c.entry_id, c.entry_id)}) for c in draft.contributors)
    return draft.model_copy(update=changed) if changed else draft


def exported_relation(relation: Relation) -> dict[str, Any]:
    """A relation as an export writes it, after the entries it links."""
    ends = {"source_id": relation.source_id, "label": relation.label, "target_id": relation.target_id}
    return {"format": RELATION_FORMAT, **ends, "created_at": relation.created_at.isoformat()}


def exported(entry: Entry) -> dict[str, Any]:
    """An entry as an export writes it: JSON, fields without a value left out, the tenant left to the importer."""
    fields = entry.model_dump(mode="json", exclude={"tenant", "scope"}, exclude_none=True)
    return {"format": FORMAT, "scope": entry.scope.text, **fields}


def exported_record(kind: Kind, record: Record) -> dict[str, Any]:
    """A record of another kind as an export writes it. Moments are microseconds since 1970, bytes base64."""
    said = codec.to_json(record)
    return {"format": RECORD_FORMAT, "kind": kind.collection.name, **{name: said[name] for name in _OF_A_RECORD}}


def _objects(stream: IO[bytes], name: str) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Every object of the file with its line number."""
    started = False
    for number, raw in enumerate(stream, start=1):
        line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if not line.strip():
            continue
        if not started and line.lstrip().startswith(b"["):
            yield from _array(line + stream.read(), name, number)
            return
        started = True
        yield number, _object(line, name, number)


def _object(line: bytes, name: str, number: int) -> dict[str, Any] | BadLine:
    try:
        found = json.loads(line.decode())
    except UnicodeDecodeError as exc:
        return BadLine(name, number, f"not UTF-8 at byte {exc.start + 1}")
    except json.JSONDecodeError as exc:
        return BadLine(name, number, f"not JSON ({exc.msg} at column {exc.colno}); each line is one object, or the file is one array")
    except (RecursionError, ValueError):
        return BadLine(name, number, "not JSON that can be read: nested too deeply or a number too long")
    return found if isinstance(found, dict) else BadLine(name, number, _not_an_object(found))


def _array(data: bytes, name: str, first_line: int) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """The items of a JSON array, one by one, so that each knows its line."""
    text = _decoded(data, name, first_line)
    decoder, at, line, counted_to = json.JSONDecoder(), text.index("[") + 1, first_line, 0
    at = _skip_space(text, at)
    while not text.startswith("]", at):
        try:
            found, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as exc:
            raise BadLine(name, first_line + exc.lineno - 1, f"not JSON ({exc.msg} at column {exc.colno}); nothing after it can be read") from None
        except (RecursionError, ValueError):
            raise BadLine(name, first_line + text.count("\n", 0, at), "nested too deeply or a number too long") from None
        line += text.count("\n", counted_to, at)
        counted_to = at
        yield line, found if isinstance(found, dict) else BadLine(name, line, _not_an_object(found))
        at = _skip_space(text, end)
        if text.startswith(",", at):
            at = _skip_space(text, at + 1)
        elif not text.startswith("]", at):
            raise BadLine(name, first_line + text.count("\n", 0, at), "the array breaks off here: expected ',' or ']'")
    if rest := text[at + 1 :].strip():
        raise BadLine(name, first_line + text.count("\n", 0, text.index(rest, at + 1)), "something follows the array's end")


def _decoded(data: bytes, name: str, first_line: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise BadLine(name, first_line + data.count(b"\n", 0, exc.start), "not UTF-8") from None


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _not_an_object(found: object) -> str:
    return f"holds {type(found).__name__} where an object such as {{'role': 'user', 'content': '...'}} is expected"


def _draft(found: Mapping[str, Any], place: str, forced: Scope | None, scope: Scope | None) -> EntryDraft:
    if "format" in found and "role" not in found:
        return _entry_draft(found, forced)
    if scope is None:
        raise InvalidInput("scope", "a message belongs to a session or another scope; say which (on the command line --session or --scope)")
    fields = dict(found)
    role, content = fields.pop("role", None), fields.pop("content", None)
    if not isinstance(role, str) or not role:
        raise InvalidInput("role", "is missing" if role is None else "must be text, such as 'user' or 'assistant'")
    if not isinstance(content, str):
        raise InvalidInput("content", "is missing" if content is None else f"must be text, not {type(content).__name__}")
    values = {name: fields.pop(name) for name in _OWN if name in fields}
    key, created_at = _key(fields.pop("id", None)) or place, _time(fields)
    metadata = _metadata(fields.pop("metadata", None), {"role": role, **fields})
    return EntryDraft(scope=scope, content=content, created_at=created_at, metadata=metadata, key=key, **values)


def _key(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise InvalidInput("id", f"must be text or a whole number, not {type(value).__name__}")
    return None if value is None or value == "" else str(value)


def _time(fields: dict[str, Any]) -> Any:
    given = [name for name in _TIMES if name in fields]
    if len(given) > 1:
        raise InvalidInput(given[0], f"and {given[1]} are two names for the same thing; keep one")
    return None if not given or (value := fields.pop(given[0])) is None else door.time(given[0], value)


def _metadata(own: object, kept: dict[str, Any]) -> dict[str, Any]:
    """The message's metadata, together with what the file said beside it."""
    metadata = door.json_object("metadata", {} if own is None else own)
    for name, value in kept.items():
        if metadata.setdefault(name, value) != value:
            raise InvalidInput(name, "stands in the message and in its metadata with different values; keep one")
    return metadata


def _entry_draft(found: Mapping[str, Any], scope: Scope | None) -> EntryDraft:
    if found["format"] != FORMAT:
        raise InvalidInput("format", f"{str(found['format'])[:40]!r} is not known; this version reads {FORMAT!r}")
    fields = {name: value for name, value in found.items() if name not in _STORES_OWN}
    if scope is not None:
        fields["scope"] = scope
    elif isinstance(fields.get("scope"), str):
        fields["scope"] = Scope.parse(fields["scope"])
    key = _key(found.get("id"))
    if key is None:
        raise InvalidInput("id", "is missing from the exported entry")
    return ImportedDraft(**fields, key=key)


def _link(found: Mapping[str, Any], line: int) -> Link:
    known = ("format", "source_id", "label", "target_id", "created_at")
    for field in (*known, *found):
        if field not in known:
            raise InvalidInput(field, f"is no part of a relation (known: {', '.join(known)})")
        if field not in found:
            raise InvalidInput(field, "is missing from the exported relation")
    ends = {end: door.identifier(end, found[end]) for end in ("source_id", "target_id")}
    return Link(line, **ends, label=door.one_of("label", found["label"], LABELS), created_at=door.time("created_at", found["created_at"]))


_NOT_CARRIED: dict[str, Any] = {"tenant": "", "version": 1, "vector": None, "generation": None, "role": "home", "tier": "", "owed": []}
_NOT_CARRIED |= {"previous": None, "accesses": 0, "accessed_at": None, "cached_at": None, "epoch": None}


def _row(found: Mapping[str, Any], line: int, scope: Scope | None) -> Row:
    known = {kind.collection.name: kind for kind in carried(KINDS)}
    kind = known.get(str(found.get("kind")))
    if kind is None:
        raise InvalidInput("kind", f"{str(found.get('kind'))[:40]!r} is not known to this version")
    for field in _OF_A_RECORD:
        if field not in found:
            raise InvalidInput(field, "is missing from the exported record")
    try:
        record = codec.record_from_json(kind.collection, {**found, **_NOT_CARRIED})
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise InvalidInput("format", f"is no record of kind '{kind.collection.name}': {type(exc).__name__}: {exc}") from exc
    into = scope or Scope.parse(record.scope)
    return Row(line, kind, replace(record, scope=into.text))
