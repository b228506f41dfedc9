"""Stored items: records, and the marks and tombstones that replace them.

A record is addressed by `Key(tenant, id)` and belongs to a `Partition(tenant, scope)`.
Adapters see only the types of this file. They know nothing of entries, conversations or
policies.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

JsonValue: TypeAlias = Any
"""None, bool, 64-bit int, finite float, str, or lists and string-keyed dicts of these.

A string may contain NUL, but no half of a surrogate pair. The nesting is at most
`MAX_DEPTH` deep. Tuples are not allowed.
"""

MAX_DEPTH = 64
"""The most levels of lists and dicts in a body, a note or the data of a step.

The outermost level counts. Validation accepts 32 levels from callers. A step that
carries a whole record adds some.
"""

MAX_GENERATION = 2**53
"""The highest generation, which every engine counts exactly.

A generation counts the erasures of one partition.
"""

FieldValue: TypeAlias = str | int | float | bool | datetime | bytes | tuple[str, ...] | None
"""The value of one declared field.

Datetimes are UTC with microseconds, in the years 1 to 9999 of UTC. Tags are tuples of
strings. An integer in a field of real numbers must be exact as a 64-bit float.
"""


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One scope of a tenant: the unit of isolation, generations and statistics.

    `scope` is the scope's canonical text (see `memory.domain.scope`). Stores treat it
    as opaque bytes: case, accents, trailing spaces and glob characters distinguish
    partitions.
    """

    tenant: str
    scope: str


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The address of a record.

    `id` is a UUID made for its partition, and carries the partition's digest
    (`memory.domain.ids`). So one key never belongs to two scopes. An id of another
    partition reads as not found.
    """

    tenant: str
    id: str


class Role(StrEnum):
    """The role of a live copy in the store that holds it."""

    HOME = "home"  # the copy that decides conflicts
    REPLICA = "replica"  # a whole copy for searching; hits on it are hydrated from home
    ARRIVING = "arriving"  # a move put it here; it counts only once the source shows a mark to it
    CACHED = "cached"  # a copy for reading by id only, which may be lost at any time


@dataclass(frozen=True, slots=True)
class PendingStep:
    """One step that remains to be done for a record.

    The write of the record sets it. It is removed when it is done, and never
    overwritten (see `writes`).

    `id` is unique in its holder. `step` names the action, which only the orchestrator
    interprets. `data` is the action's JSON. Stores keep all three unchanged.
    """

    id: str
    step: str
    data: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One live copy of a record.

    The fields from `scope` to `generation` are content. The others are bookkeeping,
    which may change without a new version (see `Annotate`). So may `expires_at`, which
    an annotation moves to a later moment.

    `version` is a positive integer that only grows. Writers take `max(stored + 1, now
    in microseconds since 1970)`. `expires_at` hides the record from readers strictly
    after that moment; a store only keeps the value. `texts` maps the collection's text
    parts to the texts that word search indexes. `vector` is packed little-endian
    float32 (see `pack_vector`).

    A field of None is the same as no field, and stores may return either. `generation`
    of None in a `Put` means the partition's current generation. Stored records always
    have a number.
    """

    key: Key
    scope: str
    version: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    body: Mapping[str, JsonValue] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    vector: bytes | None = None
    generation: int | None = None
    # bookkeeping
    role: Role = Role.HOME
    tier: str = ""
    owed: tuple[PendingStep, ...] = ()
    previous: int | None = None  # the version this one replaced, where that was kept
    accesses: int = 0
    accessed_at: datetime | None = None
    cached_at: datetime | None = None  # a cached copy: when it was read from home
    epoch: str | None = None  # a cached copy: the run of the store it was put into

    @property
    def partition(self) -> Partition:
        return Partition(self.key.tenant, self.scope)

    def same_content(self, other: Record) -> bool:
        """Return whether all content fields are equal, apart from bookkeeping."""
        return (
            self.key == other.key
            and self.scope == other.scope
            and self.version == other.version
            and self.created_at == other.created_at
            and self.updated_at == other.updated_at
            and self.expires_at == other.expires_at
            and _non_null_fields(self.fields) == _non_null_fields(other.fields)
            and dict(self.body) == dict(other.body)
            and dict(self.texts) == dict(other.texts)
            and self.vector == other.vector
            and self.generation == other.generation
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """Replaces a record that moved on: its home is now tier `to`.

    A mark never carries text. It is kept at least until `discard_at`. It is kept for
    good while a step is pending or `discard_at` is None.
    """

    key: Key
    scope: str
    version: int
    to: str
    owed: tuple[PendingStep, ...] = ()
    discard_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Replaces a deleted record: it keeps the id and version, and none of the content.

    `note` is small JSON that the deleter leaves, such as a digest, never text of the
    record. A tombstone is kept at least until `discard_at`. It is kept for good while a
    step is pending or `discard_at` is None.
    """

    key: Key
    version: int
    owed: tuple[PendingStep, ...] = ()
    note: Mapping[str, JsonValue] = field(default_factory=dict)
    discard_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Replaces a record that cannot be read, because its checksum fails.

    The store still serves the other records.
    """

    key: Key
    problem: str


Standing: TypeAlias = Record | Mark | Tombstone
"""A readable stored item."""

Stored: TypeAlias = Standing | Corrupt
"""Anything that `Store.get` may find under a key."""


def _non_null_fields(fields: Mapping[str, FieldValue]) -> dict[str, FieldValue]:
    return {name: value for name, value in fields.items() if value is not None}


def pack_vector(values: Sequence[float]) -> bytes:
    """Pack a vector as little-endian float32, four bytes a dimension.

    Callers check that it is finite and not all zero.
    """
    packed = array.array("f", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_vector(packed: bytes) -> list[float]:
    """Return the numbers of a packed vector, for adapters whose engine takes lists.

    Numpy users read the bytes as dtype '<f4'.
    """
    values = array.array("f", packed)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
