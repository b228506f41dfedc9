"""Conversion of entries to records and back.

This is the only module that knows how an entry is stored. Title and content are the
record's texts, and are stored nowhere else. An entry that no search finds has them in
its body instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import Any

from memory.domain import validation
from memory.domain.entry import (
    CARRIED,
    WHERE_SAID,
    Contributor,
    Entry,
    EntryDraft,
    EntryType,
    ImportedDraft,
    MessageDraft,
    confidence_of,
    expiry,
)
from memory.domain.errors import InvalidInput
from memory.domain.json_values import is_same_json
from memory.domain.provenance import ORIGIN_KINDS, all_in, named_in
from memory.domain.scope import Scope
from memory.domain.time import micros, moment
from memory.domain.versions import version_text
from memory.orchestrator.storage.collections import SAID, SEQUENCE
from memory.orchestrator.storage.requests import RequestMark
from memory.policies.entry_filters import UNSEARCHED, shown_texts
from memory.policies.passage_splitting import fine_parts_of, is_long
from memory.policies.text_features import marks_of
from memory.ports.record import FieldValue, JsonValue, Key, Record

REQUEST = "request"
"""In the body of a version, and in the note of a tombstone: the mark of the request
that made it.
"""
DELETED_BY = "deleted_by"
"""In the body of a record that was born over a tombstone: the mark of the request that
deleted the life before.
"""
WRITTEN_AS = "written_as"
"""In the body of an imported record with a key: the digest of the write that made the
entry in the exporting store. So that write can be repeated here too.
"""
KEY = "key"
"""In the body of a record: the key that its writer gave it."""
DATA = "data"
"""In the body of a record: the JSON that belongs to the content."""
LIFETIME = "lifetime"
"""In the body of a record that reads keep: the microseconds from a read to the expiry.
"""
OWN_VECTOR = "own_vector"
"""In the body of a record whose vector comes from the caller, and not from its text."""
PINNED = "pinned"
"""In the body of a record that is older by its `created_at` than its reference to a
conversation: the version at which it got the reference.
"""
UNPINNED = "unpinned"
"""In the body of a record whose conversation reference was removed because the session
was deleted. No rollback restores the reference.
"""
PIN = ("conversation_id", "number_in_conversation")
"""The fields that refer to a conversation. A message number counts within one
conversation and is removed with it. The speaker stays.
"""
PARTS = "parts"
"""In the body of a record: how many parts an earlier text of it may have had."""
WRITTEN_BY = "written_by"
"""In the body of a changed record: the origins of the last change, if it named any."""
STATED = "stated"
"""In the body of a changed record: the values that the call stated and that the version
before had already, as `own:NAME` and `metadata:NAME`.
"""
RESTATED = "restated"
"""In the body of a record that an upsert changed. The call stated the whole entry, so
that nothing in it depends on earlier versions.
"""
TAKEN_BACK = "taken_back"
"""In the body of a record that was rolled back: it supersedes no other entry any more.
"""
TURNED_BACK = "turned_back"
"""In the body of a version that a rollback made: the versions whose changes it leaves
out.
"""


def entry_of(record: Record) -> Entry:
    """Return the entry of a record, or of a kept version the entry as it was."""
    body: Mapping[str, Any] = record.body
    fields: Mapping[str, Any] = record.fields
    contributors = body.get("contributors")
    texts = shown_texts(record)
    return Entry.as_stored(
        {
            "id": fields.get("entry_id") or record.key.id,
            "key": body.get(KEY),
            "tenant": record.key.tenant,
            "scope": _scope(record.scope),
            "type": EntryType(fields["type"]),
            "title": texts.get("title"),
            "content": texts.get("content", ""),
            "source": fields.get("source"),
            "tags": list(fields.get("tags") or ()),
            "metadata": copy_json(body.get("metadata") or {}),
            "data": copy_json(body.get(DATA)),
            "searchable": is_searchable(record),
            "created_at": record.created_at,
            "updated_at": record.updated_at,
            "expires_at": record.expires_at,
            "lifetime": lifetime_of(record),
            "valid_from": fields["valid_from"],
            "valid_to": fields.get("valid_to"),
            "promoted_from_id": fields.get("promoted_from_id"),
            "compacted_from_ids": (
                None if body.get("compacted_from_ids") is None else list(body["compacted_from_ids"])
            ),
            "contributors": (
                None if contributors is None else [Contributor(**copy_json(c)) for c in contributors]
            ),
            "artifact_id": fields.get("artifact_id"),
            "conversation_id": fields.get("conversation_id"),
            "number_in_conversation": fields.get("number_in_conversation"),
            "speaker": fields.get("speaker"),
            "agent": fields.get("agent"),
            "run": fields.get("run"),
            "origins": None if fields.get("origins") is None else list(fields["origins"]),
            "version": version_text(record.version),
            "tier": record.tier,
        }
    )


def _creation(draft: EntryDraft, now: datetime) -> datetime:
    """Return the moment of creation, which is not in the future.

    A clock ahead of ours must not open a validity window in the future. But an import
    keeps the moments of its file.
    """
    said = draft.created_at or now
    return said if isinstance(draft, ImportedDraft) else min(said, now)


def record_of(
    draft: EntryDraft,
    *,
    key: Key,
    version: int,
    now: datetime,
    tier: str,
    sequence: int,
    digest: str | None = None,
    promoted_from_id: str | None = None,
    compacted_from_ids: list[str] | None = None,
    contributors: list[dict[str, Any]] | None = None,
) -> Record:
    """Return the record of a new entry. The caller adds the vector of its text."""
    born = _creation(draft, now)
    body: dict[str, JsonValue] = {}
    if draft.metadata:
        body["metadata"] = draft.metadata
    if draft.data is not None:
        body[DATA] = draft.data
    if draft.lifetime is not None:
        body[LIFETIME] = draft.lifetime // _MICROSECOND
    if draft.vector is not None:
        body[OWN_VECTOR] = True
    if draft.address is not None:
        body[KEY] = draft.address
    valid_from, valid_to = born, None
    if isinstance(draft, ImportedDraft):
        valid_from, valid_to, promoted_from_id = (
            draft.valid_from or born,
            draft.valid_to,
            draft.promoted_from_id,
        )
        compacted_from_ids = None if draft.compacted_from_ids is None else list(draft.compacted_from_ids)
        contributors = None if draft.contributors is None else [c.model_dump() for c in draft.contributors]
        if draft.named is not None and draft.written_as is not None:
            body[WRITTEN_AS] = draft.written_as
    if compacted_from_ids is not None:
        body["compacted_from_ids"] = compacted_from_ids
    if contributors is not None:
        body["contributors"] = contributors
    if draft.conversation_id is not None and born < now:
        body[PINNED] = version
    texts = texts_of(draft.title, draft.content, draft.tags, draft.source)
    if not draft.searchable:
        body, texts = body | {UNSEARCHED: _title_and_content(texts)}, {}
    fields: dict[str, FieldValue] = {
        "scope_kind": draft.scope.kind.value,
        "type": draft.type.value,
        "tags": tuple(draft.tags),
        "source": draft.source,
        "confidence": confidence_of(draft.metadata),
        "valid_from": valid_from,
        "valid_to": valid_to,
        "promoted_from_id": promoted_from_id,
        "request_digest": digest,
        "marks": _marks_of(texts),
        SEQUENCE: sequence,
        **{name: value for name in CARRIED if (value := getattr(draft, name, None)) is not None},
        **{name: value for name in ("agent", "run") if (value := getattr(draft, name)) is not None},
        **({"origins": tuple(draft.origins)} if draft.origins else {}),
    }
    return Record(
        key=key,
        scope=draft.scope.text,
        version=version,
        created_at=born,
        updated_at=born if born != now else moment(version),
        expires_at=expiry(draft.expires_at, now),
        fields=fields,
        body=body,
        texts=texts,
        vector=draft.vector,
        tier=tier,
    )


_MICROSECOND = timedelta(microseconds=1)


def lifetime_of(record: Record) -> timedelta | None:
    """Return how long each read keeps the entry; None if reads do not keep it."""
    return lifetime_in(record.body)


def lifetime_in(body: Mapping[str, JsonValue]) -> timedelta | None:
    """Return the lifetime in the body of a record; see `lifetime_of`."""
    kept: Any = body.get(LIFETIME)
    return None if kept is None else timedelta(microseconds=kept)


def with_request(record: Record, request: RequestMark | None) -> Record:
    """Return the record with the mark of the request that makes it, if any."""
    return record if request is None else replace(record, body={**record.body, REQUEST: request.text})


def pinned_at(record: Record) -> int:
    """Return when the entry got its conversation reference, in microseconds.

    The result does not depend on the moment for which the entry was written.
    """
    return int(record.body.get(PINNED, micros(record.created_at)))


def texts_of(title: str | None, content: str, tags: list[str], source: str | None) -> dict[str, str]:
    """Return the texts by which an entry is shown and found, by part.

    A title, the content, the tags and the source have different weights in a search.
    """
    parts = {"title": title or "", "content": content, "tags": " ".join(tags), "source": source or ""}
    return {name: text for name, text in parts.items() if text}


def meaning_of(record: Record) -> str:
    """Return the text from which an entry's vector is made; empty if it has none."""
    return "\n".join(_title_and_content(record.texts).values())


def said_by(record: Record) -> list[str]:
    """Return the title and the content of an entry, as far as it has them."""
    return list(_title_and_content(shown_texts(record)).values())


def is_searchable(record: Record) -> bool:
    """Return whether searches may find the entry."""
    return UNSEARCHED not in record.body


def own_vector(record: Record) -> bytes | None:
    """Return the vector that the caller gave the entry; None for that of its text."""
    return record.vector if OWN_VECTOR in record.body else None


def without_own_vector(record: Record) -> Record:
    """Return the record with the vector of its text, which is still to be made."""
    body = {name: value for name, value in record.body.items() if name != OWN_VECTOR}
    return replace(record, body=body, vector=None)


def needs_vector(before: Record, now: Record) -> bool:
    """Return whether a vector is to be made, or checked, for a changed record."""
    return dict(now.texts) != dict(before.texts) or now.vector != before.vector


def _title_and_content(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: texts[name] for name in ("title", "content") if name in texts}


def _marks_of(texts: Mapping[str, str]) -> int:
    return marks_of("\n".join(_title_and_content(texts).values()))


def has_parts(record: Record) -> bool:
    """Return whether the content is long, and found by its parts too."""
    return is_long(_text_in_parts(record))


def parts_in(record: Record) -> list[str]:
    """Return the parts of the content, if it is long."""
    return fine_parts_of(_text_in_parts(record))


def _text_in_parts(record: Record) -> str:
    """Return the content. A vector of the caller stands for it as a whole."""
    return "" if OWN_VECTOR in record.body else record.texts.get("content", "")


def parts_before(record: Record) -> int:
    """Return how many parts the record's earlier texts may have had."""
    return int(record.body.get(PARTS, 0))


def said_at(record: Record) -> int:
    """Return the version at which the record got its current text."""
    earlier = record.fields.get(SAID)
    return earlier if isinstance(earlier, int) else record.version


def apply_changes(
    record: Record, changes: dict[str, Any], *, version: int, stated: Mapping[str, Any] | None = None
) -> Record:
    """Return the record after an update.

    Metadata is merged; all other values, data too, are replaced. `created_at` and
    provenance stay. A change keeps an entry as a read does.
    `stated` holds all values that the call stated, if those are more than its changes.
    """
    body, fields, shown = dict(record.body), dict(record.fields), shown_texts(record)
    title, content = (changes.get(name, shown.get(name)) for name in ("title", "content"))
    if "metadata" in changes:
        body["metadata"] = validation.json_object(
            "metadata", {**(body.get("metadata") or {}), **changes["metadata"]}
        )
        fields["confidence"] = confidence_of(body["metadata"])
    if DATA in changes:
        body.pop(DATA, None)
        body |= {} if changes[DATA] is None else {DATA: changes[DATA]}
    expires_at = _put_expiry(record, body, changes, moment(version))
    if "tags" in changes:
        fields["tags"] = tuple(changes["tags"])
    if "type" in changes:
        fields["type"] = changes["type"].value
    body.pop(REQUEST, None)
    _note_stated(record, body, changes if stated is None else stated)
    before = all_in(fields)
    for name in (*ORIGIN_KINDS, "valid_to", "artifact_id"):
        if name in changes:
            fields[name] = changes[name]
    _note_writer(fields, body, before, changes)
    texts = texts_of(title, content or "", list(fields.get("tags") or ()), fields.get("source"))  # type: ignore[arg-type]
    same_text = _title_and_content(texts) == _title_and_content(shown)
    body.pop(UNSEARCHED, None)
    if not changes.get("searchable", is_searchable(record)):
        body, texts = body | {UNSEARCHED: _title_and_content(texts)}, {}
    vector = _put_vector(record, body, changes, same_text=same_text)
    if changes.keys() & {"content", "title", "searchable"}:
        fields["marks"] = _marks_of(texts)
    if changes.keys() & {"content", "searchable"} or (OWN_VECTOR in body) != (OWN_VECTOR in record.body):
        fields.pop(SAID, None)
        body |= {PARTS: parts} if (parts := max(parts_before(record), len(parts_in(record)))) else {}
    elif parts_before(record) or has_parts(record):
        fields[SAID] = said_at(record)
    return Record(
        key=record.key,
        scope=record.scope,
        version=version,
        created_at=record.created_at,
        updated_at=moment(version),
        expires_at=expires_at,
        fields=fields,
        body=body,
        texts=texts,
        vector=vector,
        generation=record.generation,
        tier=record.tier,
        previous=record.version,
        accesses=record.accesses,
        accessed_at=record.accessed_at,
    )


def _put_expiry(
    record: Record, body: dict[str, JsonValue], changes: Mapping[str, Any], now: datetime
) -> datetime | None:
    """Return the expiry after a change, and note in the body how long reads keep it."""
    if LIFETIME in changes:
        body.pop(LIFETIME, None)
        given: timedelta | None = changes[LIFETIME]
        body |= {} if given is None else {LIFETIME: given // _MICROSECOND}
    ends = expiry(changes.get("expires_at", record.expires_at), now)
    if ends is None:
        body.pop(LIFETIME, None)
    elif "expires_at" not in changes and (kept := lifetime_in(body)) is not None:
        # A read may move the expiry of the stored record until this change replaces it.
        ends = max(ends, now + kept)
    return ends


def _put_vector(
    record: Record, body: dict[str, JsonValue], changes: Mapping[str, Any], *, same_text: bool
) -> bytes | None:
    """Return the vector after a change, and note in the body whose it is.

    A vector of the caller is dropped with the text that it belongs to.

    Raises:
        InvalidInput: A vector is given for an entry that no search finds.
    """
    given = changes.get("vector", own_vector(record) if same_text else None)
    is_own = body.pop(OWN_VECTOR, False)
    if UNSEARCHED in body:
        if changes.get("vector") is not None:
            raise InvalidInput(
                "vector", "is not used by an entry that no search finds. Pass searchable=True too"
            )
        return None
    if given is None:
        return record.vector if same_text and not is_own else None
    body[OWN_VECTOR] = True
    return given  # type: ignore[no-any-return]


def _note_stated(record: Record, body: dict[str, JsonValue], changes: Mapping[str, Any]) -> None:
    """Note which values a call stated without changing them.

    They are this writer's values too, even when an earlier writer is reverted.
    """
    for name in (STATED, RESTATED):
        body.pop(name, None)
    if not named_in(changes) and not changes.get("origins"):
        return  # the call names no writer
    says = _said_of(record)
    stated = [("own", name) for name in changes if ("own", name) in says]
    stated += [("metadata", name) for name in changes.get("metadata", ())]
    new = {("metadata", name): value for name, value in changes.get("metadata", {}).items()}
    new |= {("own", name): value for name, value in changes.items()}
    kept = sorted(
        f"{of}:{name}"
        for of, name in stated
        if (of, name) in says and _comparable(says[of, name]) == _comparable(new[of, name])
    )
    if kept:
        body[STATED] = kept


def _comparable(value: Any) -> Any:
    return (
        value.value
        if isinstance(value, EntryType)
        else list(value or ())
        if isinstance(value, list | tuple)
        else value or None
    )


def _note_writer(
    fields: dict[str, FieldValue], body: dict[str, JsonValue], before: list[str], changes: Mapping[str, Any]
) -> None:
    """Note who changed the record, if the call says so.

    The earlier writers stay among its origins.
    """
    writer = [*named_in(changes), *changes.get("origins", ())]
    for name in (WRITTEN_BY, TURNED_BACK):
        body.pop(name, None)
    if writer:
        body[WRITTEN_BY] = writer
    current = named_in(fields)
    if origins := [one for one in dict.fromkeys([*before, *writer]) if one not in current]:
        fields["origins"] = tuple(origins)


def writer_of(record: Record) -> list[str]:
    """Return the origins of this version: its writer and the writer's sources.

    The list is empty if the write named none.
    """
    if record.previous is None:
        return all_in(record.fields)
    return list(record.body.get(WRITTEN_BY, ()))


def without(
    steps: Sequence[Record], taken: Sequence[bool], version: int, gone: Set[str] = frozenset()
) -> Record:
    """Return the last of these versions without the changes of the `taken` ones.

    `steps` are versions of one entry, oldest first. The result is the last version
    itself if those changes leave no trace in it. It refers to none of the artifacts in
    `gone`. Changes that earlier rollbacks left out stay left out. Versions that
    rollbacks made do not count as changes.
    """
    out = {step.version for step, is_taken in zip(steps, taken, strict=True) if is_taken}.union(
        *(_turned_back(step) for step in steps)
    )
    said, origins = _said_of(steps[0]), dict.fromkeys(all_in(steps[0].fields))
    for before, step in pairwise(steps):
        if step.version not in out and TURNED_BACK not in step.body:
            old, new = _said_of(before), _said_of(step)
            said = {name: value for name, value in said.items() if name in new or name not in old}
            stated = set(step.body.get(STATED, ()))
            said |= {
                name: value
                for name, value in new.items()
                if name not in old or old[name] != value or ":".join(name) in stated
            }
            origins |= dict.fromkeys(writer_of(step))
    own, metadata = (
        {name: value for (of, name), value in said.items() if of == kind} for kind in ("own", "metadata")
    )
    if own["artifact_id"] in gone:
        own["artifact_id"] = None
    now = steps[-1]
    if own[LIFETIME] is not None and own[LIFETIME] == lifetime_of(now):
        own["expires_at"] = now.expires_at  # reads and changes have only moved it
    whole = apply_changes(
        now, {**own, "type": EntryType(own["type"]), "tags": list(own["tags"] or ())}, version=version
    )
    body, fields = {**whole.body}, {**whole.fields}
    body.pop("metadata", None)
    for name in (WRITTEN_BY, STATED):
        body.pop(name, None)
    body |= {TURNED_BACK: sorted(out)} | ({"metadata": metadata} if metadata else {})
    kept = PIN if UNPINNED in now.body else ()
    fields |= {name: own[name] for name in WHERE_SAID if name not in kept and own[name] != fields.get(name)}
    fields |= {
        "confidence": confidence_of(metadata),
        "origins": tuple(one for one in origins if one not in named_in(fields)) or None,
    }
    turned_back = replace(whole, body=body, fields=fields)
    is_so = _said_of(turned_back) == _said_of(now) and set(all_in(fields)) == set(all_in(now.fields))
    return now if is_so else turned_back


def _turned_back(step: Record) -> Sequence[int]:
    """Return the versions that a rollback left out of this one."""
    return step.body.get(TURNED_BACK, ())  # type: ignore[no-any-return]


_REPLACEABLE = (
    *("content", "title", "type", "tags", "metadata", DATA, "searchable", "artifact_id", LIFETIME),
    *ORIGIN_KINDS,
    *WHERE_SAID,
)
_JSON = ("metadata", DATA)


def apply_draft(record: Record, draft: EntryDraft, *, version: int) -> Record:
    """Return the record with the values of the draft, and with its own `created_at`.

    No other value of the record is kept. The result is the record itself if it has
    these values already.
    """
    wanted = {name: getattr(draft, name) for name in _REPLACEABLE}
    wanted["expires_at"] = expiry(draft.expires_at, moment(version))
    says = entry_of(record)
    changes = {
        name: value for name, value in wanted.items() if not _is_same(name, value, getattr(says, name))
    }
    if draft.vector != own_vector(record):
        changes["vector"] = draft.vector
    if not changes and set(draft.origins) <= set(all_in(record.fields)):
        return record
    changes |= {
        name: getattr(draft, name) for name in (*ORIGIN_KINDS, "origins")
    }  # the origins of the current writer replace the earlier ones
    body = {
        name: value for name, value in record.body.items() if name != "metadata" or "metadata" not in changes
    }
    body = _pinned_body(body, changes, version)
    stated = wanted | {"origins": draft.origins}
    new = apply_changes(replace(record, body=body), changes, version=version, stated=stated)
    if named_in(stated) or stated.get("origins"):
        new = replace(new, body={**new.body, RESTATED: True})
    return _with_place(new, changes)


def as_read_since(draft: EntryDraft, record: Record) -> EntryDraft:
    """Return an exported draft with the expiry to which reads have moved the record's.

    Other drafts are returned unchanged.
    """
    if draft.lifetime is None or draft.lifetime != lifetime_of(record):
        return draft
    return draft.model_copy(update={"expires_at": record.expires_at})


def apply_given(record: Record, changes: dict[str, Any], *, version: int) -> Record:
    """Return the record with these values of a draft; metadata are merged.

    All other values of the record are kept. The result is the record itself if it has
    these values already.
    """
    if has_values(record, changes, version=version):
        return record
    body = _pinned_body(dict(record.body), changes, version)
    return _with_place(apply_changes(replace(record, body=body), changes, version=version), changes)


def has_values(record: Record, changes: Mapping[str, Any], *, version: int) -> bool:
    """Return whether a record has these values already; metadata are merged."""
    says = entry_of(record)
    wanted = dict(changes)
    if "expires_at" in wanted:
        wanted["expires_at"] = expiry(wanted["expires_at"], moment(version))
    if "metadata" in wanted:
        wanted["metadata"] = {**says.metadata, **wanted["metadata"]}
    new_origins = set(wanted.pop("origins", ())) - set(all_in(record.fields))
    same_vector = wanted.pop("vector", own_vector(record)) == own_vector(record)
    return (
        not new_origins
        and same_vector
        and all(_is_same(name, value, getattr(says, name)) for name, value in wanted.items())
    )


def _is_same(name: str, one: Any, other: Any) -> bool:
    """Return whether a value of an entry is the same."""
    if name not in _JSON:
        return bool(one == other)
    return is_same_json(one, other)


def _pinned_body(
    body: dict[str, JsonValue], changes: Mapping[str, Any], version: int
) -> dict[str, JsonValue]:
    """Return the body with the moment of a new conversation reference, if any."""
    if changes.get("conversation_id") is None:
        return body
    return {name: value for name, value in body.items() if name != UNPINNED} | {PINNED: version}


def _with_place(record: Record, changes: Mapping[str, Any]) -> Record:
    """Return the record with its changed place in a conversation."""
    place = {name: changes[name] for name in WHERE_SAID if name in changes}
    return replace(record, fields={**record.fields, **place})


def request_digest(draft: EntryDraft, supersedes: Sequence[str] = ()) -> str:
    """Return a digest that identifies the request of a keyed write.

    It covers the content and the superseded entries, not the writer. The place in a
    conversation counts only if the caller stated it. The position of a message in its
    file does not count; the metadata holds it.
    """
    left_out = {"key", "scope", "agent", "run", "origins"}
    had_always: dict[str, Any] = {}
    if isinstance(
        draft, ImportedDraft
    ):  # its digest has the artifact's id of the exporting store, and a number that no entry had
        had_always = {"artifact_id": draft.artifact_was, "number": None}
    else:
        left_out |= {
            name for name in WHERE_SAID if isinstance(draft, MessageDraft) or getattr(draft, name) is None
        }
        left_out |= {"artifact_id"} if draft.artifact_id is None else set()
    left_out |= {DATA} if draft.data is None else set()
    left_out |= {"searchable"} if draft.searchable else set()
    if draft.lifetime is None:
        left_out |= {LIFETIME}
    elif isinstance(draft, ImportedDraft):  # reads move the expiry between two exports
        left_out |= {"expires_at"}
    asked = draft.model_dump(mode="json", exclude=left_out) | had_always | {"scope": draft.scope.text}
    if draft.vector is not None:
        asked["vector"] = blake2b(draft.vector, digest_size=16).hexdigest()
    if supersedes:
        asked["supersedes"] = sorted(supersedes)
    return blake2b(json.dumps(asked, sort_keys=True, ensure_ascii=False).encode(), digest_size=16).hexdigest()


_OWN = (*ORIGIN_KINDS, *WHERE_SAID, "artifact_id", "type", "tags", "valid_to")


def _said_of(record: Record) -> dict[tuple[str, str], Any]:
    """Return all values that an update or an upsert may change, each by its name.

    Each key of the metadata is a value of its own.
    """
    own = {name: record.fields.get(name) for name in _OWN} | {
        name: shown_texts(record).get(name) for name in ("title", "content")
    }
    own |= {DATA: record.body.get(DATA), "searchable": is_searchable(record), "vector": own_vector(record)}
    metadata: Mapping[str, Any] = record.body.get("metadata") or {}
    ends = {"expires_at": record.expires_at, LIFETIME: lifetime_of(record)}
    return {("own", name): value for name, value in {**own, **ends}.items()} | {
        ("metadata", name): value for name, value in metadata.items()
    }


_HOLDS = (dict, list, tuple)
_scope = lru_cache(maxsize=4_096)(Scope.parse)
"""The parsed scope of a record, cached by its text. The text was validated when it was
written.
"""


def copy_json(value: Any) -> Any:
    """Copy JSON, so that callers never share objects with an in-memory store."""
    if isinstance(value, dict):
        return {
            name: copy_json(inner) if isinstance(inner, _HOLDS) else inner for name, inner in value.items()
        }
    return [copy_json(inner) for inner in value] if isinstance(value, list | tuple) else value
