"""The codec of every SQL dialect: it lays out rows in columns.

Each dialect describes how it binds and reads values in a small table of types.

A table has a column for each part of a `RecordLine`, in the order of `Codec.columns`.
Behind these come its checksum and two derived columns. `words` is packed by
`memory.ports.lexical`; `bytes` is the size of the content. Times are microseconds since
1970, booleans 0 or 1, JSON is text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from memory.adapters.sql.columns import checksum_column, field_column, text_column
from memory.ports.collections import Collection, FieldType
from memory.ports.record import FieldValue, Key
from memory.ports.rows import CORRUPT, Row, cached_moment, checksum, size_of

ID, TAG = "id", "tag"
"""Names in a table of types beside field types: a record's id, and a searched tag."""

SYSTEM: tuple[tuple[str, str, bool], ...] = (
    ("tenant", "tenant", False),
    ("id", ID, False),
    ("row_type", "word", False),  # record, mark, tombstone, corrupt
    ("version", FieldType.INTEGER, False),
    ("scope", "scope", True),
    ("generation", FieldType.INTEGER, False),
    ("role", "word", True),
    ("tier", FieldType.TEXT, True),
    ("created_at", FieldType.TIME, True),
    ("updated_at", FieldType.TIME, True),
    ("expires_at", FieldType.TIME, True),
    ("discard_at", FieldType.TIME, True),
    ("accesses", FieldType.INTEGER, False),
    ("accessed_at", FieldType.TIME, True),
    ("cached_at", FieldType.TIME, True),
    ("epoch", FieldType.TEXT, True),
    ("previous", FieldType.INTEGER, True),
    ("owed", FieldType.TEXT, True),
    ("note", FieldType.TEXT, True),
    ("body", FieldType.TEXT, True),
)
"""The columns of a row's own parts in the order of `RecordLine`.

Each has its name, its type, and whether it may be NULL.
"""
DERIVED = ("words", "bytes")
UNREAD = b""
"""The words of a row that was read without them: writing it back keeps its words."""

_TEXTS = frozenset({"tenant", "word", "scope", FieldType.TEXT})


class TypeCodec(NamedTuple):
    """How a dialect binds and reads the values of one type; it never gets None."""

    bind: Callable[[Any], Any]
    read: Callable[[Any], Any]


TypeTable: TypeAlias = Mapping[str, TypeCodec]
"""Codecs by `FieldType`, `ID` and `TAG`.

Types without an entry are bound and read as the row has them: texts, integers, floats,
bytes.
"""


def id_bytes(record_id: str) -> bytes:
    """Return an id as a binary column holds it."""
    return bytes.fromhex(record_id.replace("-", ""))


class Codec:
    """The rows of one collection in the columns of one dialect."""

    def __init__(self, collection: Collection, types: TypeTable, stored: Collection | None = None) -> None:
        """Lay out the rows of `collection`.

        `stored` is the collection as its table is, where the table lacks fields and may
        not be changed: no row has them.
        """
        self.collection, self.stored = collection, stored or collection
        self.types = types
        kinds = {name: kind for name, kind, _ in SYSTEM}
        kinds |= {text_column(part.name): FieldType.TEXT for part in collection.texts}
        kinds |= {"vector": FieldType.BYTES} if collection.vector else {}
        kinds |= {field_column(field.name): field.type for field in self.stored.fields}
        self.columns = (*kinds, checksum_column(self.stored))
        """The columns that hold a row's contents, the checksum last."""
        self.at = {name: i for i, name in enumerate(self.columns)}
        coded = [(i, types[kind]) for i, kind in enumerate(map(_type_of, kinds.values())) if kind in types]
        self._bind = [(i, coding.bind) for i, coding in coded]
        self._read = [(i, coding.read) for i, coding in coded]
        self._checksum = len(kinds)
        self._texts = [part.name for part in collection.texts]
        self._fields = [field.name for field in self.stored.fields]
        self._first = [
            len(SYSTEM),
            len(SYSTEM) + len(self._texts),
            len(SYSTEM) + len(self._texts) + collection.vector,
        ]
        self._shown = types[FieldType.TEXT].read if FieldType.TEXT in types else str
        self._id = types[ID].read if ID in types else self._shown
        self._unread = UNREAD if collection.texts else None

    def values(self, row: Row, partition: int | None = None) -> list[Any]:
        """Return the values of `columns`, followed by those of `DERIVED`.

        If the row has a partition, the checksum also covers the partition's number.
        """
        texts, fields = row.texts, row.fields
        values = [*row[: len(SYSTEM)], *map(texts.get, self._texts)]
        if self.collection.vector:
            values.append(row.vector)
        values += map(fields.get, self._fields)
        for i, bind in self._bind:
            if (value := values[i]) is not None:
                values[i] = bind(value)
        values += (checksum(row) ^ (partition or 0), row.words, size_of(row))
        return values

    def read(self, values: Sequence[Any], partition: int | None = None) -> tuple[Row, str]:
        """Return the row of these columns and its problem, which is empty as a rule.

        With a problem, the row has at most its key and version.
        """
        first_text, vector, first_field = self._first
        try:
            plain = list(values[: self._checksum])
            for i, read in self._read:
                if (value := plain[i]) is not None:
                    plain[i] = read(value)
            row = Row(  # type: ignore[call-arg]
                *plain[:first_text],
                {
                    name: value
                    for name, value in zip(self._fields, plain[first_field:], strict=True)
                    if value is not None
                },
                {
                    name: value
                    for name, value in zip(self._texts, plain[first_text:vector], strict=True)
                    if value is not None
                },
                plain[vector] if first_field > vector else None,
                self._unread,
            )
            sound = values[self._checksum] == checksum(row) ^ (partition or 0)
            problem = "in quarantine" if row.type == CORRUPT else "" if sound else "checksum mismatch"
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as exc:
            key = self.key(values)
            return Row(key.tenant, key.id, "", 0), f"cannot be read: {type(exc).__name__}"
        return row, problem

    # -- what is told without the checksum ---------------------------------------------

    def key(self, values: Sequence[Any]) -> Key:
        """Return the key from columns that may be damaged there too."""
        return Key(_leniently(self._shown, values[0]), _leniently(self._id, values[1]))

    def version(self, values: Sequence[Any]) -> int:
        version = values[self.at["version"]]
        return version if type(version) is int else 0

    def is_quarantined(self, values: Sequence[Any]) -> bool:
        return _leniently(self._shown, values[2]) == CORRUPT

    def decoder(self, kind: str) -> Callable[[Any], FieldValue] | None:
        """Return a function from a column's value of this type to the field's value.

        Returns None where the column holds the field's value itself.
        """
        read, made = self.types[kind].read if kind in self.types else None, _MADE.get(kind)
        return (lambda value: made(read(value))) if read and made else read or made


_MADE: dict[str, Callable[[Any], FieldValue]] = {
    FieldType.REAL: float,
    FieldType.BOOLEAN: bool,
    FieldType.TIME: cached_moment,
}


def _type_of(kind: str) -> str:
    return FieldType.TEXT if kind in _TEXTS else kind


def _leniently(read: Callable[[Any], Any], value: Any) -> str:
    try:
        return str(read(value))
    except (TypeError, ValueError, AttributeError):
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value)


# -- tags as text, where there are no arrays -------------------------------------------

_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def tag_token(tag: str) -> str:
    """Return a tag as its column holds it: on a line of its own.

    Line breaks and quotes inside a tag are escaped, so nothing else reads like it.
    """
    return "\n" + _to_json(tag)


def tags_text(tags: Sequence[str]) -> str:
    return "[" + ",".join(map(tag_token, tags)) + "\n]"


@lru_cache(maxsize=1024)
def tags_of(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


TAGS_AS_TEXT: TypeTable = {
    FieldType.TAGS: TypeCodec(tags_text, tags_of),
    TAG: TypeCodec(tag_token, tag_token),
}
