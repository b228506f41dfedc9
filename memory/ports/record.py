"""What stores keep: records, and the marks and tombstones that stand where a record
was.

A record is addressed by `Key(tenant, id)` and belongs to a `Partition(tenant, scope)`.
Adapters see only what is in this file: they know nothing of entries, conversations or
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
"""None, bool, int (64 bit), float (finite), str (NUL is a character, half of a
surrogate pair is none), or lists and string-keyed dicts of these, at most `MAX_DEPTH`
deep. A tuple is no list.
"""

MAX_DEPTH = 64
"""Levels of lists and dicts in a body, a note or the data of a step, the outermost
counted. The door lets through 32; what carries a whole record along (a step that owes
it) adds some.
"""

MAX_GENERATION = 2**53
"""Generations count erasures of one partition, and every engine counts that far
exactly.
"""

FieldValue: TypeAlias = str | int | float | bool | datetime | bytes | tuple[str, ...] | None
"""The value of one declared field; datetimes are UTC with microseconds, in the years 1
to 9999 there; tags are tuples of strings. An integer in a field of real numbers is one
that 64 bits of those hold exactly.
"""


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One tenant's one scope: the unit of isolation, of generations and of ranking
    statistics.

    `scope` is the scope's canonical text (see `memory.domain.scope`); stores treat it
    as opaque bytes: case, accents, trailing spaces and glob characters all tell two
    partitions apart.
    """

    tenant: str
    scope: str


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The address of a record. `id` is a UUID made for its partition, whose digest it
    carries (`memory.domain.ids`): what stands under a key is never of another scope. A
    foreign id reads as not found.
    """

    tenant: str
    id: str


class Role(StrEnum):
    """What a live copy is, in the store that holds it."""

    HOME = "home"  # the copy that decides conflicts
    REPLICA = "replica"  # a whole copy for searching; hits on it are hydrated from home
    ARRIVING = "arriving"  # a move put it here; it counts only once the source shows a mark to it
    CACHED = "cached"  # a copy in a volatile store, for reading by id only


@dataclass(frozen=True, slots=True)
class PendingStep:
    """One step that remains to be done for a record: set in the same write as the
    record, settled when done, never overwritten (see `writes`).

    `id` is unique in its holder. `step` names what is to be done (the orchestrator's
    business), `data` is JSON that it needs. Stores keep all three untouched.
    """

    id: str
    step: str
    data: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One live copy of a record.

    Content is what the record says: everything from `scope` to `generation`.
    Bookkeeping is the rest: it may change without a new version (see `Annotate`).

    `version` is a positive integer that only grows: writers take `max(stored + 1, now
    in microseconds since 1970)`. `expires_at` hides the record from readers strictly
    after that moment (A34); a store only keeps it. `texts` maps the collection's text
    parts to what is found by words; `vector` is packed little-endian float32 (see
    `pack_vector`). A field of None is the same as no field: stores may hand out either.
    `generation` of None in a `Put` means "the partition's current one"; stored records
    always have a number.
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
        """Whether both copies say the same: every content field equal, bookkeeping
        aside.
        """
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
    """Stands where a record was before it moved on: its home is now tier `to`. Never
    carries text.

    Kept at least until `discard_at`, and for good while it owes a step or `discard_at`
    is None.
    """

    key: Key
    scope: str
    version: int
    to: str
    owed: tuple[PendingStep, ...] = ()
    discard_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Stands where a record was before it was deleted: id, version and nothing of what
    it said.

    `note` is small JSON the deleter leaves (such as a digest), never text of the
    record. Kept at least until `discard_at`, and for good while it owes a step or
    `discard_at` is None.
    """

    key: Key
    version: int
    owed: tuple[PendingStep, ...] = ()
    note: Mapping[str, JsonValue] = field(default_factory=dict)
    discard_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Stands where a record cannot be read: its checksum fails. The store serves its
    neighbours.
    """

    key: Key
    problem: str


Standing: TypeAlias = Record | Mark | Tombstone
"""What can stand under a key and be read."""

Stored: TypeAlias = Standing | Corrupt
"""What `Store.get` finds under a key."""


def _non_null_fields(fields: Mapping[str, FieldValue]) -> dict[str, FieldValue]:
    return {name: value for name, value in fields.items() if value is not None}


def pack_vector(values: Sequence[float]) -> bytes:
    """A vector as stored: little-endian float32, four bytes a dimension. Callers check
    that it is finite and not all zero.
    """
    packed = array.array("f", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_vector(packed: bytes) -> list[float]:
    """The numbers of a packed vector, for adapters whose engine takes lists. Numpy
    users read the bytes as dtype '<f4'.
    """
    values = array.array("f", packed)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
