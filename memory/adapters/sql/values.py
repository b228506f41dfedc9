"""Values as columns hold them, and the digest that tells whether they are as they were written.

Moments are microseconds since 1970, truth is 0 or 1, tags and JSON are text: a dialect with columns of these types has encoders of its own.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from memory.domain.time import micros, moment
from memory.ports.collections import FieldType
from memory.ports.query import RowType
from memory.ports.record import FieldValue, JsonValue, Owed
from memory.ports.storable import Unstorable, encode_integer
from memory.ports.storable import encode_real as finite

Row = Sequence[Any]
"""The columns of a row in the order of the table, without `number`."""

CORRUPT = "corrupt"
RECORD, MARK, TOMBSTONE = RowType.RECORD.value, RowType.MARK.value, RowType.TOMBSTONE.value

from_json = json.JSONDecoder().decode
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def digest(values: Row) -> int:
    """A 64-bit digest over values that columns hold.

    What is digested are the values as marshal's version 2 writes them: type, length and content of each. It is by far the quickest
    way to bytes; that every Python writes the same is pinned by a test. What is missing at the end is left out, see `columns.content_columns`.
    """
    end = len(values)
    while end and values[end - 1] is None:
        end -= 1
    there = tuple(values[:end])
    try:
        packed = marshal.dumps(there, 2)
    except ValueError:  # a subclass, such as a StrEnum as a tier
        packed = marshal.dumps(tuple(_plainly(there)), 2)
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "big", signed=True)


def _plainly(row: Row) -> Row:
    """The same values as SQLite gives them back."""
    plain: list[Any] = []
    for value in row:
        kind = next((k for k in (str, int, float, bytes) if isinstance(value, k)), None)
        plain.append(value if kind is None else str.__str__(value) if kind is str else kind(value))
    return plain


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


def encode_real(name: str, value: float) -> float:
    return finite(name, value) + 0.0  # SQLite forgets the sign of zero


ENCODERS: dict[FieldType, Callable[[str, Any], Any]] = {
    FieldType.TEXT: lambda _, v: str(v),
    FieldType.INTEGER: encode_integer,
    FieldType.REAL: encode_real,
    FieldType.BOOLEAN: lambda _, v: int(v),
    FieldType.TIME: lambda _, v: micros(v),
    FieldType.TAGS: lambda _, v: encode_tags(v),
    FieldType.BYTES: lambda _, v: bytes(v),
}
cached_moment = lru_cache(maxsize=4096)(moment)  # one record has the same moment several times, and so have records written together
DECODERS: dict[FieldType, Callable[[Any], FieldValue]] = {
    FieldType.REAL: float,
    FieldType.BOOLEAN: bool,
    FieldType.TIME: cached_moment,
    FieldType.TAGS: decode_tags,
    FieldType.BYTES: bytes,
}
"""Of those whose columns do not hold the value itself."""


def encode_value(kind: FieldType, name: str, value: FieldValue) -> Any:
    """A declared field's value as its column holds it."""
    return None if value is None else ENCODERS[kind](name, value)


def encode_json(name: str, value: JsonValue) -> str:
    try:
        text = _to_json(value)
        text.encode()
    except (ValueError, TypeError, RecursionError) as exc:
        raise Unstorable(f"{name}: {exc}") from exc
    return text


def encode_owed(owed: Sequence[Owed]) -> str | None:
    return encode_json("owed", [[o.id, o.step, dict(o.data)] for o in owed]) if owed else None


def decode_owed(text: str | None) -> tuple[Owed, ...]:
    return tuple([Owed(*step) for step in json.loads(text)]) if text else ()


def maybe_micros(at: Any) -> int | None:
    return None if at is None else micros(at)


def maybe_moment(at: int | None) -> Any:
    return None if at is None else cached_moment(at)
