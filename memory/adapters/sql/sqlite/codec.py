"""Rows in SQLite's columns: the codec of every dialect, and in its checksum what only this one derives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from memory.adapters.sql.codec import ID, TAGS_AS_TEXT, Codec, Coding, TypeTable
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.record import Key
from memory.ports.rows import Row

Values: TypeAlias = Sequence[Any]


class Derived(NamedTuple):
    """What a row's table derives of it; the columns of the same names. Any of it may be damaged where it was read."""

    partition_no: int | None = None
    """Of live records only: nothing else is found by scope."""
    revision: int = 0
    """The partition's, when the record last changed what searches see."""
    length: int = 0
    """How many words there are in its texts."""
    bytes: int = 0
    fingerprint: int = 0


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


TYPES: TypeTable = {**TAGS_AS_TEXT, ID: Coding(id_bytes, id_text)}


class SqliteCodec(Codec):
    """The rows of one collection: `columns`, and beside them what is derived and the packed words."""

    def __init__(self, collection: Collection) -> None:
        super().__init__(collection, TYPES)
        self.read_columns = (*Derived._fields, *self.columns)

    def laid_out(self, row: Row, partition: int | None = None, revision: int = 0, length: int | None = None) -> list[Any]:
        """What `read_columns` take, and behind them the packed words. `length` is given where the words stay as they are."""
        *values, words, size = self.values(row)
        if length is None:
            length = lexical.length(words) if words else 0
        derived = Derived(partition, revision, length, size, fingerprint(row.key))
        values[-1] ^= _folded(derived)
        return [*derived, *values, words]

    def read_with(self, derived: Derived, values: Values) -> tuple[Row, str]:
        """The row, and what is wrong with it, or with what is derived."""
        try:
            return self.read((*values[:-1], values[-1] ^ _folded(derived)))
        except TypeError:
            return self.read((*values[:-1], None))


def _folded(derived: Derived) -> int:
    partition, revision, length, size, digest = derived
    return (partition or 0) ^ revision ^ length ^ size ^ digest


@lru_cache(maxsize=256)
def codec_of(collection: Collection) -> SqliteCodec:
    return SqliteCodec(collection)
