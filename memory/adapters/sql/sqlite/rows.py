"""Records to rows and back, and the checksum that tells whether a row is as it was written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from memory.adapters.sql.columns import content_columns, field_column, text_column
from memory.adapters.sql.plain import Decoder
from memory.adapters.sql.sqlite.schema import SYSTEM_COLUMNS, tables_of
from memory.adapters.sql.sqlite.words import Counts, word_index_of
from memory.adapters.sql.values import (
    CORRUPT,
    ENCODERS,
    MARK,
    RECORD,
    TOMBSTONE,
    Row,
    digest,
    encode_json,
    encode_owed,
    maybe_micros,
)
from memory.domain.time import micros
from memory.ports.collections import Collection
from memory.ports.record import Corrupt, Key, Mark, Owed, Record, Role, Stored, Tombstone
from memory.ports.storable import HALF_A_CHARACTER, Unstorable, encode_integer

_ROLES = {role.value: role for role in Role}

# Where the adapter's columns are in a row.
(
    TENANT, ID, FINGERPRINT, KIND, PARTITION, SCOPE, VERSION, GENERATION, REVISION, ROLE, TIER, CREATED_AT, UPDATED_AT, EXPIRES_AT, ACCESSES,
    ACCESSED_AT, WORDS, BYTES, PREVIOUS, MOVED_TO, CACHED_AT, EPOCH, DISCARD_AT, OWED, NOTE,
) = range(len(SYSTEM_COLUMNS))  # fmt: skip
FIRST_FIELD = len(SYSTEM_COLUMNS)


def checksum(row: Row) -> int:
    """A 64-bit digest over every column of the row but the last, which holds it."""
    return digest(row[:-1])


def fingerprint(tenant: str, record_id: str) -> int:
    """A 64-bit digest of a key, for a second index on it."""
    text = f"{len(tenant)}:{tenant}{record_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


# -- rows -------------------------------------------------------------------------------------------------------------


class Layout:
    """How records of one collection lie in a row."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.table = tables_of(collection).table
        self.columns = content_columns([name for name, _, _ in SYSTEM_COLUMNS], collection)
        at = self.at = {name: i for i, name in enumerate(self.columns)}
        self._fields = [(f.name, at[field_column(f.name)], f.type) for f in collection.fields]
        self.index = word_index_of(collection)
        self._decoder = Decoder(collection, at)
        self._texts = [(p.name, at[text_column(p.name)]) for p in collection.texts]
        self._body = at["body"]
        self._vector = at.get("vector")
        self._checksum = len(self.columns) - 1
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
            record.role.value, record.tier, micros(record.created_at), micros(record.updated_at), maybe_micros(record.expires_at),
            record.accesses, maybe_micros(record.accessed_at), 0, 0, record.previous, None, maybe_micros(record.cached_at),
            record.epoch, None, encode_owed(record.owed), None,
        )  # fmt: skip
        fields = record.fields
        for name, i, kind in self._fields:
            value = fields.get(name)
            if value is not None:
                row[i] = ENCODERS[kind](name, value)
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
        row[OWED], row[DISCARD_AT] = encode_owed(owed), maybe_micros(discard_at)
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

    def words(self, row: Row) -> tuple[int, Counts]:
        """How many words there are in the row's text parts, and the counts of each."""
        return (0, {}) if self.index is None else self.index.words(self.texts(row))

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
            return self._decoder.standing(row)
        except (TypeError, ValueError, KeyError, OverflowError) as exc:
            return Corrupt(_key(row), f"cannot be read: {type(exc).__name__}")


def _key(row: Row) -> Key:
    """The key of a row that may be damaged there too."""
    return Key(_shown(row[TENANT]), _shown(row[ID]))


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@lru_cache(maxsize=256)
def layout_of(collection: Collection) -> Layout:
    return Layout(collection)
