"""Collections: the kinds of record there are, and what each declares so that an adapter can make real columns and indexes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class FieldType(StrEnum):
    TEXT = "text"
    INTEGER = "integer"  # 64 bit
    REAL = "real"  # finite, 64 bit; the sign of nought may be lost
    BOOLEAN = "boolean"
    TIME = "time"  # UTC, microseconds
    TAGS = "tags"  # a tuple of strings
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Field:
    """A declared field: filterable always, and served by an index where `indexed`."""

    name: str
    type: FieldType
    indexed: bool = False


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of the record found by words, with its weight in ranking (D55)."""

    name: str
    weight: float


@dataclass(frozen=True, slots=True)
class Collection:
    """One kind of record. The name is a legal SQL identifier; `vector` says whether its records may carry one."""

    name: str
    fields: tuple[Field, ...] = ()
    texts: tuple[TextPart, ...] = ()
    vector: bool = False
    weights: Mapping[str, float] = dataclasses.field(init=False, repr=False, compare=False)
    """The weight of each text part, by its name."""
    _fields: Mapping[str, Field] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", {part.name: part.weight for part in self.texts})
        object.__setattr__(self, "_fields", {f.name: f for f in self.fields})

    def __hash__(self) -> int:
        return hash(self.name)  # asked with every record; equal collections have equal names

    def field(self, name: str) -> Field | None:
        return self._fields.get(name)
