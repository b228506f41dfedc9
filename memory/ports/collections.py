"""Collections: the kinds of record there are, and what each declares so that an adapter
can make real columns and indexes of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from memory.domain.errors import ConfigError


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
    """A declared field: filterable always, and served by an index where `indexed`.

    A record without a `required` one is rejected, so that an index can bring records in
    its order. The fields of a collection whose records are there already may grow by
    others, not by a required one; see `Store.open`.
    """

    name: str
    type: FieldType
    indexed: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of the record found by words, with its weight in ranking (D55)."""

    name: str
    weight: float


LARGE_AT_ONCE = 8
"""Records that may be large."""
LISTED = frozenset({"created_at", "updated_at"})
"""The moments that every record has, whatever is declared."""


@dataclass(frozen=True, slots=True)
class Collection:
    """One kind of record. The name is a legal SQL identifier; `vector` says whether its
    records may carry one.

    `indexes` are those over several fields: one serves questions that name its first
    field, and what they ask of the others, an order by one too. `orders` are system
    fields of `LISTED`: an index brings all records of a tenant in the order of each, as
    of a required field.
    """

    name: str
    fields: tuple[Field, ...] = ()
    texts: tuple[TextPart, ...] = ()
    vector: bool = False
    indexes: tuple[tuple[str, ...], ...] = ()
    orders: tuple[str, ...] = ()
    upkeep: bool = dataclasses.field(default=False, compare=False)
    """Its records are small, and deletions need them: a store that is full keeps room
    for them if it can.
    """
    weights: Mapping[str, float] = dataclasses.field(init=False, repr=False, compare=False)
    """The weight of each text part, by its name."""
    required: tuple[str, ...] = dataclasses.field(init=False, repr=False, compare=False)
    """The names of the fields that every record has."""
    _fields: Mapping[str, Field] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", {part.name: part.weight for part in self.texts})
        object.__setattr__(self, "_fields", {f.name: f for f in self.fields})
        object.__setattr__(self, "required", tuple([f.name for f in self.fields if f.required]))
        if undeclared := {name for index in self.indexes for name in index} - self._fields.keys():
            raise ConfigError(
                f"collection '{self.name}': an index names '{min(undeclared)}', which is none of its fields"
            )
        if unlisted := set(self.orders) - LISTED:
            raise ConfigError(
                f"collection '{self.name}': '{min(unlisted)}' is none of the moments that every record has"
            )

    def __hash__(self) -> int:
        return hash(self.name)  # asked with every record; equal collections have equal names

    @property
    def leading(self) -> frozenset[str]:
        """The fields that indexes over several begin with: an adapter that has none of
        those gives each of these one of its own.
        """
        return frozenset(index[0] for index in self.indexes)

    def field(self, name: str) -> Field | None:
        return self._fields.get(name)

    def at_once(self, most: int) -> int:
        """How many records to read at once where so many might be gone through: few
        where each may have a MiB of bytes.
        """
        return min(most, LARGE_AT_ONCE) if any(f.type is FieldType.BYTES for f in self.fields) else most
