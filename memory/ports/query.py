"""How stores are asked: where to look, filters, order, keyset cursors, counts and
searches.

A `Query` or `Search` names partitions or one whole tenant; without either it cannot be
built. `Everywhere` is for maintenance alone: no facade call produces one.

Clauses (`memory.ports.contract.clauses`): query.*, filter.*, search.*, lexical.*,
semantic.*, isolation.where, everywhere.all, refused.questions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from memory.domain.errors import InvalidInput
from memory.domain.ids import is_id
from memory.domain.time import micros, moment
from memory.ports.collections import Collection
from memory.ports.record import FieldValue, Key, Partition, Role, Stored

# -- where -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Partitions:
    """These scopes, at least one, all of one tenant."""

    partitions: tuple[Partition, ...]

    def __post_init__(self) -> None:
        if not self.partitions:
            raise InvalidInput("where", "name at least one partition")
        if len({p.tenant for p in self.partitions}) > 1:
            raise InvalidInput("where", "partitions of several tenants cannot be asked together")

    @property
    def tenant(self) -> str:
        return self.partitions[0].tenant


@dataclass(frozen=True, slots=True)
class Tenant:
    """Every scope of one tenant. Needs the capability `tenant_wide`."""

    tenant: str


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Every tenant: maintenance only."""


Where: TypeAlias = Partitions | Tenant | Everywhere


def within(*partitions: Partition) -> Partitions:
    return Partitions(partitions)


# -- filters ---------------------------------------------------------------------------
# Two-valued: a comparison with a missing value is false, and `Not` of it true. Text
# compares by code point, case-sensitively. Fields are the collection's declared ones
# and the system's: see SYSTEM_FIELDS.


@dataclass(frozen=True, slots=True)
class Eq:
    field: str
    value: FieldValue


@dataclass(frozen=True, slots=True)
class In:
    """The field's value is one of these; of none, always false."""

    field: str
    values: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True)
class Lt:
    field: str
    value: FieldValue


@dataclass(frozen=True, slots=True)
class Le:
    field: str
    value: FieldValue


@dataclass(frozen=True, slots=True)
class Gt:
    field: str
    value: FieldValue


@dataclass(frozen=True, slots=True)
class Ge:
    field: str
    value: FieldValue


@dataclass(frozen=True, slots=True)
class Has:
    """The tags field contains this whole tag, case-sensitively (D53)."""

    field: str
    tag: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """The field has no value. Empty text and empty tags are values."""

    field: str


@dataclass(frozen=True, slots=True)
class And:
    """All hold; of none, true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any holds; of none, false."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Condition


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The text begins with these characters, each as it is; with none of them, the
    field has a value. Of text fields, the id aside.

    No adapter knows it: `BaseStore` asks for the range of texts instead. See
    `memory.ports.query_validation`.
    """

    field: str
    prefix: str


Condition: TypeAlias = Eq | In | Lt | Le | Gt | Ge | Has | IsNull | StartsWith | And | Or | Not

MAX_FILTER_DEPTH = 32
MAX_FILTER_PARTS = 1_000
MAX_FILTER_VALUES = 100_000
"""The most levels, parts and values in all that a filter has."""


def all_of(*parts: Condition | None) -> Condition | None:
    """The conjunction of what is given, None where nothing is."""
    kept = tuple(p for p in parts if p is not None)
    return None if not kept else kept[0] if len(kept) == 1 else And(kept)


SYSTEM_FIELDS = frozenset(
    "id scope version created_at updated_at expires_at generation role tier owing discard_at accesses accessed_at".split()
)
"""Fields every record has: usable in filters and orders beside the declared ones.
`owing` is true where steps are owed.
"""


# -- queries ---------------------------------------------------------------------------


class RowType(StrEnum):
    """What stands under a key."""

    RECORD = "record"
    MARK = "mark"
    TOMBSTONE = "tombstone"


@dataclass(frozen=True, slots=True)
class Order:
    field: str
    descending: bool = False


HOMES = frozenset({Role.HOME})
WORDS = "#words"
VECTOR = "#vector"
"""Named in `select` as fields are: a record's counted words, as `memory.ports.lexical`
packs them, and its vector.
"""
MAX_LIMIT = 10_000
"""The most that one question answers. Who wants all there is walks the pages:
`memory.ports.full_scan`.
"""
MAX_ORDERS = 8


@dataclass(frozen=True, slots=True)
class Query:
    """Records of one collection in these roles, ordered, a page at a time.

    The id is the last sort key, in the direction of the last order given, so that every
    order is total. Missing values sort before all others ascending and after all others
    descending. `cursor` continues after the record it was made from: no record is lost
    or repeated under ties and concurrent inserts (D52). `limit` is from 1 to
    `MAX_LIMIT`; counting and deleting take no notice of it, `order` and `cursor`. With
    `select` the page has heads instead of records, each with exactly what is named:
    declared fields, system fields, `WORDS`, `VECTOR`. Heads are not held against a
    record's checksum: who needs to be sure reads the record by its key. With `types` of
    marks or tombstones (under `Everywhere` only) the filter may use `id`, `version`,
    `owing` and `discard_at`.
    """

    collection: Collection
    where: Where
    filter: Condition | None = None
    order: tuple[Order, ...] = ()
    limit: int = 100
    cursor: str | None = None
    roles: frozenset[Role] = HOMES
    types: frozenset[RowType] = frozenset({RowType.RECORD})
    select: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """What tells a record's copy from others, and what was asked for besides: of
    `fields` those named that have a value.
    """

    key: Key
    scope: str
    version: int
    role: Role
    tier: str
    generation: int
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    words: bytes | None = None
    vector: bytes | None = None

    @property
    def partition(self) -> Partition:
        return Partition(self.key.tenant, self.scope)


@dataclass(frozen=True, slots=True)
class Page:
    """What a query found, in order; `cursor` is None on the last page. `corrupt` names
    records that were passed over as unreadable.

    `heads` instead of `records` where the query selects.
    """

    records: tuple[Stored, ...] = ()
    cursor: str | None = None
    corrupt: tuple[Key, ...] = ()
    heads: tuple[Head, ...] = ()


@dataclass(frozen=True, slots=True)
class Count:
    """How many records match and what they take, in bytes as near as the store can
    tell.
    """

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Words:
    """Found by words: any record holding at least one of the text's content words, best
    first.

    The text is never syntax: quotes, operators, wildcards and NUL are just characters
    (D62). Analysis is that of `memory.ports.text` unless the adapter documents its own
    table (D57). A text without any word finds nothing.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Near:
    """Found by meaning: the records whose vectors have the highest cosine similarity to
    this one (packed float32, same dimensions).
    """

    vector: bytes


@dataclass(frozen=True, slots=True)
class Search:
    """The best `limit` records, from 1 to `MAX_LIMIT`, of one collection by words or by
    meaning, among those the filter lets through.

    Hits carry heads with what `select` names, as in `Query`. It spares stores from
    reading, checking and sending fifty records of which ten are shown; who shows them
    reads them by key.

    A search may be approximate. An engine may miss a record that matches, for example
    while it moves records between its files. `get` and `query` never do.
    """

    collection: Collection
    where: Where
    by: Words | Near
    limit: int
    filter: Condition | None = None
    roles: frozenset[Role] = HOMES
    select: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Hit:
    """The head of a found record and its score: higher is better. Scores of one search
    compare with each other, and for `Near` are cosines.
    """

    head: Head
    score: float


@dataclass(frozen=True, slots=True)
class PartitionPage:
    """Partitions and the generation of each, ordered by tenant and scope; `cursor` is
    None on the last page.
    """

    partitions: tuple[tuple[Partition, int], ...] = ()
    cursor: str | None = None


# -- cursors ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page ended: the sort values and the id of its last record. The same on
    every adapter, so that pages of several stores merge.
    """

    values: tuple[FieldValue, ...] = field(default=())
    id: str = ""


def encode_cursor(values: Sequence[FieldValue], record_id: str) -> str:
    """An opaque cursor. It holds sort values, without the sign of nought, which a store
    may have lost, and an id, no text of the record.
    """
    return _opaque(
        [
            [
                {"t": micros(v)} if isinstance(v, datetime) else v + 0.0 if isinstance(v, float) else v
                for v in values
            ],
            record_id,
        ]
    )


def encode_partition(partition: Partition) -> str:
    """The cursor of a page of partitions that ends here."""
    return _opaque([partition.tenant, partition.scope])


def decode_partition(cursor: str) -> Partition:
    """The partition behind which such a cursor goes on; another cursor is refused as
    `InvalidInput`.
    """
    try:
        tenant, scope = _read(cursor)
    except (ValueError, TypeError) as exc:
        raise InvalidInput("cursor", _NO_CURSOR) from exc
    if not isinstance(tenant, str) or not isinstance(scope, str):
        raise InvalidInput("cursor", _NO_CURSOR)
    return Partition(tenant, scope)


_NO_CURSOR = "this is not a cursor that such a question returned"


def _opaque(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def _read(cursor: str) -> list[Any]:
    parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    if not isinstance(parts, list):
        raise TypeError("a cursor is a list")
    return parts


def decode_cursor(cursor: str, order: Sequence[Order]) -> Position:
    """The position a cursor holds. One that was not made for this order is refused as
    `InvalidInput`.
    """
    try:
        values, record_id = _read(cursor)
        restored = tuple(moment(v["t"]) if isinstance(v, dict) else v for v in values)
    except (ValueError, TypeError, KeyError, OverflowError) as exc:
        raise InvalidInput("cursor", _NO_CURSOR) from exc
    if len(restored) != len(order) or not is_id(record_id):
        raise InvalidInput("cursor", "this cursor was made for a query with another order")
    return Position(restored, record_id)
