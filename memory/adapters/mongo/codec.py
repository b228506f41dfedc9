"""Converts rows to documents and back.

A document uses the names of `memory.ports.rows.Row`, so that people can read it. Fields
and texts are nested under their own names. Its `_id` holds the tenant and the record's
id. MongoDB's own index keeps it unique, also on a sharded cluster whose shard key
begins with the tenant.

A document also has a `checksum` of the row and a `token` that identifies this version.
Indexes use `owing`, the `stems` and `length` of the words, and the copies of `paths`.
JSON stays text, because BSON cannot store all of it: keys that are empty, contain NUL
or a dot, or begin with `$`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from operator import index as integer
from typing import Any, TypeAlias

import bson
from bson.int64 import Int64

from memory.adapters.mongo.paths import PATHS, Labels, copies_of
from memory.ports import lexical
from memory.ports.batch import NOTHING, StoredRow
from memory.ports.collections import Collection
from memory.ports.comparisons import SYSTEM_TYPES
from memory.ports.heads import BESIDE
from memory.ports.query import VECTOR, WORDS, Head, Order
from memory.ports.record import FieldValue, Key, Role
from memory.ports.rows import CORRUPT, RECORD, Row, checksum, decode_value, size_of
from memory.ports.storable import Unstorable

Document: TypeAlias = dict[str, Any]

QUARANTINED = "quarantined"
"""Marks a document that replaces a damaged one, whose copy is in quarantine.

Every replacement keeps the mark, so that a deletion finds the copy.
"""
LARGEST = 16 * 2**20 - 2**16
"""Document limit of 16 MiB, less room for the update around it."""
DERIVED = ("words", "stems", "length")
"""Fields derived from the words of a record's texts; no checksum covers them."""
WITHOUT_WORDS: Mapping[str, Any] = {"words": 0, "stems": 0}
"""Projection that leaves out the words."""
EVERYWHERE: Mapping[str, str] = {"id": "_id.id", "tenant": "_id.tenant"}
"""Fields that queries over everything use as their last sort keys."""

_ROOM = 2**20
"""Most bytes of packed words.

Their stems take as much again and are as many index entries. Of more words, only the
first are found.
"""
_SMALL = 2**16
"""A document with at most this many characters and tags is never too large."""
_OF_RECORDS_ALONE = ("generation", "accesses", "fields", "texts")
_OF_HEADS = ("tenant", "id", "scope", "version", "type", "generation", "role", "tier")
_tokens = random.Random()  # noqa: S311 - tokens need not be secret, only unique
os.register_at_fork(after_in_child=_tokens.seed)


def address(key: Key) -> Document:
    """Return the `_id` of a key's document."""
    return {"tenant": key.tenant, "id": key.id}


def key_in(document: Mapping[str, Any]) -> Key:
    return Key(document["_id"]["tenant"], document["_id"]["id"])


def is_text(value: str) -> bool:
    """Whether a document can store the text; an unpaired surrogate cannot be stored."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- writing ---------------------------------------------------------------------------


def document_of(row: Row, labels: Labels | None = None) -> Document:
    """Encode a row, with a new token. Raises `Unstorable` if it is too large.

    `labels` names the paths in bodies of which documents have a copy.
    """
    document: Document = {"_id": {"tenant": row.tenant, "id": row.id}}
    document |= {name: value for name, value in zip(Row._fields, row, strict=True) if value is not None}
    if row.type != RECORD:
        for name in _OF_RECORDS_ALONE:
            del document[name]
        if row.tier is not None:
            document["to"] = document.pop("tier")
    if row.owed is not None:
        document["owing"] = True
    if row.words is not None:
        document |= words_of(row.words)
    if labels and row.type == RECORD:
        document[PATHS] = copies_of(row.body, labels)
    document |= {"token": _tokens.getrandbits(63), "checksum": checksum(row)}
    elements = sum([len(value) for value in row.fields.values() if isinstance(value, tuple | list)])
    if (
        size_of(row) + elements + len(row.owed or "") + len(row.note or "") > _SMALL
        and (size := len(bson.encode(document))) > LARGEST
    ):
        raise Unstorable(f"record: its document takes {size} bytes, and MongoDB stores at most {LARGEST}")
    return document


def words_of(packed: bytes) -> Document:
    """Return the words in the form of documents."""
    length = lexical.length(packed)
    if len(packed) > _ROOM:
        packed = lexical.truncate(packed, _ROOM)
    stems = lexical.tokens(packed)
    return (
        {"words": packed, "stems": stems, "length": length} if stems else {"words": packed, "length": length}
    )


# -- reading ---------------------------------------------------------------------------


def held_in(document: Document | None) -> StoredRow:
    """Decode a document for a decision or an answer; its token is the document."""
    if document is None:
        return NOTHING
    try:
        row = _row(document)
        sound = document["checksum"] == checksum(row) and document["_id"] == {
            "tenant": row.tenant,
            "id": row.id,
        }
        problem = (
            ""
            if sound and document.get("owing", False) is (row.owed is not None)
            else "its checksum does not match"
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        problem = f"it cannot be read ({type(exc).__name__})"
    if not problem and row.type != CORRUPT:
        return StoredRow(row, document)
    version = document.get("version")
    known = int(version) if isinstance(version, int) and version else None
    return StoredRow(None, document, problem or str(document.get("note")), known)


def _row(document: Mapping[str, Any]) -> Row:
    get, of_record = document.get, document["type"] == RECORD
    return Row(
        document["tenant"],
        document["id"],
        document["type"],
        integer(document["version"]),
        get("scope"),
        integer(document["generation"]) if of_record else 0,
        get("role"),
        get("to", get("tier")),
        _maybe(get("created_at")),
        _maybe(get("updated_at")),
        _maybe(get("expires_at")),
        _maybe(get("discard_at")),
        integer(document["accesses"]) if of_record else 0,
        _maybe(get("accessed_at")),
        _maybe(get("cached_at")),
        get("epoch"),
        _maybe(get("previous")),
        get("owed"),
        get("note"),
        get("body"),
        {
            name: value if value.__class__ is str else _value(value)
            for name, value in get("fields", {}).items()
        },
        get("texts", {}),
        get("vector"),
        get("words"),
    )


def _maybe(value: Any) -> int | None:
    return None if value is None else integer(value)


def _value(value: Any) -> Any:
    """Return a field's value in the form of rows, declared or not."""
    if value.__class__ is Int64:
        return int(value)
    return tuple(value) if value.__class__ is list else value


# -- heads -----------------------------------------------------------------------------


def projection(select: frozenset[str], order: Sequence[Order] = ()) -> Mapping[str, Any]:
    """Return a projection to the fields of heads and the sort keys of a page."""
    named = {*select - BESIDE, *[by.field for by in order]}
    paths = [name if name in SYSTEM_TYPES else f"fields.{name}" for name in sorted(named)]
    return dict.fromkeys(
        [
            *_OF_HEADS,
            *paths,
            *(["words"] if WORDS in select else []),
            *(["vector"] if VECTOR in select else []),
        ],
        1,
    )


def head_in(collection: Collection, document: Mapping[str, Any], select: frozenset[str]) -> Head | None:
    """Decode the head of a projected document; None if a value is invalid."""
    try:
        return Head(
            key_in(document),
            document["scope"],
            int(document["version"]),
            Role(document["role"]),
            document["tier"],
            int(document["generation"]),
            {
                name: value
                for name in select - BESIDE
                if (value := value_in(collection, document, name)) is not None
            },
            document.get("words", lexical.NO_WORDS) if WORDS in select else None,
            document.get("vector") if VECTOR in select else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def value_in(collection: Collection, document: Mapping[str, Any], name: str) -> FieldValue:
    """Return the value of a declared or system field."""
    value = raw_value_in(document, name)
    if name == "role":
        return Role(value)
    kind = SYSTEM_TYPES.get(name)
    if kind is None:
        declared = collection.field(name)
        assert declared is not None  # noqa: S101 - undeclared fields are never queried
        kind = declared.type
    return None if value is None else decode_value(kind, _value(value))


def raw_value_in(document: Mapping[str, Any], name: str) -> Any:
    """Return the stored value of a field, which may be damaged."""
    if name == "owing":
        return bool(document.get("owing"))
    if name in SYSTEM_TYPES:
        return document.get(name)
    fields = document.get("fields")
    return fields.get(name) if isinstance(fields, dict) else None
