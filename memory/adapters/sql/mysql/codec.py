"""Records to rows and back, and the checksum that tells whether a row is as it was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeAlias

from memory.adapters.sql.columns import content_columns, field_column, text_column
from memory.adapters.sql.mysql.schema import DERIVED, NAME_BYTES, SYSTEM_COLUMNS, TENANT_BYTES
from memory.adapters.sql.plain import Decoder
from memory.adapters.sql.values import (
    CORRUPT,
    DECODERS,
    ENCODERS,
    MARK,
    RECORD,
    TOMBSTONE,
    decode_tags,
    digest,
    encode_json,
    encode_owed,
    maybe_micros,
)
from memory.adapters.sql.words import Parts
from memory.domain.time import micros
from memory.ports.collections import Collection, FieldType
from memory.ports.record import Corrupt, Key, Mark, Owed, Record, Role, Stored, Tombstone
from memory.ports.storable import HALF_A_CHARACTER, Unstorable, encode_integer

Row: TypeAlias = Sequence[Any]
"""The columns of a row's content in the order of the table; the checksum is the last. As the driver brings it, text in it is bytes."""

# Where the adapter's columns are in a row.
(
    NUMBER, TENANT, ID, KIND, PARTITION, SCOPE, VERSION, GENERATION, ROLE, TIER, CREATED_AT, UPDATED_AT, EXPIRES_AT, ACCESSES, ACCESSED_AT,
    PREVIOUS, MOVED_TO, CACHED_AT, EPOCH, DISCARD_AT, OWED, NOTE,
) = range(len(SYSTEM_COLUMNS))  # fmt: skip
FIRST_FIELD = len(SYSTEM_COLUMNS)

_ROLES = {role.value: role for role in Role}
_CORRUPT = CORRUPT.encode()
_MOST = 2**63 - 1
_BYTES = DERIVED.index("bytes") - len(DERIVED)
"""Where a stored row says how long its content is."""


@dataclass(slots=True)
class Content:
    """A row as it is to be stored, and the counts of its words. Its number and its checksum are given last, by `Layout.sealed`."""

    row: list[Any]
    words: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


class Layout:
    """How records of one collection lie in a row."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.parts = Parts([p.weight for p in collection.texts])
        self.columns = content_columns([name for name, _, _ in SYSTEM_COLUMNS], collection)
        at = self.at = {name: i for i, name in enumerate(self.columns)}
        self._fields = [(f.name, at[field_column(f.name)], f.type) for f in collection.fields]
        self._decoder = Decoder(collection, at)
        self._texts = [(p.name, at[text_column(p.name)]) for p in collection.texts]
        self._body = at["body"]
        self._vector = at.get("vector")
        self._checksum = len(self.columns) - 1
        spelled = [i for i, (_, kind, _) in enumerate(SYSTEM_COLUMNS) if kind != "long"]
        spelled += [i for _, i, kind in self._fields if kind in (FieldType.TEXT, FieldType.TAGS)]
        self._spelled = (*spelled, *[i for _, i in self._texts], self._body)
        self._empty: list[Any] = [None] * len(self.columns)
        self._texts_of = _columns(self._spelled)
        sized = [i for _, i, kind in self._fields if kind in (FieldType.TEXT, FieldType.TAGS, FieldType.BYTES)]
        sized += [*[i for _, i in self._texts], self._body, *([] if self._vector is None else [self._vector])]
        self._content_of = _columns(sized)
        self._names_of = _columns((TENANT, ID, SCOPE, TIER, MOVED_TO, EPOCH, OWED, NOTE))

    # -- to rows ------------------------------------------------------------------------------------------------------

    def record(self, record: Record, partition: int | None, generation: int) -> Content:
        """The row of a live record. Raises `Unstorable`."""
        integers = (record.version, record.accesses, record.previous or 0, generation)
        if max(integers) > _MOST or min(integers) < -_MOST:
            for name, integer in zip(("version", "accesses", "previous", "generation"), integers, strict=True):
                encode_integer(name, integer)
        row = self._empty.copy()
        key = checked_key(record.key)
        row[:FIRST_FIELD] = (
            None, key.tenant, key.id, RECORD, partition, checked_name("scope", record.scope), record.version, generation, record.role.value,
            str(record.tier), micros(record.created_at), micros(record.updated_at), maybe_micros(record.expires_at), record.accesses,
            maybe_micros(record.accessed_at), record.previous, None, maybe_micros(record.cached_at), record.epoch, None,
            encode_owed(record.owed), None,
        )  # fmt: skip
        fields = record.fields
        for name, i, kind in self._fields:
            value = fields.get(name)
            if value is not None:
                row[i] = ENCODERS[kind](name, value)
        given = [record.texts.get(name) for name, _ in self._texts]
        for (_, i), text in zip(self._texts, given, strict=True):
            row[i] = text
        row[self._body] = encode_json("body", dict(record.body)) if record.body else "{}"
        if self._vector is not None and record.vector is not None:
            row[self._vector] = bytes(record.vector)
        content = Content(self._spellable(row))
        if any(given):
            content.words, content.counts, _ = self.parts.index(given)
        return content

    def mark(self, mark: Mark) -> Content:
        row = self._bare(mark.key, MARK, mark.version, mark.owed, mark.discard_at)
        row[SCOPE], row[MOVED_TO] = checked_name("scope", mark.scope), str(mark.to)
        return Content(self._spellable(row))

    def tombstone(self, tombstone: Tombstone) -> Content:
        row = self._bare(tombstone.key, TOMBSTONE, tombstone.version, tombstone.owed, tombstone.discard_at)
        row[NOTE] = encode_json("note", dict(tombstone.note)) if tombstone.note else None
        return Content(self._spellable(row))

    def corrupt(self, key: Key, version: int) -> Content:
        """What stays in the place of a row that was set aside."""
        return Content(self._bare(key, CORRUPT, version, (), None))

    def anew(self, stored: Stored, row: Row) -> Content:
        """The row of what was read from a row."""
        if isinstance(stored, Record):
            return self.record(stored, row[PARTITION], row[GENERATION])
        if isinstance(stored, Corrupt):
            return self.corrupt(stored.key, row[VERSION])
        return self.mark(stored) if isinstance(stored, Mark) else self.tombstone(stored)

    def _bare(self, key: Key, kind: str, version: int, owed: Sequence[Owed], discard_at: Any) -> list[Any]:
        row = self._empty.copy()
        checked_key(key)
        row[TENANT], row[ID], row[KIND], row[VERSION], row[ACCESSES] = key.tenant, key.id, kind, encode_integer("version", version), 0
        row[OWED], row[DISCARD_AT] = encode_owed(owed), maybe_micros(discard_at)
        return row

    def sealed(self, content: Content, number: int, segment: int) -> list[Any]:
        """The values of every stored column, in the order of `stored_columns`. Its words are in this segment; of 0 they are still to come."""
        row = content.row
        row[NUMBER] = number
        size = sum(map(len, filter(None, self._content_of(row))))
        lexemes = segment if content.counts and row[PARTITION] is not None else None
        return [*row[:-1], digest(row[:-1]), content.words, size, None if row[OWED] is None else 1, lexemes]

    def packed_size(self, stored: Sequence[Any]) -> int:
        """The bytes of a stored row in a packet at most: four for a character."""
        return 9 * len(stored) + 4 * int(stored[_BYTES] + sum(map(len, filter(None, self._names_of(stored)))))

    def _spellable(self, row: list[Any]) -> list[Any]:
        """The row. Raises `Unstorable` for text that is none."""
        try:
            "".join(filter(None, self._texts_of(row))).encode()
        except UnicodeEncodeError:
            raise Unstorable(HALF_A_CHARACTER) from None
        return row

    @property
    def stored_columns(self) -> tuple[str, ...]:
        return (*self.columns, *DERIVED)

    # -- from rows ----------------------------------------------------------------------------------------------------

    def read(self, row: Row, problem: str = "checksum mismatch") -> Stored:
        """What the row says, whatever stands behind its columns; `Corrupt` where it is not as it was written."""
        if row[KIND] == _CORRUPT:
            return Corrupt(key_of(row), problem)
        plain = list(row[: self._checksum])
        try:
            for i in self._spelled:
                value = plain[i]
                if value is not None:
                    plain[i] = value.decode()
            if row[self._checksum] != digest(plain):
                return Corrupt(key_of(row), problem)
            return self._decoder.standing(plain)
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as exc:
            return Corrupt(key_of(row), f"cannot be read: {type(exc).__name__}")


def _shown(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


HEAD_DECODERS = {**DECODERS, FieldType.TEXT: _shown, FieldType.TAGS: lambda text: decode_tags(_shown(text))}
"""What columns hold as values of heads: text comes as bytes."""


def key_of(row: Row) -> Key:
    """The key of a row that may be damaged there too."""
    return Key(shown(row[TENANT]), shown(row[ID]))


def shown(value: Any) -> str:
    """Text as the driver brings it."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _columns(at: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Takes these columns out of a row."""
    return itemgetter(*at) if len(at) > 1 else lambda row: (row[at[0]],)


def spelled(name: str) -> str:
    """A name to look for. Raises `Unstorable` where it holds half of a surrogate pair; one that is too long is just not found."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Unstorable(HALF_A_CHARACTER) from None
    return name


def checked_key(key: Key) -> Key:
    """A key that fits into the index. Raises `Unstorable`."""
    checked_name("tenant", key.tenant, TENANT_BYTES)
    checked_name("id", key.id)
    return key


def checked_name(what: str, name: str, most: int = NAME_BYTES) -> str:
    """A name that fits into its column. Raises `Unstorable` for one that is too long, or holds half of a surrogate pair."""
    if not name.isascii() or len(name) > most:
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise Unstorable(HALF_A_CHARACTER) from None
        if size > most:
            raise Unstorable(f"{what}: takes at most {most} bytes, not {size}")
    return name


@lru_cache(maxsize=256)
def layout_of(collection: Collection) -> Layout:
    return Layout(collection)
