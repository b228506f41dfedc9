"""Rows in SQLite's columns: the codec of every dialect, with SQLite's derived columns.

The checksum covers the derived columns too.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

from memory.adapters.sql.codec import ID, TAGS_AS_TEXT, Codec, TypeCodec, TypeTable, id_bytes
from memory.domain.ids import derived_id, is_id
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.record import Key
from memory.ports.rows import CORRUPT, Row

Values: TypeAlias = Sequence[Any]


DERIVED = ("revision", "length", "bytes", "fingerprint", "partition_no")
"""The columns that a row's table derives of it; any may be damaged as read.

`revision` is the partition's revision when searches last saw a change of the record.
`length` is the number of words in its texts, `bytes` the size of its content, and
`fingerprint` a digest of its key. Only a live record has the number of its partition:
no other row is found by scope.
"""
_UNTOLD = 2**64
"""A value that no checksum is folded with."""


def fingerprint(key: Key) -> int:
    """Return a 64-bit digest of a key, for a second index on it."""
    text = f"{len(key.tenant)}:{key.tenant}{key.id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


def id_text(stored: bytes) -> str:
    digits = stored.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


TYPES: TypeTable = {**TAGS_AS_TEXT, ID: TypeCodec(id_bytes, id_text)}


class SqliteCodec(Codec):
    """The rows of one collection: `columns`, derived columns and packed words."""

    def __init__(self, collection: Collection) -> None:
        super().__init__(collection, TYPES)
        self.stored_columns = (*self.columns, *DERIVED, "words")

    def key(self, values: Sequence[Any]) -> Key:
        """Return the key of a row that may be damaged.

        If the column no longer holds an id, one derived from its content replaces it.
        """
        key, became = super().key(values), values[1]
        return (
            key
            if isinstance(became, bytes) and is_id(key.id)
            else Key(key.tenant, derived_id("", CORRUPT, repr((key.tenant, became))))
        )

    def laid_out(
        self, row: Row, partition: int | None = None, revision: int = 0, length: int | None = None
    ) -> list[Any]:
        """Return the values of `stored_columns`.

        Pass `length` where the words stay as they are.
        """
        *values, words, size = self.values(row)
        if length is None:
            length = lexical.length(words) if words else 0
        derived = (revision, length, size, fingerprint(row.key), partition)
        values[-1] ^= fold_derived(derived)
        return [*values, *derived, words]


def fold_derived(derived: Values) -> int:
    """Return the part of a checksum that covers all derived columns."""
    revision, length, size, digest, partition = derived
    try:
        folds: int = revision ^ length ^ size ^ digest ^ (partition or 0)
    except TypeError:
        return _UNTOLD
    return folds
