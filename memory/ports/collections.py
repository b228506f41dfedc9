"""Collections: the kinds of records, with the fields and indexes they declare.

Adapters make real columns and indexes of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from memory.domain.errors import ConfigError


class FieldType(StrEnum):
    TEXT = "text"
    INTEGER = "integer"  # 64 bit
    REAL = "real"  # finite, 64 bit; the sign of zero may be lost
    BOOLEAN = "boolean"
    TIME = "time"  # UTC, microseconds
    TAGS = "tags"  # a tuple of strings
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Field:
    """A declared field: always filterable, and served by an index if `indexed`.

    A record without a `required` field is rejected, so that an index can list records
    in the field's order. A collection with stored records may later gain fields, but no
    required one; see `Store.open`.
    """

    name: str
    type: FieldType
    indexed: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of the record for search by words, with its weight in ranking."""

    name: str
    weight: float


LARGE_AT_ONCE = 8
"""How many records to read at once if they may be large."""
LISTED = frozenset({"created_at", "updated_at"})
"""The times that every record has, apart from declared fields."""
ORDERED_BYTES = 512
"""The longest text of a field in `Collection.orders`, in bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class Collection:
    """One kind of record.

    The name is a legal SQL identifier. `vector` says whether its records may carry a
    vector.

    `indexes` are indexes over several fields. An index serves questions that name its
    first field, and their conditions on its other fields. It also serves an order by
    one of them.

    `orders` are system fields of `LISTED` and required text fields. For a system field,
    an index lists all records of a tenant in its order, as for a required field. For a
    text field, an index lists the records of one partition by the code points of the
    text. Such a text has at most `ORDERED_BYTES`.
    """

    name: str
    fields: tuple[Field, ...] = ()
    texts: tuple[TextPart, ...] = ()
    vector: bool = False
    indexes: tuple[tuple[str, ...], ...] = ()
    orders: tuple[str, ...] = ()
    upkeep: bool = dataclasses.field(default=False, compare=False)
    """Whether a full store should keep room for its records, if it can.

    They are small, and deletions need them.
    """
    weights: Mapping[str, float] = dataclasses.field(init=False, repr=False, compare=False)
    """The weight of each text part, by its name."""
    required: tuple[str, ...] = dataclasses.field(init=False, repr=False, compare=False)
    """The names of the fields that every record has."""
    ordered_texts: frozenset[str] = dataclasses.field(init=False, repr=False, compare=False)
    """The text fields in `orders`."""
    _fields: Mapping[str, Field] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", {part.name: part.weight for part in self.texts})
        object.__setattr__(self, "_fields", {f.name: f for f in self.fields})
        object.__setattr__(self, "required", tuple([f.name for f in self.fields if f.required]))
        texts = frozenset([f.name for f in self.fields if f.required and f.type is FieldType.TEXT])
        object.__setattr__(self, "ordered_texts", texts.intersection(self.orders))
        if undeclared := {name for index in self.indexes for name in index} - self._fields.keys():
            raise ConfigError(
                f"collection '{self.name}': an index names '{min(undeclared)}', which is not one of its"
                " fields"
            )
        if unlisted := set(self.orders) - LISTED - texts:
            raise ConfigError(
                f"collection '{self.name}': '{min(unlisted)}' is none of the moments that every record has,"
                " and no required text field"
            )

    def __hash__(self) -> int:
        return hash(self.name)  # called for every record; equal collections have equal names

    @property
    def leading(self) -> frozenset[str]:
        """The first fields of the indexes over several fields.

        An adapter without such indexes gives each of these fields its own index.
        """
        return frozenset(index[0] for index in self.indexes)

    def field(self, name: str) -> Field | None:
        return self._fields.get(name)

    def at_once(self, most: int) -> int:
        """Return how many records to read at once when up to `most` may be scanned.

        It is few if a record may hold a MiB of bytes.
        """
        return min(most, LARGE_AT_ONCE) if any(f.type is FieldType.BYTES for f in self.fields) else most


@lru_cache(maxsize=256)
def field_types(collection: Collection) -> Mapping[str, FieldType]:
    """Return the types of the declared fields by name."""
    return {f.name: f.type for f in collection.fields}
