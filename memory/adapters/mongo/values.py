"""Values as documents hold them: typed fields as BSON's own types, moments as microseconds since 1970 (a BSON date drops them), JSON as text.

JSON is kept as text because BSON cannot hold all of it: keys with NUL, and keys that are empty, begin with `$` or have a dot in them, are refused
or mean something else somewhere between a driver and a query. As text any of it comes back as it was, and a person can still read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeAlias

from memory.domain.time import micros, moment
from memory.ports.collections import FieldType
from memory.ports.record import FieldValue, JsonValue, Owed
from memory.ports.storable import HALF_A_CHARACTER, Unstorable, encode_integer, encode_real

Document: TypeAlias = dict[str, Any]

_decoded = json.JSONDecoder().raw_decode
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def from_json(text: str) -> JsonValue:
    """What `encode_json` wrote, which has no spaces around it. Raises `ValueError` for anything else."""
    value, end = _decoded(text)
    if end != len(text):
        raise ValueError("not JSON")
    return value


def text_of(value: str) -> str:
    """The text as a plain string; half a character is refused."""
    plain = value if type(value) is str else str.__str__(value)
    if not plain.isascii():
        try:
            plain.encode()
        except UnicodeEncodeError:
            raise Unstorable(HALF_A_CHARACTER) from None
    return plain


_ENCODERS: dict[FieldType, Callable[[str, Any], Any]] = {
    FieldType.TEXT: lambda _, v: text_of(v),
    FieldType.INTEGER: encode_integer,
    FieldType.REAL: encode_real,
    FieldType.BOOLEAN: lambda _, v: bool(v),
    FieldType.TIME: lambda _, v: micros(v),
    FieldType.TAGS: lambda _, v: [text_of(tag) for tag in v],
    FieldType.BYTES: lambda _, v: bytes(v),
}
cached_moment = lru_cache(maxsize=4096)(moment)  # one record has the same moment several times
_DECODERS: dict[FieldType, Callable[[Any], FieldValue]] = {
    FieldType.INTEGER: int,
    FieldType.TIME: lambda v: cached_moment(int(v)),
    FieldType.TAGS: tuple,
    FieldType.BYTES: bytes,
}
"""Of those that come back as something else than they went in; 64-bit integers come as a type of the driver's."""


def encode_value(kind: FieldType | None, name: str, value: FieldValue) -> Any:
    """A field's value as documents hold it; that of one declared elsewhere only is as it was read."""
    return value if kind is None else _ENCODERS[kind](name, value)


def decoder_of(kind: FieldType) -> Callable[[Any], FieldValue] | None:
    """None where values come back as they went in."""
    return _DECODERS.get(kind)


def decode_value(kind: FieldType, value: Any) -> FieldValue:
    decoder = _DECODERS.get(kind)
    return value if decoder is None else decoder(value)


def encode_json(name: str, value: JsonValue) -> str:
    try:
        text = _to_json(value)
        text.encode()
    except (ValueError, TypeError, RecursionError) as exc:
        raise Unstorable(f"{name}: {exc}") from exc
    return text


def encode_owed(owed: Sequence[Owed]) -> str:
    return encode_json("owed", [[step.id, step.step, dict(step.data)] for step in owed])


def decode_owed(text: str | None) -> tuple[Owed, ...]:
    return tuple([Owed(*step) for step in from_json(text)]) if text else ()


def maybe_moment(at: int | None) -> datetime | None:
    return None if at is None else cached_moment(int(at))
