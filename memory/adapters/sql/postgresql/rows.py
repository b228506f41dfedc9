"""Records to rows and back, and the checksum that tells whether a row is as it was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

from sqlalchemy import BigInteger
from sqlalchemy.dialects.postgresql import JSONB

from memory.adapters.sql.columns import content_columns, field_column, text_column
from memory.adapters.sql.heads import Decoders
from memory.adapters.sql.postgresql.schema import COLUMN_TYPES, SYSTEM_COLUMNS, table_of
from memory.adapters.sql.postgresql.values import canonical, checked, for_jsonb, from_jsonb, unescape
from memory.adapters.sql.postgresql.words import counts_text, vector_text
from memory.adapters.sql.values import (
    CORRUPT,
    MARK,
    RECORD,
    TOMBSTONE,
    digest,
    encode_real,
)
from memory.adapters.sql.words import Parts
from memory.ports.collections import Collection, FieldType
from memory.ports.record import Corrupt, FieldValue, Key, Mark, Owed, Record, Role, Stored, Tombstone
from memory.ports.storable import Unstorable, encode_integer

Row: TypeAlias = Sequence[Any]
"""The columns of a row's content in the order of the table; the checksum is the last."""

# Where the adapter's columns are in a row.
(
    TENANT, ID, KIND, PARTITION, SCOPE, VERSION, GENERATION, ROLE, TIER, CREATED_AT, UPDATED_AT, EXPIRES_AT, ACCESSES, ACCESSED_AT, PREVIOUS,
    MOVED_TO, CACHED_AT, EPOCH, DISCARD_AT, OWED, NOTE,
) = range(len(SYSTEM_COLUMNS))  # fmt: skip
FIRST_FIELD = len(SYSTEM_COLUMNS)

_ROLES = {role.value: role for role in Role}
_KEY_BYTES = 2_000
"""An index key holds 2,704 bytes: what names a record or a partition must fit into one."""


@dataclass(slots=True)
class Content:
    """A row as it is to be stored: its content and what is made from it. Its checksum is given last, by `Layout.sealed`."""

    row: list[Any]
    size: int = 0
    words: int = 0
    counts: str | None = None
    labels: dict[str, str] | None = None
    embedding: bytes | None = None


class Layout:
    """How records of one collection lie in a row."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.parts = Parts([p.weight for p in collection.texts])
        self.columns = content_columns([name for name, _, _ in SYSTEM_COLUMNS], collection)
        at = self.at = {name: i for i, name in enumerate(self.columns)}
        self._fields = [(f.name, at[field_column(f.name)], f.type) for f in collection.fields]
        self._texts = [(p.name, at[text_column(p.name)]) for p in collection.texts]
        self._body = at["body"]
        self._vector = at.get("vector")
        self._checksum = len(self.columns) - 1
        self._json = (OWED, NOTE, self._body)
        times = [i for name, i in at.items() if name in _TIMES] + [i for _, i, kind in self._fields if kind is FieldType.TIME]
        self._times = tuple(times)
        self._tags = tuple([i for _, i, kind in self._fields if kind is FieldType.TAGS])
        self._empty: list[Any] = [None] * len(self.columns)

    # -- to rows ------------------------------------------------------------------------------------------------------

    def record(self, record: Record, partition: int | None, generation: int) -> Content:
        """The row of a live record. Raises `Unstorable`."""
        encode_integer("version", record.version), encode_integer("generation", generation)
        encode_integer("accesses", record.accesses), encode_integer("previous", record.previous or 0)
        row = self._empty.copy()
        tenant, record_id = key_text(record.key)
        row[:FIRST_FIELD] = (
            tenant, record_id, RECORD, partition, scope_text(record.key.tenant, record.scope), record.version, generation, record.role.value,
            checked(record.tier), _utc(record.created_at), _utc(record.updated_at), _maybe_utc(record.expires_at), record.accesses,
            _maybe_utc(record.accessed_at), record.previous, None, _maybe_utc(record.cached_at),
            None if record.epoch is None else checked(record.epoch), None, _owed(record.owed), None,
        )  # fmt: skip
        size = 0
        fields = record.fields
        for name, i, kind in self._fields:
            value = fields.get(name)
            if value is not None:
                row[i] = value = ENCODERS[kind](name, value)
                size += len(value) if kind in _SIZED else sum(map(len, value)) if kind is FieldType.TAGS else 0
        given = [record.texts.get(name) for name, _ in self._texts]
        for (_, i), text in zip(self._texts, given, strict=True):
            if text is not None:
                row[i] = text = checked(text)
                size += len(text)
        row[self._body] = body = canonical("body", dict(record.body)) if record.body else "{}"
        content = Content(row, size + len(body))
        if self._vector is not None and record.vector is not None:
            row[self._vector] = content.embedding = vector = bytes(record.vector)
            content.size += len(vector)
        if any(given):
            total, counts, content.labels = self.parts.index(given)
            content.words, content.counts = total, counts_text(counts)
        return content

    def mark(self, mark: Mark) -> Content:
        row = self._bare(mark.key, MARK, mark.version, mark.owed, mark.discard_at)
        row[SCOPE], row[MOVED_TO] = checked(mark.scope), checked(mark.to)
        return Content(row)

    def tombstone(self, tombstone: Tombstone) -> Content:
        row = self._bare(tombstone.key, TOMBSTONE, tombstone.version, tombstone.owed, tombstone.discard_at)
        row[NOTE] = canonical("note", dict(tombstone.note)) if tombstone.note else None
        return Content(row)

    def corrupt(self, key: Key, version: int) -> Content:
        """What stays in the place of a row that was set aside."""
        return Content(self._bare(key, CORRUPT, version, (), None))

    def _bare(self, key: Key, kind: str, version: int, owed: Sequence[Owed], discard_at: datetime | None) -> list[Any]:
        row = self._empty.copy()
        row[TENANT], row[ID] = key_text(key)
        row[KIND], row[VERSION], row[ACCESSES] = kind, encode_integer("version", version), 0
        row[OWED], row[DISCARD_AT] = _owed(owed), _maybe_utc(discard_at)
        return row

    def sealed(self, content: Content) -> list[Any]:
        """The values of every stored column but `embedding`, in the order of `stored_columns`. Nothing is to change any more."""
        row = content.row
        values = row.copy()
        values[-1] = digest(self._digested(row[:-1]))
        for i in self._json:
            if row[i] is not None:
                values[i] = for_jsonb(row[i])
        for i in self._tags:
            if row[i] is not None:
                values[i] = _array(row[i])
        values += (content.words, content.size)
        if self._texts:
            lexemes = None if content.labels is None or row[PARTITION] is None else vector_text(row[PARTITION], content.labels)
            values += (content.counts, lexemes)
        return values

    @property
    def stored_columns(self) -> tuple[tuple[str, str, str], ...]:
        """Each stored column but `embedding`: its name, the type its parameter has, and what the parameter is cast to ('' for nothing)."""
        kinds = {"body": _JSON, "vector": ("bytea", ""), **dict.fromkeys((self.columns[-1], "words", "bytes"), ("bigint", ""))}
        kinds |= {"counts": _JSON, "lexemes": ("text", "tsvector"), **_SYSTEM_PARAMETERS}
        kinds |= {field_column(f.name): _PARAMETERS[f.type] for f in self.collection.fields}
        names = [*self.columns, "words", "bytes", *(["counts", "lexemes"] if self._texts else [])]
        return tuple([(name, *kinds.get(name, ("text", ""))) for name in names])

    # -- from rows ----------------------------------------------------------------------------------------------------

    def read(self, row: Row, problem: str = "checksum mismatch") -> Stored:
        """What the row says, whatever stands behind its columns; `Corrupt` where it is not as it was written."""
        key = Key(unescape(row[TENANT]), unescape(row[ID]))
        kind = row[KIND]
        if kind == CORRUPT:
            return Corrupt(key, problem)
        plain = list(row[: self._checksum])
        try:
            owed, note, body = self._decode(plain)
            if row[self._checksum] != digest(self._digested(plain)):
                return Corrupt(key, problem)
            owes = () if owed is None else tuple([Owed(*step) for step in owed])
            if kind == RECORD:
                return self._record(key, plain, owes, body)
            if kind == MARK:
                return Mark(key, unescape(plain[SCOPE]), plain[VERSION], unescape(plain[MOVED_TO]), owes, _maybe_aware(plain[DISCARD_AT]))
            return Tombstone(key, plain[VERSION], owes, note or {}, _maybe_aware(plain[DISCARD_AT]))
        except (TypeError, ValueError, KeyError, OverflowError) as exc:
            return Corrupt(key, f"cannot be read: {type(exc).__name__}")

    def _decode(self, plain: list[Any]) -> tuple[Any, Any, Any]:
        """Bring a row into the form it was digested in, but for moments; what its JSON columns hold."""
        owed = note = None
        if plain[OWED] is not None:
            owed, plain[OWED] = from_jsonb(plain[OWED])
        if plain[NOTE] is not None:
            note, plain[NOTE] = from_jsonb(plain[NOTE])
        body: Any = {}
        if plain[self._body] is not None and plain[self._body] != "{}":
            body, plain[self._body] = from_jsonb(plain[self._body])
        for i in self._tags:
            if plain[i] is not None:
                plain[i] = tuple(plain[i])
        return owed, note, body

    def _digested(self, values: Row) -> Row:
        """A row's values, with moments as text."""
        digested = list(values)
        last: datetime | None = None
        written = ""
        for i in self._times:
            at = digested[i]
            if at is not None:
                if at != last:  # of a new record both moments are one
                    last, written = at, aware(at).isoformat()
                digested[i] = written
        return digested

    def _record(self, key: Key, row: Row, owed: tuple[Owed, ...], body: Any) -> Record:
        fields: dict[str, FieldValue] = {}
        for name, i, kind in self._fields:
            value = row[i]
            if value is not None:
                if kind is FieldType.TEXT:
                    value = unescape(value)
                elif kind is FieldType.TAGS:
                    value = tuple([unescape(tag) for tag in value])
                elif kind is FieldType.TIME:
                    value = aware(value)
                fields[name] = value
        return Record(
            key,
            unescape(row[SCOPE]),
            row[VERSION],
            aware(row[CREATED_AT]),
            aware(row[UPDATED_AT]),
            _maybe_aware(row[EXPIRES_AT]),
            fields,
            body,
            {name: unescape(row[i]) for name, i in self._texts if row[i] is not None},
            None if self._vector is None else row[self._vector],
            row[GENERATION],
            _ROLES[row[ROLE]],
            unescape(row[TIER]),
            owed,
            row[PREVIOUS],
            row[ACCESSES],
            _maybe_aware(row[ACCESSED_AT]),
            _maybe_aware(row[CACHED_AT]),
            None if row[EPOCH] is None else unescape(row[EPOCH]),
        )


# -- values -----------------------------------------------------------------------------------------------------------

_TIMES = frozenset(name for name, kind, _ in SYSTEM_COLUMNS if kind is COLUMN_TYPES[FieldType.TIME])
_JSON = ("text", "jsonb")
_PARAMETERS: dict[FieldType, tuple[str, str]] = {
    FieldType.TEXT: ("text", ""),
    FieldType.INTEGER: ("bigint", ""),
    FieldType.REAL: ("float8", ""),
    FieldType.BOOLEAN: ("boolean", ""),
    FieldType.TIME: ("timestamptz", ""),
    FieldType.TAGS: ("text", "text[]"),  # arrays of arrays cannot be taken apart row by row
    FieldType.BYTES: ("bytea", ""),
}
_SYSTEM_PARAMETERS = {
    name: _JSON if isinstance(kind, JSONB) else ("timestamptz" if name in _TIMES else "bigint" if isinstance(kind, BigInteger) else "text", "")
    for name, kind, _ in SYSTEM_COLUMNS
}
ENCODERS: dict[FieldType, Callable[[str, Any], Any]] = {
    FieldType.TEXT: lambda _, v: checked(v),
    FieldType.INTEGER: encode_integer,
    FieldType.REAL: encode_real,
    FieldType.BOOLEAN: lambda _, v: bool(v),
    FieldType.TIME: lambda _, v: _utc(v),
    FieldType.TAGS: lambda _, v: tuple([checked(tag) for tag in v]),
    FieldType.BYTES: lambda _, v: bytes(v),
}
"""A declared field's value as its column holds it."""


_SIZED = frozenset({FieldType.TEXT, FieldType.BYTES})


@lru_cache(maxsize=4096)
def scope_text(tenant: str, scope: str) -> str:
    """A scope as a parameter takes it. Raises `Unstorable` for one too long to be indexed with its tenant."""
    if _is_long(tenant, scope):
        raise Unstorable(f"scope: takes at most {_KEY_BYTES} bytes together with the tenant")
    return checked(scope)


def key_text(key: Key) -> tuple[str, str]:
    """A key as parameters take it. Raises `Unstorable` for one too long to be indexed."""
    tenant, record_id = key.tenant, key.id
    if _is_long(tenant, record_id):
        raise Unstorable(f"id: takes at most {_KEY_BYTES} bytes together with the tenant")
    return checked(tenant), checked(record_id)


def aware(at: datetime) -> datetime:
    """A moment as the driver gives it, with its zone: the first and the last there are it takes for infinity, which has none."""
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _maybe_aware(at: datetime | None) -> datetime | None:
    return None if at is None else aware(at)


def _is_long(tenant: str, name: str) -> bool:
    both = len(tenant) + len(name)
    return both > _KEY_BYTES // 4 and len((tenant + name).encode("utf-8", "replace")) > _KEY_BYTES


def _utc(at: datetime) -> datetime:
    if at.tzinfo is UTC:
        return at
    if at.utcoffset() is None:
        raise Unstorable("a naive datetime; give it a time zone")
    try:
        return at.astimezone(UTC)
    except OverflowError as exc:
        raise Unstorable("a moment lies outside the years 1 to 9999 in UTC") from exc


def _maybe_utc(at: datetime | None) -> datetime | None:
    return None if at is None else _utc(at)


def _owed(owed: Sequence[Owed]) -> str | None:
    return canonical("owed", [[o.id, o.step, dict(o.data)] for o in owed]) if owed else None


def _array(items: Sequence[str]) -> str:
    """A text[] as PostgreSQL reads it."""
    quoted = [item.replace("\\", "\\\\").replace('"', '\\"') for item in items]
    return "{" + ",".join([f'"{item}"' for item in quoted]) + "}"


@lru_cache(maxsize=256)
def layout_of(collection: Collection) -> Layout:
    table_of(collection, "memory")  # refuses a name that no table can have
    return Layout(collection)


HEAD_DECODERS: Decoders = {FieldType.TEXT: unescape, FieldType.TAGS: lambda tags: tuple(map(unescape, tags)), FieldType.TIME: lambda at: aware(at)}
"""What columns hold as values of heads."""
