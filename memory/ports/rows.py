"""The one form below the port: what stands under a key as a flat row, made and read
here, so that an adapter only lays its columns out.

Moments are microseconds since 1970, truth is 0 or 1, what is JSON in a record is text,
written once. Nothing in a row belongs to a caller.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from memory.domain.time import micros, moment
from memory.ports import lexical
from memory.ports.collections import Collection, FieldType
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
"""The type of the bare row that an adapter leaves where it has moved a damaged one into
its quarantine. It says key and version, nothing else.
"""

_ROLES = {role.value: role for role in Role}
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_scanned = json.JSONDecoder().raw_decode
cached_moment = lru_cache(maxsize=4096)(
    moment
)  # one record has the same moment several times, and so have records written together


class Row(NamedTuple):
    """What stands under a key. What its type does not have is None, and 0 or empty
    where that cannot be.
    """

    tenant: str
    id: str
    type: str
    version: int
    scope: str | None = None
    """None of a tombstone: it names no scope."""
    generation: int = 0
    role: str | None = None
    tier: str | None = None
    """Of a mark: the tier that the record moved to."""
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
    """JSON of `[[id, step, data], …]`; None where nothing is owed."""
    note: str | None = None
    body: str | None = None
    """JSON; None where it is empty."""
    fields: Mapping[str, Any] = {}
    """Fields that have a value: texts, integers (truth, moments), real numbers, bytes,
    and tags as tuples of texts.
    """
    texts: Mapping[str, str] = {}
    vector: bytes | None = None
    words: bytes | None = None
    """The texts' words as `memory.ports.lexical` packs them; None of a collection
    without texts. Derived: no checksum covers it.
    """

    @property
    def key(self) -> Key:
        return Key(self.tenant, self.id)


# -- to rows ---------------------------------------------------------------------------


def row_of(collection: Collection, standing: Standing, words: bytes | None = None) -> Row:
    """The row of what is to stand under a key, which the port's checks have let through
    (`memory.ports.record_validation`).

    `words` are those of the same texts, where they are known: they are counted
    otherwise.
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
            discard_at=_micros(standing.discard_at),
            owed=owed,
        )
    if isinstance(standing, Tombstone):
        note = json_of(dict(standing.note)) if standing.note else None
        return Row(
            tenant,
            record_id,
            TOMBSTONE,
            standing.version,
            discard_at=_micros(standing.discard_at),
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
        _micros(standing.expires_at),
        None,
        standing.accesses,
        _micros(standing.accessed_at),
        _micros(standing.cached_at),
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
    """The bare row that stays where a damaged one stood."""
    return Row(key.tenant, key.id, CORRUPT, version)


def json_of(value: JsonValue) -> str:
    """The one text of a JSON value: no spaces, every character but quotes, backslashes
    and control characters as it is.
    """
    return _to_json(value)


def _text(value: str) -> str:
    """Of a subclass (a `StrEnum` as a tier) the text alone."""
    return value if type(value) is str else str.__str__(value)


def _micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


_ENCODERS: dict[FieldType, Callable[[Any], Any]] = {
    FieldType.TEXT: _text,
    FieldType.INTEGER: int,
    FieldType.REAL: lambda v: float(v) + 0.0,  # no engine need keep the sign of nought
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
"""Of those whose rows do not hold the value itself."""


def encode_value(kind: FieldType, value: FieldValue) -> Any:
    """A field's value as rows have it. A comparison with None holds of nothing, and has
    no such value.
    """
    return _ENCODERS[kind](value)


def decode_value(kind: FieldType, value: Any) -> FieldValue:
    """A field's value of what a row has."""
    return _DECODERS[kind](value) if kind in _DECODERS else value


def _fields(collection: Collection, given: Mapping[str, FieldValue]) -> dict[str, Any]:
    """Those that have a value. One that is not declared was read of a row of a later
    release's, and is as it stood there.
    """
    types = _types(collection)
    fields = {
        name: _ENCODERS[kind](value) for name, kind in types.items() if (value := given.get(name)) is not None
    }
    if len(fields) < len(given):
        fields |= {name: value for name, value in given.items() if name not in types and value is not None}
    return fields


@lru_cache(maxsize=256)
def _types(collection: Collection) -> Mapping[str, FieldType]:
    return {f.name: f.type for f in collection.fields}


@lru_cache(maxsize=256)
def _decoders(collection: Collection) -> Sequence[tuple[str, Callable[[Any], FieldValue]]]:
    return [(f.name, _DECODERS[f.type]) for f in collection.fields if f.type in _DECODERS]


# -- from rows -------------------------------------------------------------------------


def standing_of(collection: Collection, row: Row) -> Standing:
    """What the row says. Raises `TypeError`, `ValueError`, `KeyError` or
    `OverflowError` where a value of it is none.
    """
    (
        tenant, record_id, kind, version, scope, generation, role, tier, created_at, updated_at, expires_at, discard_at, accesses, accessed_at,
        cached_at, epoch, previous, owed, note, body, fields, texts, vector, _,
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
    """What a reader is answered: `Corrupt` where there is a problem already, or the row
    cannot be read.
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
    """The value of what `json_of` wrote: without the search for spaces around it, which
    takes as long as the rest.
    """
    value, end = _scanned(text)
    if end != len(text):
        raise ValueError("there is more behind the value")
    return value


# -- checksum and size -----------------------------------------------------------------


def checksum(row: Row) -> int:
    """A 64-bit digest of everything the row says, its words aside: for adapters that
    store columns, not one sealed text.

    What is digested is what marshal's version 2 writes: type, length and content of
    each value. It is by far the quickest way to bytes; that every Python writes the
    same is pinned by a test. Fields and texts go in by name: a field more in a
    declaration changes no checksum.
    """
    said: Any = (*row[:20], _by_name(row.fields), _by_name(row.texts), row.vector)
    return int.from_bytes(blake2b(marshal.dumps(said, 2), digest_size=8).digest(), "big", signed=True)


def _by_name(values: Mapping[str, Any]) -> Sequence[tuple[str, Any]] | None:
    return sorted(values.items()) if values else None


def size_of(row: Row) -> int:
    """About how many bytes the content takes: its texts in UTF-8, and its vector."""
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
