"""Records to rows and back, and the checksum that tells whether a row is as it was written."""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from memory.adapters.sql.schema import SYSTEM_COLUMNS, field_column, tables_of, text_column
from memory.domain.time import micros, moment
from memory.ports.collections import Collection, FieldType
from memory.ports.query import Kind
from memory.ports.record import Corrupt, FieldValue, JsonValue, Key, Mark, Owed, Record, Role, Stored, Tombstone
from memory.ports.text import words

Row = Sequence[Any]
"""The columns of a row in the order of the table, without `number`."""

CORRUPT = "corrupt"
RECORD, MARK, TOMBSTONE = Kind.RECORD.value, Kind.MARK.value, Kind.TOMBSTONE.value
_ROLES = {role.value: role for role in Role}

# Where the adapter's columns are in a row.
(
    TENANT, ID, FINGERPRINT, KIND, PARTITION, SCOPE, VERSION, GENERATION, REVISION, ROLE, TIER, CREATED_AT, UPDATED_AT, EXPIRES_AT, ACCESSES,
    ACCESSED_AT, WORDS, BYTES, PREVIOUS, MOVED_TO, CACHED_AT, EPOCH, DISCARD_AT, OWED, NOTE,
) = range(len(SYSTEM_COLUMNS))  # fmt: skip
FIRST_FIELD = len(SYSTEM_COLUMNS)


HALF_A_CHARACTER = "record: text holds half of a surrogate pair, which is no character"


class Unstorable(ValueError):
    """A value that no row can hold; the message names it and the limit."""


_from_json = json.JSONDecoder().decode
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def checksum(row: Row) -> int:
    """A 64-bit digest over every column of the row but the last, which holds it."""
    return digest(row[:-1])


def digest(values: Row) -> int:
    """A 64-bit digest over values that columns hold.

    What is digested are the values as marshal's version 2 writes them: type, length and content of each. It is by far the quickest
    way to bytes; that every Python writes the same is pinned by a test.
    """
    try:
        packed = marshal.dumps(tuple(values), 2)
    except ValueError:  # a subclass, such as a StrEnum as a tier
        packed = marshal.dumps(tuple(_plainly(values)), 2)
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "big", signed=True)


def _plainly(row: Row) -> Row:
    """The same values as SQLite gives them back."""
    plain: list[Any] = []
    for value in row:
        kind = next((k for k in (str, int, float, bytes) if isinstance(value, k)), None)
        plain.append(value if kind is None else str.__str__(value) if kind is str else kind(value))
    return plain


def fingerprint(tenant: str, record_id: str) -> int:
    """A 64-bit digest of a key, for a second index on it."""
    text = f"{len(tenant)}:{tenant}{record_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


# -- values -----------------------------------------------------------------------------------------------------------


def tag_token(tag: str) -> str:
    """A tag as it stands in its column: on a line of its own. Inside a tag line breaks and quotes are escaped, so nothing else reads like it."""
    return "\n" + _to_json(tag)


def encode_tags(tags: Sequence[str]) -> str:
    if not tags:
        return "[\n]"
    return "[" + ",".join(map(tag_token, tags)) + "\n]"


@lru_cache(maxsize=1024)
def decode_tags(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def encode_integer(name: str, value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise Unstorable(f"{name}: an integer has at most 64 bits")
    return int(value)


def encode_real(name: str, value: float) -> float:
    try:
        real = float(value) + 0.0  # SQLite forgets the sign of zero
    except OverflowError:
        real = float("inf")
    if real - real != 0:
        raise Unstorable(f"{name}: a real number must be finite")
    return real


_ENCODERS: dict[FieldType, Callable[[str, Any], Any]] = {
    FieldType.TEXT: lambda _, v: str(v),
    FieldType.INTEGER: encode_integer,
    FieldType.REAL: encode_real,
    FieldType.BOOLEAN: lambda _, v: int(v),
    FieldType.TIME: lambda _, v: micros(v),
    FieldType.TAGS: lambda _, v: encode_tags(v),
    FieldType.BYTES: lambda _, v: bytes(v),
}
_moment = lru_cache(maxsize=4096)(moment)  # one record has the same moment several times, and so have records written together
_DECODERS: dict[FieldType, Callable[[Any], FieldValue]] = {
    FieldType.REAL: float,
    FieldType.BOOLEAN: bool,
    FieldType.TIME: _moment,
    FieldType.TAGS: decode_tags,
    FieldType.BYTES: bytes,
}
"""Of those whose columns do not hold the value itself."""


def encode_value(kind: FieldType, name: str, value: FieldValue) -> Any:
    """A declared field's value as its column holds it."""
    return None if value is None else _ENCODERS[kind](name, value)


def encode_json(name: str, value: JsonValue) -> str:
    try:
        text = _to_json(value)
        text.encode()
    except (ValueError, TypeError, RecursionError) as exc:
        raise Unstorable(f"{name}: {exc}") from exc
    return text


def encode_owed(owed: Sequence[Owed]) -> str | None:
    return encode_json("owed", [[o.kind, dict(o.data)] for o in owed]) if owed else None


def _decode_owed(text: str | None) -> tuple[Owed, ...]:
    return tuple([Owed(kind, data) for kind, data in json.loads(text)]) if text else ()


def _maybe_micros(at: Any) -> int | None:
    return None if at is None else micros(at)


def _maybe_moment(at: int | None) -> Any:
    return None if at is None else _moment(at)


# -- rows -------------------------------------------------------------------------------------------------------------


class Layout:
    """How records of one collection lie in a row."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.table = tables_of(collection).table
        self.columns: tuple[str, ...] = tuple(c.name for c in self.table.columns if c.name != "number")
        at = self.at = {name: i for i, name in enumerate(self.columns)}
        self._fields = [(f.name, at[field_column(f.name)], f.type) for f in collection.fields]
        self._decoders = [(f.name, at[field_column(f.name)], _DECODERS.get(f.type)) for f in collection.fields]
        self._texts = [(p.name, at[text_column(p.name)]) for p in collection.texts]
        self._body = at["body"]
        self._vector = at.get("vector")
        self._checksum = at["checksum"]
        self._empty: list[Any] = [None] * len(self.columns)

    # -- to rows ------------------------------------------------------------------------------------------------------

    def record_row(self, record: Record) -> list[Any]:
        """The row of a live record, but for what its partition decides and `seal` adds. Raises `Unstorable`."""
        for name, integer in (("version", record.version), ("accesses", record.accesses), ("previous", record.previous or 0)):
            encode_integer(name, integer)
        row = self._empty.copy()
        key = record.key
        row[:FIRST_FIELD] = (
            key.tenant, key.id, fingerprint(key.tenant, key.id), RECORD, None, record.scope, record.version, record.generation, 0,
            record.role.value, record.tier, micros(record.created_at), micros(record.updated_at), _maybe_micros(record.expires_at),
            record.accesses, _maybe_micros(record.accessed_at), 0, 0, record.previous, None, _maybe_micros(record.cached_at),
            record.epoch, None, encode_owed(record.owed), None,
        )  # fmt: skip
        fields = record.fields
        for name, i, kind in self._fields:
            value = fields.get(name)
            if value is not None:
                row[i] = _ENCODERS[kind](name, value)
        for name, i in self._texts:
            row[i] = record.texts.get(name)
        row[self._body] = encode_json("body", dict(record.body)) if record.body else "{}"
        if self._vector is not None and record.vector is not None:
            row[self._vector] = bytes(record.vector)
        if record.generation is not None:
            encode_integer("generation", record.generation)
        return row

    def mark_row(self, mark: Mark) -> list[Any]:
        row = self._bare_row(mark.key, MARK, mark.version, mark.owed, mark.discard_at)
        row[SCOPE], row[MOVED_TO] = mark.scope, mark.to
        return row

    def tombstone_row(self, tombstone: Tombstone) -> list[Any]:
        row = self._bare_row(tombstone.key, TOMBSTONE, tombstone.version, tombstone.owed, tombstone.discard_at)
        row[NOTE] = encode_json("note", dict(tombstone.note)) if tombstone.note else None
        return row

    def corrupt_row(self, key: Key, version: int) -> list[Any]:
        """What stays in the place of a row that was set aside."""
        return self._bare_row(key, CORRUPT, version, (), None)

    def _bare_row(self, key: Key, kind: str, version: int, owed: Sequence[Owed], discard_at: Any) -> list[Any]:
        row = self._empty.copy()
        row[TENANT], row[ID], row[FINGERPRINT], row[KIND] = key.tenant, key.id, fingerprint(key.tenant, key.id), kind
        row[VERSION], row[REVISION], row[ACCESSES], row[WORDS], row[BYTES] = encode_integer("version", version), 0, 0, 0, 0
        row[OWED], row[DISCARD_AT] = encode_owed(owed), _maybe_micros(discard_at)
        return row

    def check(self, row: Row) -> None:
        """Refuse text that is none."""
        try:
            "".join([v for v in row if v.__class__ is str]).encode()
        except UnicodeEncodeError as exc:
            raise Unstorable(HALF_A_CHARACTER) from exc

    def seal(self, row: list[Any]) -> None:
        """Give the row its size and its checksum, when nothing else is to change."""
        row[BYTES] = sum([len(v) for v in row[FIRST_FIELD:-1] if v.__class__ in (str, bytes)])
        row[self._checksum] = checksum(row)

    def field_at(self, name: str) -> int:
        """Where a declared integer field is in a row. Raises `Unstorable`."""
        for field, i, kind in self._fields:
            if field == name and kind is FieldType.INTEGER:
                return i
        raise Unstorable(f"field '{name}' is no integer field of collection '{self.collection.name}'")

    def stems(self, row: Row) -> list[list[str]]:
        """The words of each text part of a row, in the order of the parts."""
        return self.stems_of([row[i] for _, i in self._texts])

    @staticmethod
    def stems_of(texts: Sequence[Any]) -> list[list[str]]:
        """The words of texts that columns hold."""
        return [words(text) if text and isinstance(text, str) else [] for text in texts]

    def texts(self, row: Row) -> list[str | None]:
        return [row[i] for _, i in self._texts]

    # -- from rows ----------------------------------------------------------------------------------------------------

    def is_sound(self, row: Row) -> bool:
        """Whether the row is as it was written."""
        try:
            return bool(row[self._checksum] == checksum(row))
        except (TypeError, ValueError):
            return False

    def read(self, row: Row, problem: str = "checksum mismatch") -> Stored:
        """What the row says; `Corrupt` where it is not as it was written."""
        if row[KIND] == CORRUPT:
            return Corrupt(Key(row[TENANT], row[ID]), problem)
        if not self.is_sound(row):
            return Corrupt(_key(row), problem)
        try:
            return self._decode(row)
        except (TypeError, ValueError, KeyError, OverflowError) as exc:
            return Corrupt(_key(row), f"cannot be read: {type(exc).__name__}")

    def _decode(self, row: Row) -> Stored:
        key = Key(row[TENANT], row[ID])
        if row[KIND] == MARK:
            return Mark(key, row[SCOPE], row[VERSION], row[MOVED_TO], _decode_owed(row[OWED]), _maybe_moment(row[DISCARD_AT]))
        if row[KIND] == TOMBSTONE:
            note = json.loads(row[NOTE]) if row[NOTE] else {}
            return Tombstone(key, row[VERSION], _decode_owed(row[OWED]), note, _maybe_moment(row[DISCARD_AT]))
        return Record(
            key,
            row[SCOPE],
            row[VERSION],
            _moment(row[CREATED_AT]),
            _moment(row[UPDATED_AT]),
            _maybe_moment(row[EXPIRES_AT]),
            {name: value if decode is None else decode(value) for name, i, decode in self._decoders if (value := row[i]) is not None},
            _from_json(row[self._body]),
            {name: row[i] for name, i in self._texts if row[i] is not None},
            None if self._vector is None else row[self._vector],
            row[GENERATION],
            _ROLES[row[ROLE]],
            row[TIER],
            _decode_owed(row[OWED]),
            row[PREVIOUS],
            row[ACCESSES],
            _maybe_moment(row[ACCESSED_AT]),
            _maybe_moment(row[CACHED_AT]),
            row[EPOCH],
        )


HEADER = ("tenant", "id", "scope", "version", "role", "tier", "created_at", "updated_at", "generation")
"""The columns `header_of` reads."""


def header_of(row: Row) -> Record | None:
    """A record without content, from the columns of `HEADER`; None where one of them cannot be read."""
    tenant, record_id, scope, version, role, tier, created_at, updated_at, generation = row[: len(HEADER)]
    try:
        created, updated = _moment(created_at), _moment(updated_at)
        return Record(Key(tenant, record_id), scope, version, created, updated, generation=generation, role=_ROLES[role], tier=tier)
    except (TypeError, ValueError, KeyError, OverflowError):
        return None


def _key(row: Row) -> Key:
    """The key of a row that may be damaged there too."""
    return Key(_shown(row[TENANT]), _shown(row[ID]))


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@lru_cache(maxsize=256)
def layout_of(collection: Collection) -> Layout:
    return Layout(collection)
