"""What is stored to payloads and back, and the checksum that tells whether a payload is as it was written.

A payload holds all there is to a record, readable in any Qdrant tool; vectors beside it are only for finding it and can be made again
from it. Declared fields stand under the name of their collection (`entries.type`), so that two collections may declare one name with
two types. What is JSON in a record (body, owed steps, notes) is JSON text here: engines reorder keys and round numbers, text they keep.

So are real numbers, as the shortest text that reads back as the same 64 bits: engines keep payloads as JSON, and the double they read from it
may be the neighbour of the one that was written (Edge 0.9 changes one in five of those with 17 digits). The engine's own number stands beside it
under `reals`, for filters and orders only: nobody is handed it, the checksum leaves it out, and `NEAR` says how far off it may be.
"""

from __future__ import annotations

import json
import marshal
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

from memory.adapters.qdrant.keys import partition_word, rank
from memory.domain.time import micros, moment
from memory.ports import lexical
from memory.ports.collections import Collection, FieldType
from memory.ports.comparing import SYSTEM_TYPES
from memory.ports.heads import BESIDE
from memory.ports.query import VECTOR, WORDS, Head, RowType
from memory.ports.record import Corrupt, FieldValue, JsonValue, Key, Mark, Owed, Partition, Record, Role, Standing, Tombstone
from memory.ports.storable import HALF_A_CHARACTER, Unstorable, encode_integer, encode_real

Payload: TypeAlias = dict[str, Any]

SCHEMA = 3
"""The form of payloads. A later form gets a higher number, and readers keep reading the earlier ones; of the first none was ever released."""
REALS = "reals"
"""Where a payload has the engine's own numbers for its real fields."""
RECORD, MARK, TOMBSTONE, GENERATION = RowType.RECORD.value, RowType.MARK.value, RowType.TOMBSTONE.value, "generation"

_SEALED = (
    "schema", "collection", "kind", "tenant", "id", "partition", "scope", "version", "generation", "role", "tier", "created_at", "updated_at",
    "expires_at", "accesses", "accessed_at", "cached_at", "epoch", "previous", "owing", "owed", "discard_at", "to", "note", "body", "vector",
    "rank", "bytes", "untagged", "number",
)  # fmt: skip
"""What the checksum covers beside fields and texts, in this order. Not in it are tokens of writers, which change nothing of what is said, and the
engine's own real numbers, which it changes itself."""
_OF_HEADS = ("tenant", "id", "scope", "version", "role", "tier", "generation")

_ROLES = {role.value: role for role in Role}
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_from_json = json.JSONDecoder().decode
_moment = lru_cache(maxsize=4096)(moment)


# -- values -----------------------------------------------------------------------------------------------------------


def _text(value: str) -> str:
    return value if type(value) is str else str.__str__(value)


def pack_bytes(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode("ascii")


_ENCODERS: dict[FieldType, Callable[[str, Any], Any]] = {
    FieldType.TEXT: lambda _, v: _text(v),
    FieldType.INTEGER: encode_integer,
    FieldType.REAL: lambda name, v: repr(encode_real(name, v)),
    FieldType.BOOLEAN: lambda _, v: int(v),
    FieldType.TIME: lambda _, v: micros(v),
    FieldType.TAGS: lambda _, v: [_text(tag) for tag in v],
    FieldType.BYTES: lambda _, v: pack_bytes(v),
}
_DECODERS: dict[FieldType, Callable[[Any], FieldValue]] = {
    FieldType.REAL: float,
    FieldType.BOOLEAN: bool,
    FieldType.TIME: _moment,
    FieldType.TAGS: tuple,
    FieldType.BYTES: a2b_base64,
}
"""Of those whose payload does not hold the value itself."""


def _json(name: str, value: JsonValue) -> str:
    try:
        return _to_json(value)
    except (ValueError, TypeError, RecursionError) as exc:
        raise Unstorable(f"{name}: {exc}") from exc


def _owed_text(owed: Iterable[Owed]) -> str:
    return _json("owed", [[o.id, o.step, dict(o.data)] for o in owed])


def _owed(text: str | None) -> tuple[Owed, ...]:
    return tuple([Owed(*step) for step in _from_json(text)]) if text else ()


def _when(at: int | None) -> datetime | None:
    return None if at is None else _moment(at)


# -- the checksum -----------------------------------------------------------------------------------------------------


def checksum(payload: Mapping[str, Any]) -> str:
    """A 64-bit digest of everything the payload says, as marshal's version 2 writes it: type, length and content of each value."""
    get = payload.get
    fields, texts = get(get("collection") or ""), get("texts")
    said = (list(map(get, _SEALED)), sorted(fields.items()) if fields else None, sorted(texts.items()) if texts else None)
    return blake2b(marshal.dumps(said, 2), digest_size=8).hexdigest()


def is_sound(payload: Mapping[str, Any]) -> bool:
    """Whether the payload is as it was written."""
    try:
        return payload.get("checksum") == checksum(payload)
    except (TypeError, ValueError, AttributeError):
        return False


def _sealed(payload: Payload) -> Payload:
    """The payload without what has no value, with its checksum."""
    said = {name: value for name, value in payload.items() if value is not None}
    try:
        said["checksum"] = checksum(said)
    except ValueError as exc:
        raise Unstorable("record: holds a value of a type of its own") from exc
    return said


# -- to payloads ------------------------------------------------------------------------------------------------------


def payload_of(collection: Collection, standing: Standing, before: Payload | None = None) -> Payload:
    """What stands under a key as its payload; `before` is what it was read from. Raises `Unstorable`."""
    payload: Payload = {
        "schema": SCHEMA,
        "collection": collection.name,
        "tenant": _text(standing.key.tenant),
        "id": _text(standing.key.id),
        "rank": rank(standing.key.id),
        "version": encode_integer("version", standing.version),
        "owing": int(bool(standing.owed)),
        "owed": _owed_text(standing.owed) if standing.owed else None,
    }
    if isinstance(standing, Record):
        payload["kind"] = RECORD
        _add_record(payload, collection, standing, before or {})
    else:
        payload["discard_at"] = None if standing.discard_at is None else micros(standing.discard_at)
        if isinstance(standing, Mark):
            payload |= {"kind": MARK, "scope": _text(standing.scope), "to": _text(standing.to)}
        else:
            payload |= {"kind": TOMBSTONE, "note": _json("note", dict(standing.note)) if standing.note else None}
    return _checked(_sealed(payload))


def _add_record(payload: Payload, collection: Collection, record: Record, before: Payload) -> None:
    # What is declared elsewhere only stays as it was read.
    fields: dict[str, Any] = {name: value for name, value in record.fields.items() if collection.field(name) is None}
    reals: dict[str, float] = {name: number for name, number in (before.get(REALS) or {}).items() if name in fields}
    untagged = [name for name in before.get("untagged") or () if name in fields]
    for declared in collection.fields:
        value = record.fields.get(declared.name)
        if value is not None:
            fields[declared.name] = encoded = _ENCODERS[declared.type](declared.name, value)
            if declared.type is FieldType.REAL:
                reals[declared.name] = float(encoded)
            if value == () and declared.type is FieldType.TAGS:
                untagged.append(declared.name)
    body = _json("body", dict(record.body))
    texts = {name: _text(text) for name, text in record.texts.items()}
    vector = None if record.vector is None else pack_bytes(record.vector)
    size = sum(map(_size, (*fields.values(), *texts.values(), body, vector)))
    payload |= {
        "partition": partition_word(collection.name, record.partition),
        "scope": _text(record.scope),
        "generation": encode_integer("generation", record.generation or 0),
        "role": record.role.value,
        "tier": _text(record.tier),
        "created_at": micros(record.created_at),
        "updated_at": micros(record.updated_at),
        "expires_at": None if record.expires_at is None else micros(record.expires_at),
        "accesses": encode_integer("accesses", record.accesses),
        "accessed_at": None if record.accessed_at is None else micros(record.accessed_at),
        "cached_at": None if record.cached_at is None else micros(record.cached_at),
        "epoch": None if record.epoch is None else _text(record.epoch),
        "previous": None if record.previous is None else encode_integer("previous", record.previous),
        "body": body if record.body else None,
        "vector": vector,
        "bytes": size,
        "untagged": untagged or None,
        "texts": texts or None,
        REALS: reals or None,
        collection.name: fields or None,
    }


def _size(value: object) -> int:
    return 0 if value is None else len(value.encode("utf-8", "replace")) if isinstance(value, str) else 8


def generation_payload(partition: Partition, number: int) -> Payload:
    """A partition's generation, as the point that holds it."""
    payload = {
        "schema": SCHEMA,
        "kind": GENERATION,
        "tenant": partition.tenant,
        "scope": partition.scope,
        "number": encode_integer("number", number),
    }
    return _checked(_sealed(payload))


def _checked(payload: Payload) -> Payload:
    """Refuse text that is none, wherever it stands."""
    try:
        _to_json(payload).encode()
    except UnicodeEncodeError as exc:
        raise Unstorable(HALF_A_CHARACTER) from exc
    return payload


# -- from payloads ----------------------------------------------------------------------------------------------------


class Reader:
    """Reads the payloads of one collection."""

    def __init__(self, collection: Collection) -> None:
        self.name = collection.name
        self._collection = collection
        self._decoders = {f.name: _DECODERS[f.type] for f in collection.fields if f.type in _DECODERS}

    def read(self, payload: Payload) -> Standing | Corrupt:
        """What the payload says; `Corrupt` where it is not as it was written."""
        if not is_sound(payload):
            return Corrupt(key_of(payload), "checksum mismatch")
        try:
            return self._read(payload)
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as exc:
            return Corrupt(key_of(payload), f"cannot be read: {type(exc).__name__}")

    def _read(self, payload: Payload) -> Standing:
        get = payload.get
        if payload["schema"] != SCHEMA:
            raise ValueError(f"schema {payload['schema']}")
        key = Key(payload["tenant"], payload["id"])
        kind = payload["kind"]
        if kind == MARK:
            return Mark(key, payload["scope"], payload["version"], payload["to"], _owed(get("owed")), _when(get("discard_at")))
        if kind == TOMBSTONE:
            note = get("note")
            return Tombstone(key, payload["version"], _owed(get("owed")), _from_json(note) if note else {}, _when(get("discard_at")))
        if kind != RECORD:
            raise ValueError(f"kind {kind}")
        decoders, body, vector = self._decoders, get("body"), get("vector")
        fields = get(self.name) or {}
        return Record(
            key,
            payload["scope"],
            payload["version"],
            _moment(payload["created_at"]),
            _moment(payload["updated_at"]),
            _when(get("expires_at")),
            {name: decoders[name](value) if name in decoders else value for name, value in fields.items()},
            _from_json(body) if body else {},
            get("texts") or {},
            None if vector is None else a2b_base64(vector),
            payload["generation"],
            _ROLES[payload["role"]],
            payload["tier"],
            _owed(get("owed")),
            get("previous"),
            payload["accesses"],
            _when(get("accessed_at")),
            _when(get("cached_at")),
            get("epoch"),
        )

    def keys(self, select: frozenset[str]) -> tuple[str, ...]:
        """What of payloads their heads take."""
        system = sorted(name for name in select if name in SYSTEM_TYPES)
        declared = [self.name] if select - BESIDE - set(system) else []
        return (*_OF_HEADS, *system, *declared, *(["texts"] if WORDS in select else []), *(["vector"] if VECTOR in select else []))

    def head(self, payload: Payload, select: frozenset[str]) -> Head | None:
        """The head of a payload, of which the `keys` are there; None where one of its values is none."""
        get = payload.get
        try:
            vector = get("vector") if VECTOR in select else None
            return Head(
                Key(payload["tenant"], payload["id"]),
                payload["scope"],
                payload["version"],
                _ROLES[payload["role"]],
                payload["tier"],
                payload["generation"],
                {name: value for name in select - BESIDE if (value := self._named(payload, name)) is not None},
                lexical.index(self._collection, get("texts") or {}) if WORDS in select else None,
                None if vector is None else a2b_base64(vector),
            )
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError):
            return None

    def _named(self, payload: Payload, name: str) -> FieldValue:
        """The value of a declared or system field."""
        if name in SYSTEM_TYPES:
            if name == "owing":
                return bool(payload.get(name))
            if name == "role":
                return _ROLES[payload[name]]
            value = payload.get(name)
            return _when(value) if SYSTEM_TYPES[name] is FieldType.TIME else value
        value = (payload.get(self.name) or {}).get(name)
        return value if value is None or name not in self._decoders else self._decoders[name](value)


def key_of(payload: Payload) -> Key:
    """The key of a payload that may be damaged there too."""
    return Key(str(payload.get("tenant", "")), str(payload.get("id", "")))


@lru_cache(maxsize=256)
def reader_of(collection: Collection) -> Reader:
    return Reader(collection)
