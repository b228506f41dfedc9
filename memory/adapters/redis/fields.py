"""The declared fields of a record as JSON has them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from memory.domain.time import micros, moment
from memory.ports.collections import Collection, FieldType
from memory.ports.record import FieldValue
from memory.ports.storable import Unstorable, encode_integer

known_moment = lru_cache(maxsize=4096)(moment)
"""One record has the same moment several times, and so have records written together."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How the fields of a collection stand in JSON, by name: what has no entry to decode is as JSON gives it back."""

    collection: Collection
    encoders: dict[str, Callable[[str, Any], Any]]
    decoders: dict[str, Callable[[Any], FieldValue]]


_codecs: dict[int, Codec] = {}


def codec_of(collection: Collection) -> Codec:
    """Found by identity: hashing a declaration takes longer than packing a record."""
    codec = _codecs.get(id(collection))
    if codec is None or codec.collection is not collection:
        if len(_codecs) > 256:
            _codecs.clear()
        encoders = {f.name: _ENCODERS[f.type] for f in collection.fields}
        decoders = {f.name: _DECODERS[f.type] for f in collection.fields if f.type in _DECODERS}
        codec = _codecs[id(collection)] = Codec(collection, encoders, decoders)
    return codec


def _real(name: str, value: Any) -> float | int:
    if value - value != 0:
        raise Unstorable(f"{name}: a real number must be finite")
    number: float | int = value
    return number


_ENCODERS: dict[FieldType, Callable[[str, Any], Any]] = {
    FieldType.TEXT: lambda _, v: v,
    FieldType.INTEGER: encode_integer,
    FieldType.REAL: _real,
    FieldType.BOOLEAN: lambda _, v: v,
    FieldType.TIME: lambda _, v: micros(v),
    FieldType.TAGS: lambda _, v: v,
    FieldType.BYTES: lambda _, v: base64.b64encode(v).decode(),
}
_DECODERS: dict[FieldType, Callable[[Any], FieldValue]] = {FieldType.TIME: known_moment, FieldType.TAGS: tuple, FieldType.BYTES: base64.b64decode}
"""Of those that JSON does not give back as they were."""
