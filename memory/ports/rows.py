"""Flat rows: the common stored form below the port.

This module encodes a stored item as a row and decodes it. An adapter only lays out the
columns. Moments are microseconds since 1970, booleans are 0 or 1, and JSON is text that
is written once. A row shares no object with a caller.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from memory.domain.time import micros, micros_or_none, moment
from memory.ports import lexical
from memory.ports.collections import Collection, FieldType, field_types
from memory.ports.query import RowType
from memory.ports.record import (
    Corrupt,
    FieldValue,
    JsonValue,
    Key,
    Mark,
    PendingStep,
    Record,
    Role,
    Standing,
    Tombstone,
)

RECORD, MARK, TOMBSTONE = RowType.RECORD.value, RowType.MARK.value, RowType.TOMBSTONE.value
CORRUPT = "corrupt"
"""The type of the bare row that replaces a damaged one.

The adapter has moved the damaged row into its quarantine. The bare row has only key and
version.
"""

_ROLES = {role.value: role for role in Role}
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_scanned = json.JSONDecoder().raw_decode
cached_moment = lru_cache(maxsize=4096)(
    moment
)  # one record has the same moment several times, and so have records written together


class Row(NamedTuple):
    """The item under a key as a flat row.

    Columns that its type does not have are None, or 0 or empty if None is not possible.
    """

    tenant: str
    id: str
    type: str
    version: int
    scope: str | None = None
    """None for a tombstone, which names no scope."""
    generation: int = 0
    role: str | None = None
    tier: str | None = None
    """The tier that the record moved to; for marks only."""
    created_at: int | None = None
    updated_at: int | None = None
    expires_at: int | None = None
    discard_at: int | None = None
    accesses: int = 0
    accessed_at: int | None = None
    cached_at: int | None = None
    epoch: str | None = None
    previous: int | None = None
    owed: str | None = None
    """JSON of `[[id, step, data], …]`; None if no step is pending."""
    note: str | None = None
    body: str | None = None
    """JSON; None if it is empty."""
    fields: Mapping[str, Any] = {}
    """Fields that have a value.

    They are texts, integers (also for booleans and moments), real numbers, bytes, and
    tags as tuples of texts.
    """
    texts: Mapping[str, str] = {}
    vector: bytes | None = None
    words: bytes | None = None
    """The words of the texts, as `memory.ports.lexical` packs them.

    None for a collection without texts. They are derived: no checksum covers them.
    """

    @property
    def key(self) -> Key:
        return Key(self.tenant, self.id)


# -- to rows ---------------------------------------------------------------------------


def row_of(collection: Collection, standing: Standing, words: bytes | None = None) -> Row:
    """Encode an item that the port's checks have accepted.

    The checks are in `memory.ports.record_validation`.

    Args:
        words: The packed words of the same texts, if known. Otherwise they are counted.
    """
    key = standing.key
    tenant, record_id = _text(key.tenant), _text(key.id)
    owed = json_of([[o.id, o.step, dict(o.data)] for o in standing.owed]) if standing.owed else None
    if isinstance(standing, Mark):
        scope, to = _text(standing.scope), _text(standing.to)
        return Row(
            tenant,
            record_id,
            MARK,
            standing.version,
            scope,
            tier=to,
            discard_at=micros_or_none(standing.discard_at),
            owed=owed,
        )
    if isinstance(standing, Tombstone):
        note = json_of(dict(standing.note)) if standing.note else None
        return Row(
            tenant,
            record_id,
            TOMBSTONE,
            standing.version,
            discard_at=micros_or_none(standing.discard_at),
            owed=owed,
            note=note,
        )
    texts = {name: _text(text) for name, text in standing.texts.items()}
    if words is None and collection.texts:
        words = lexical.index(collection, texts)
    return Row(
        tenant,
        record_id,
        RECORD,
        standing.version,
        _text(standing.scope),
        standing.generation or 0,
        standing.role.value,
        _text(standing.tier),
        micros(standing.created_at),
        micros(standing.updated_at),
        micros_or_none(standing.expires_at),
        None,
        standing.accesses,
        micros_or_none(standing.accessed_at),
        micros_or_none(standing.cached_at),
        None if standing.epoch is None else _text(standing.epoch),
        standing.previous,
        owed,
        None,
        json_of(dict(standing.body)) if standing.body else None,
        _fields(collection, standing.fields) if standing.fields else {},
        texts,
        None if standing.vector is None else bytes(standing.vector),
        words,
    )


def corrupt_row(key: Key, version: int) -> Row:
    """Return the bare row that replaces a damaged one."""
    return Row(key.tenant, key.id, CORRUPT, version)


def json_of(value: JsonValue) -> str:
    """Encode a JSON value as its only text form.

    It has no spaces. Every character is kept as it is, except quotes, backslashes and
    control characters.
    """
    return _to_json(value)


def _text(value: str) -> str:
    """Return the plain text of a string, also of a subclass such as a `StrEnum`."""
    return value if type(value) is str else str.__str__(value)


_ENCODERS: dict[FieldType, Callable[[Any], Any]] = {
    FieldType.TEXT: _text,
    FieldType.INTEGER: int,
    FieldType.REAL: lambda v: float(v) + 0.0,  # engines may lose the sign of zero
    FieldType.BOOLEAN: int,
    FieldType.TIME: micros,
    FieldType.TAGS: lambda v: tuple(map(_text, v)),
    FieldType.BYTES: bytes,
}
_DECODERS: dict[FieldType, Callable[[Any], FieldValue]] = {
    FieldType.REAL: float,
    FieldType.BOOLEAN: bool,
    FieldType.TIME: cached_moment,
    FieldType.TAGS: tuple,
    FieldType.BYTES: bytes,
}
"""The encoders of field types whose rows do not hold the value itself."""


def encode_value(kind: FieldType, value: FieldValue) -> Any:
    """Encode a field's value.

    A comparison with None never holds, and its value stays None.
    """
    return _ENCODERS[kind](value)


def decode_value(kind: FieldType, value: Any) -> FieldValue:
    """Decode a field's value."""
    return _DECODERS[kind](value) if kind in _DECODERS else value


def _fields(collection: Collection, given: Mapping[str, FieldValue]) -> dict[str, Any]:
    """Encode the fields that have a value.

    An undeclared field comes from a row of a later release, and is already encoded.
    """
    types = field_types(collection)
    fields = {
        name: _ENCODERS[kind](value) for name, kind in types.items() if (value := given.get(name)) is not None
    }
    if len(fields) < len(given):
        fields |= {name: value for name, value in given.items() if name not in types and value is not None}
    return fields


@lru_cache(maxsize=256)
def _decoders(collection: Collection) -> Sequence[tuple[str, Callable[[Any], FieldValue]]]:
    return [(f.name, _DECODERS[f.type]) for f in collection.fields if f.type in _DECODERS]


# -- from rows -------------------------------------------------------------------------


def standing_of(collection: Collection, row: Row) -> Standing:
    """Decode the row.

    Raises:
        TypeError, ValueError, KeyError, OverflowError: A value of the row is invalid.
    """
    (
        tenant, record_id, kind, version, scope, generation, role, tier, created_at, updated_at,
        expires_at, discard_at, accesses, accessed_at, cached_at, epoch, previous, owed, note,
        body, fields, texts, vector, _,
    ) = row  # fmt: skip
    key = Key(tenant, record_id)
    owes = tuple([PendingStep(*step) for step in _from_json(owed)]) if owed else ()
    if kind == RECORD:
        values = dict(fields)
        for name, decode in _decoders(collection):
            if name in values:
                values[name] = decode(values[name])
        return Record(
            key,
            scope,  # type: ignore[arg-type]
            version,
            cached_moment(created_at),
            cached_moment(updated_at),
            _moment(expires_at),
            values,
            _from_json(body) if body else {},
            texts,
            vector,
            generation,
            _ROLES[role],  # type: ignore[index]
            tier,  # type: ignore[arg-type]
            owes,
            previous,
            accesses,
            _moment(accessed_at),
            _moment(cached_at),
            epoch,
        )
    if kind == MARK:
        return Mark(key, scope, version, tier, owes, _moment(discard_at))  # type: ignore[arg-type]
    if kind == TOMBSTONE:
        return Tombstone(key, version, owes, _from_json(note) if note else {}, _moment(discard_at))
    raise ValueError(f"a row of type {kind!r}")


def stored_of(collection: Collection, row: Row, problem: str = "") -> Standing | Corrupt:
    """Return the item for readers.

    It is `Corrupt` if there is a `problem` already or the row cannot be read.
    """
    if problem:
        return Corrupt(row.key, problem)
    try:
        return standing_of(collection, row)
    except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as exc:
        return Corrupt(row.key, f"cannot be read: {type(exc).__name__}")


def _moment(at: int | None) -> datetime | None:
    return None if at is None else cached_moment(at)


def _from_json(text: str) -> JsonValue:
    """Decode the text of `json_of`.

    It skips the search for spaces around the value, which takes as long as the rest.
    """
    value, end = _scanned(text)
    if end != len(text):
        raise ValueError("there is more behind the value")
    return value


# -- checksum and size -----------------------------------------------------------------


def checksum(row: Row) -> int:
    """Return a 64-bit digest of the row, apart from its words.

    It is for adapters that store columns instead of one sealed text. It digests the
    output of marshal's version 2, which is type, length and content of each value. That
    is by far the fastest encoding. A test pins that every Python writes the same.
    Fields and texts are digested by name, so a new declared field changes no checksum.
    """
    said: Any = (*row[:20], _by_name(row.fields), _by_name(row.texts), row.vector)
    return int.from_bytes(blake2b(marshal.dumps(said, 2), digest_size=8).digest(), "big", signed=True)


def _by_name(values: Mapping[str, Any]) -> Sequence[tuple[str, Any]] | None:
    return sorted(values.items()) if values else None


def size_of(row: Row) -> int:
    """Return the approximate bytes of the content: texts in UTF-8, and the vector."""
    return (
        sum(map(_room, row.texts.values()))
        + _room(row.body)
        + _room(row.vector)
        + sum(map(_room, row.fields.values()))
    )


def _room(value: Any) -> int:
    kind = value.__class__
    if kind is str:
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if kind is bytes:
        return len(value)
    return sum(map(_room, value)) if kind in (tuple, list) else 0
