"""Rows to columns and back, and the checksum that tells whether they are as they were written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

from memory.adapters.sql.columns import checksum_column, field_column, text_column
from memory.adapters.sql.sqlite.schema import SYSTEM_COLUMNS
from memory.adapters.sql.values import decode_tags, encode_tags
from memory.ports import lexical
from memory.ports.collections import Collection, FieldType
from memory.ports.rows import Row, checksum, size_of

Values: TypeAlias = Sequence[Any]
"""The columns of a row in the order of its codec, without `number`."""

FIELDS = Row._fields.index("fields")
"""So many columns hold what a row says as it says it, in its order."""
TENANT, ID, TYPE, VERSION, SCOPE, GENERATION, ROLE = 0, 1, 2, 3, 4, 5, 6
PARTITION = FIELDS
"""The first of those that are derived."""
FIRST = len(SYSTEM_COLUMNS)
"""Behind them come texts, packed words, the vector, declared fields and the checksum."""


class Place(NamedTuple):
    """Where a live record is found: the number of its partition, and that partition's revision when the record last changed what searches see."""

    partition: int | None = None
    revision: int = 0


NOWHERE = Place()


def place_in(values: Values) -> Place:
    """Where the record of these columns is found."""
    return Place(values[PARTITION], values[PARTITION + 1])


def fingerprint(tenant: str, record_id: str) -> int:
    """A 64-bit digest of a key, for a second index on it."""
    text = f"{len(tenant)}:{tenant}{record_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


class Codec:
    """How rows of one collection lie in columns."""

    def __init__(self, collection: Collection) -> None:
        self._texts = [p.name for p in collection.texts]
        self._fields = [f.name for f in collection.fields]
        self._tags = [f.name for f in collection.fields if f.type is FieldType.TAGS]
        names = [*[name for name, _, _ in SYSTEM_COLUMNS], *map(text_column, self._texts)]
        names += [*(["words"] if collection.texts else []), *(["vector"] if collection.vector else [])]
        self._fields_from = len(names)
        self.columns = (*names, *map(field_column, self._fields), checksum_column(collection))
        self.at = {name: i for i, name in enumerate(self.columns)}
        self._words, self._vector = self.at.get("words"), self.at.get("vector")

    def columns_of(self, row: Row, place: Place = NOWHERE) -> list[Any]:
        """The row's columns; `place` is a live record's."""
        fields, length = row.fields, 0 if row.words is None else lexical.length(row.words)
        if fields and self._tags:
            fields = {**fields, **{name: encode_tags(fields[name]) for name in self._tags if name in fields}}
        values = [*row[:FIELDS], *place, length, size_of(row), fingerprint(row.tenant, row.id), *map(row.texts.get, self._texts)]
        if self._words is not None:
            values.append(row.words)
        if self._vector is not None:
            values.append(row.vector)
        values += map(fields.get, self._fields)
        values.append(checksum(row) ^ _derived(row, values))
        return values

    def row_of(self, values: Values) -> Row | None:
        """The row of these columns; None where they are not as they were written."""
        try:
            fields = {name: value for name, value in zip(self._fields, values[self._fields_from :], strict=False) if value is not None}
            for name in self._tags:
                if name in fields:
                    fields[name] = decode_tags(fields[name])
            texts = {name: text for name, text in zip(self._texts, values[FIRST:], strict=False) if text is not None}
            vector = None if self._vector is None else values[self._vector]
            row = Row._make((*values[:FIELDS], fields, texts, vector, None if self._words is None else values[self._words]))
            return row if values[-1] == checksum(row) ^ _derived(row, values) else None
        except (TypeError, ValueError):
            return None


def _derived(row: Row, values: Values) -> int:
    """What is derived of the row, in its checksum."""
    partition, revision, length, size, digest = values[PARTITION:FIRST]
    return (partition or 0) ^ revision ^ length ^ size ^ digest ^ crc32(row.words or b"")  # type: ignore[no-any-return]


@lru_cache(maxsize=256)
def codec_of(collection: Collection) -> Codec:
    return Codec(collection)
