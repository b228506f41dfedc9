"""Rows in SQLite's columns: the codec of every dialect, and in its checksum what only
this one derives.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

from memory.adapters.sql.codec import ID, TAGS_AS_TEXT, Codec, TypeCodec, TypeTable
from memory.domain.ids import derived_id, is_id
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.record import Key
from memory.ports.rows import CORRUPT, Row

Values: TypeAlias = Sequence[Any]


DERIVED = ("revision", "length", "bytes", "fingerprint", "partition_no")
"""What a row's table derives of it: the revision of its partition when the record last
changed what searches see, how many words there are in its texts, the bytes of its
content, a digest of its key, and of a live record the number of its partition: nothing
else is found by scope. Any of it may be damaged where it was read.
"""
_UNTOLD = 2**64
"""No checksum is folded with it."""


def fingerprint(key: Key) -> int:
    """A 64-bit digest of a key, for a second index on it."""
    text = f"{len(key.tenant)}:{key.tenant}{key.id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


def id_bytes(record_id: str) -> bytes:
    """An id as its column holds it."""
    return bytes.fromhex(record_id.replace("-", ""))


def id_text(stored: bytes) -> str:
    digits = stored.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


TYPES: TypeTable = {**TAGS_AS_TEXT, ID: TypeCodec(id_bytes, id_text)}


class SqliteCodec(Codec):
    """The rows of one collection: `columns`, and beside them what is derived and the
    packed words.
    """

    def __init__(self, collection: Collection) -> None:
        super().__init__(collection, TYPES)
        self.stored_columns = (*self.columns, *DERIVED, "words")

    def key(self, values: Sequence[Any]) -> Key:
        """Where the id is none any more, as a damaged column may hold anything, one
        derived from what it became stands for it.
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
        """What `stored_columns` take. `length` is given where the words stay as they
        are.
        """
        *values, words, size = self.values(row)
        if length is None:
            length = lexical.length(words) if words else 0
        derived = (revision, length, size, fingerprint(row.key), partition)
        values[-1] ^= fold_derived(derived)
        return [*values, *derived, words]


def fold_derived(derived: Values) -> int:
    """What a checksum is over besides the row: all that is derived."""
    revision, length, size, digest, partition = derived
    try:
        folds: int = revision ^ length ^ size ^ digest ^ (partition or 0)
    except TypeError:
        return _UNTOLD
    return folds
