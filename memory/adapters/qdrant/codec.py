"""Converts rows to payloads and back, with a checksum that detects changes.

A payload holds the whole record, readable in any Qdrant tool. Vectors serve only
searches and can be rebuilt from it. Declared fields are nested under the name of their
collection (`entries.type`), so that two collections may give one name two types. JSON
parts of a record (body, pending steps, notes) are JSON text, because engines reorder
keys and round numbers.

Real numbers are text, too: the shortest one that reads back as the same 64 bits.
Engines store payloads as JSON and may read a neighbour of the double. (Edge 0.9 changes
one in five of those with 17 digits.) The engine's own number is in `reals`, only for
filters and orders. It is never returned, and the checksum ignores it. `rounding` says
how far off it may be.
"""

from __future__ import annotations

import marshal
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

from memory.adapters.qdrant.keys import ancestor_words, partition_word, rank
from memory.ports import lexical
from memory.ports.batch import StoredRow
from memory.ports.collections import Collection, FieldType, field_types
from memory.ports.comparisons import SYSTEM_TYPES
from memory.ports.heads import BESIDE
from memory.ports.query import VECTOR, WORDS, Head
from memory.ports.record import Corrupt, FieldValue, Key, Partition, Role, Stored
from memory.ports.rows import RECORD, Row, cached_moment, size_of, stored_of

Payload: TypeAlias = dict[str, Any]

SCHEMA = 4
"""Version of the payloads' layout. Payloads of other versions are not read."""
REALS = "reals"
"""Payload key of the engine's own numbers for real fields."""
UNTAGGED = "untagged"
"""Payload key of the names of empty tag fields, as engines ignore empty lists."""
LENGTH = "length"
"""Payload key of the number of words. Earlier releases did not write it."""
ANCESTORS = "ancestors"
"""Payload key of the subtrees that a record is in; see `keys.ancestor_words`.

Earlier releases did not write it, and had no paths.
"""
QUARANTINED = "quarantined"
"""Payload key that is 1 for a damaged payload found by a read.

Nothing else changes, because the engine's indexes and an erasure must still find it.
"""
GENERATION = "generation"

_SEALED = (
    *(
        "schema",
        "collection",
        "kind",
        "tenant",
        "id",
        "scope",
        "version",
        "generation",
        "role",
        "tier",
        "created_at",
        "updated_at",
        "expires_at",
    ),
    *(
        "discard_at",
        "accesses",
        "accessed_at",
        "cached_at",
        "epoch",
        "previous",
        "owed",
        "note",
        "body",
        "vector",
        "partition",
        "number",
    ),
)
"""Keys that the checksum covers besides fields and texts, in this order.

It does not cover writers' tokens, which do not change the record, nor derived data for
filters and searches.
"""
_SAME = (
    *(
        "tenant",
        "id",
        "version",
        "scope",
        "generation",
        "role",
        "tier",
        "created_at",
        "updated_at",
        "expires_at",
        "discard_at",
        "accesses",
    ),
    *("accessed_at", "cached_at", "epoch", "previous", "owed", "note", "body"),
)
"""Keys with the same value in payloads and rows."""
_OF_HEADS = ("tenant", "id", "scope", "version", "role", "tier", "generation")
_ROLES = {role.value: role for role in Role}


def pack_bytes(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode("ascii")


_PACK: dict[FieldType, Callable[[Any], Any]] = {
    FieldType.REAL: repr,
    FieldType.TAGS: list,
    FieldType.BYTES: pack_bytes,
}
_UNPACK: dict[FieldType, Callable[[Any], Any]] = {
    FieldType.REAL: float,
    FieldType.TAGS: tuple,
    FieldType.BYTES: a2b_base64,
}
_VALUES: dict[FieldType, Callable[[Any], FieldValue]] = {
    **_UNPACK,
    FieldType.BOOLEAN: bool,
    FieldType.TIME: cached_moment,
}
"""Decoders of field types whose payload form differs from the value."""


# -- the checksum ----------------------------------------------------------------------


def checksum(payload: Mapping[str, Any]) -> str:
    """Digest the whole payload with 64 bits.

    It hashes marshal format 2: type, length and content of each value.
    """
    get = payload.get
    fields, texts = get(get("collection") or ""), get("texts")
    said: Any = (
        list(map(get, _SEALED)),
        sorted(fields.items()) if fields else None,
        sorted(texts.items()) if texts else None,
    )
    return blake2b(marshal.dumps(said, 2), digest_size=8).hexdigest()


def is_sound(payload: Mapping[str, Any]) -> bool:
    """Whether the payload is as it was written."""
    try:
        return payload.get("checksum") == checksum(payload)
    except (TypeError, ValueError, AttributeError):
        return False


def to_quarantine(payload: Payload) -> bool:
    """Whether the payload is damaged and not in quarantine yet.

    Payloads of other releases are not touched.
    """
    return payload.get("schema") == SCHEMA and QUARANTINED not in payload and not is_sound(payload)


def _with_checksum(payload: Payload) -> Payload:
    """Return the payload without empty values and with its checksum."""
    said = {name: value for name, value in payload.items() if value is not None}
    said["checksum"] = checksum(said)
    return said


# -- to payloads -----------------------------------------------------------------------


def payload_of(collection: Collection, row: Row) -> Payload:
    """Encode a row as a payload."""
    payload: Payload = {name: getattr(row, name) for name in _SAME}
    payload |= {
        "schema": SCHEMA,
        "collection": collection.name,
        "kind": row.type,
        "rank": rank(row.id),
        "owing": int(row.owed is not None),
        "generation": row.generation if row.type == RECORD else None,
        "accesses": row.accesses if row.type == RECORD else None,
    }
    if row.type == RECORD:
        types = field_types(collection)
        packed = {
            name: _PACK[types[name]](value) if types.get(name) in _PACK else value
            for name, value in row.fields.items()
        }
        payload |= {
            "partition": partition_word(collection.name, Partition(row.tenant, row.scope or "")),
            ANCESTORS: ancestor_words(collection.name, Partition(row.tenant, row.scope or "")) or None,
            "vector": None if row.vector is None else pack_bytes(row.vector),
            "bytes": size_of(row._replace(fields=packed)),
            "texts": dict(row.texts) or None,
            "counted": None if row.words is None else row.words.decode(),
            LENGTH: None if row.words is None else lexical.length(row.words),
            UNTAGGED: [name for name, value in row.fields.items() if value == () and name in types] or None,
            REALS: {name: value for name, value in row.fields.items() if types.get(name) is FieldType.REAL}
            or None,
            collection.name: packed or None,
        }
    return _with_checksum(payload)


def over(collection: Collection, payload: Payload, before: Payload | None) -> Payload:
    """Add data of fields that only other releases declare, from the replaced payload.

    These are the values by which the engine compares the fields.
    """
    others = {*((before or {}).get(collection.name) or {})} - field_types(collection).keys() & (
        payload.get(collection.name) or {}
    ).keys()
    if not before or not others:
        return payload
    reals = {name: number for name, number in (before.get(REALS) or {}).items() if name in others}
    untagged = [name for name in before.get(UNTAGGED) or () if name in others]
    kept = {
        REALS: {**(payload.get(REALS) or {}), **reals},
        UNTAGGED: [*(payload.get(UNTAGGED) or ()), *untagged],
    }
    return {**payload, **{name: value for name, value in kept.items() if value}}


def generation_payload(partition: Partition, number: int) -> Payload:
    """Return the payload of the point that holds a partition's generation."""
    return _with_checksum(
        {
            "schema": SCHEMA,
            "kind": GENERATION,
            "tenant": partition.tenant,
            "scope": partition.scope,
            "number": number,
        }
    )


# -- from payloads ---------------------------------------------------------------------


def row_in(collection: Collection, payload: Payload) -> Row:
    """Decode a sound payload.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: It is not a valid payload.
    """
    get = payload.get
    if payload["schema"] != SCHEMA:
        raise ValueError(f"schema {payload['schema']}")
    types, vector, counted = field_types(collection), get("vector"), get("counted")
    return Row(
        payload["tenant"],
        payload["id"],
        payload["kind"],
        payload["version"],
        get("scope"),
        get("generation", 0),
        get("role"),
        get("tier"),
        get("created_at"),
        get("updated_at"),
        get("expires_at"),
        get("discard_at"),
        get("accesses", 0),
        get("accessed_at"),
        get("cached_at"),
        get("epoch"),
        get("previous"),
        get("owed"),
        get("note"),
        get("body"),
        {
            name: _UNPACK[types[name]](value) if types.get(name) in _UNPACK else value
            for name, value in (get(collection.name) or {}).items()
        },
        get("texts") or {},
        None if vector is None else a2b_base64(vector),
        None if counted is None else counted.encode(),
    )


def held_in(collection: Collection, payload: Payload | None) -> StoredRow:
    """Decode a point's payload for a decision; its token is the payload."""
    if payload is None:
        return StoredRow()
    problem = "" if is_sound(payload) else "checksum mismatch"
    if not problem:
        try:
            return StoredRow(row_in(collection, payload), payload)
        except (TypeError, ValueError, KeyError, AttributeError) as exc:
            problem = f"cannot be read: {type(exc).__name__}"
    version = payload.get("version")
    return StoredRow(
        None, payload, problem, version if isinstance(version, int) and 0 < version < 2**62 else None
    )


def stored_in(collection: Collection, payload: Payload) -> Stored:
    """Decode a payload; a damaged one becomes `Corrupt`."""
    held = held_in(collection, payload)
    return Corrupt(key_of(payload), held.problem) if held.row is None else stored_of(collection, held.row)


def key_of(payload: Payload) -> Key:
    """Return the key of a payload, which may be damaged itself."""
    return Key(str(payload.get("tenant", "")), str(payload.get("id", "")))


# -- heads -----------------------------------------------------------------------------


def head_keys(collection: Collection, select: frozenset[str]) -> tuple[str, ...]:
    """Return the payload keys that heads need."""
    system = sorted(name for name in select if name in SYSTEM_TYPES)
    declared = [collection.name] if select - BESIDE - set(system) else []
    return (
        *_OF_HEADS,
        *system,
        *declared,
        *(["counted"] if WORDS in select else []),
        *(["vector"] if VECTOR in select else []),
    )


def head_in(collection: Collection, payload: Payload, select: frozenset[str]) -> Head | None:
    """Decode a head from a payload with the `head_keys`; None if a value is invalid."""
    get = payload.get
    try:
        vector, declared = get("vector") if VECTOR in select else None, get(collection.name) or {}
        return Head(
            Key(payload["tenant"], payload["id"]),
            payload["scope"],
            payload["version"],
            _ROLES[payload["role"]],
            payload["tier"],
            payload["generation"],
            {
                name: value if told is None else told(value)
                for name, of_system, told in _field_decoders(collection, select)
                if (value := get(name) if of_system else declared.get(name)) is not None
            },
            _words(collection, get("counted")) if WORDS in select else None,
            None if vector is None else a2b_base64(vector),
        )
    except (TypeError, ValueError, KeyError, OverflowError, AttributeError):
        return None


def _words(collection: Collection, counted: str | None) -> bytes:
    return lexical.index(collection, {}) if counted is None else counted.encode()


@lru_cache(maxsize=256)
def _field_decoders(
    collection: Collection, select: frozenset[str]
) -> Sequence[tuple[str, bool, Callable[[Any], FieldValue] | None]]:
    """Return the decoder of each selected field.

    Each item has the name, whether it is a system field, and a function; None for no
    conversion.
    """
    types = {name: SYSTEM_TYPES.get(name) or field_types(collection)[name] for name in select - BESIDE}
    return [
        (name, name in SYSTEM_TYPES, _ROLES.__getitem__ if name == "role" else _VALUES.get(kind))
        for name, kind in types.items()
    ]
