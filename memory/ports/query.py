"""Questions to stores: partitions, filters, order, cursors, counts and searches.

A `Query` or `Search` must name partitions, subtrees of one tenant or one whole tenant.
`Everywhere` is for maintenance alone: no facade call produces one.

Clauses (`memory.ports.contract.clauses`): query.*, filter.*, search.*, lexical.*,
semantic.*, isolation.where, everywhere.all, under.*, refused.questions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeAlias

from memory.domain.errors import InvalidInput
from memory.domain.filters import Operator
from memory.domain.ids import is_id
from memory.domain.time import micros, moment
from memory.ports.collections import Collection
from memory.ports.record import FieldValue, JsonValue, Key, Partition, Role, Stored

MANY = 8
"""From so many partitions on, a set is made for membership tests."""

# -- where -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Partitions:
    """These scopes, at least one, all of one tenant."""

    partitions: tuple[Partition, ...]

    def __post_init__(self) -> None:
        if not self.partitions:
            raise InvalidInput("where", "name at least one partition")
        if len({p.tenant for p in self.partitions}) > 1:
            raise InvalidInput("where", "name partitions of one tenant, and ask for each tenant separately")

    @property
    def tenant(self) -> str:
        return self.partitions[0].tenant

    @cached_property
    def every(self) -> frozenset[Partition]:
        """The partitions for many membership tests."""
        return frozenset(self.partitions)


@dataclass(frozen=True, slots=True)
class Tenant:
    """Every scope of one tenant. Needs the capability `tenant_wide`."""

    tenant: str


@dataclass(frozen=True)
class Under:
    """The scopes of one tenant that begin with one of these texts, or equal one.

    `prefixes` are texts of scopes that end with `/`, so they match whole labels only.
    There is at least one. They and `scopes` are compared as bytes: nothing in them is a
    pattern. They may overlap; a record is found once. Needs the capability
    `tenant_wide`.

    A `BaseStore` answers questions for it by questions for the partitions that exist
    there, unless the adapter sets `answers_under`.
    """

    tenant: str
    prefixes: tuple[str, ...]
    scopes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.prefixes:
            raise InvalidInput("where", "name at least one prefix, or use Partitions")

    def contains(self, scope: str) -> bool:
        """Return whether a scope's text is in this place."""
        return scope in self._texts or scope.startswith(self.prefixes)

    @cached_property
    def _texts(self) -> frozenset[str]:
        return frozenset(self.scopes)

    def disjoint(self) -> Under:
        """Return the same place, in which each scope belongs to one prefix or text."""
        prefixes: list[str] = []
        for prefix in sorted(set(self.prefixes)):
            if not prefixes or not prefix.startswith(prefixes[-1]):
                prefixes.append(prefix)
        scopes = sorted({scope for scope in self.scopes if not scope.startswith(tuple(prefixes))})
        return Under(self.tenant, tuple(prefixes), tuple(scopes))


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Every tenant: maintenance only."""


Where: TypeAlias = Partitions | Under | Tenant | Everywhere


def within(*partitions: Partition) -> Partitions:
    return Partitions(partitions)


def covers(where: Where, partition: Partition) -> bool:
    """Return whether a partition is in this place."""
    match where:
        case Everywhere():
            return True
        case Partitions(partitions):
            return partition in (partitions if len(partitions) < MANY else where.every)
        case Under(tenant):
            return partition.tenant == tenant and where.contains(partition.scope)
        case Tenant(tenant):
            return partition.tenant == tenant


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
    """The field's value is one of these; false if there are none."""

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
    """The tags field contains this whole tag, case-sensitively."""

    field: str
    tag: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """The field has no value. Empty text and empty tags are values."""

    field: str


@dataclass(frozen=True, slots=True)
class And:
    """All parts hold; true if there are none."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any part holds; false if there are none."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Condition


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The text field begins with exactly these characters.

    With no characters, it holds if the field has a value. It does not apply to the id.
    Adapters never receive it: `BaseStore` replaces it by a range of texts. See
    `memory.ports.query_validation`.
    """

    field: str
    prefix: str


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A comparison of the value at a path in the body with a scalar.

    `parts` are the keys from the body to the value. `value` is text, a number, a
    boolean or None; a tuple of these for `in`, and None for `exists`. The meaning is in
    `memory.domain.filters.holds`. `value` has no NUL. If a text in a body has one, the
    result of the comparison is not defined.

    A store may ignore the comparison. Then its answer has more records, and never
    fewer. `BaseStore` replaces the comparisons that an adapter does not make; see its
    `_reads_json`. `count` and `delete_matching` refuse a `JsonPath`, because there
    additional records make the result wrong.
    """

    parts: tuple[str, ...]
    operator: Operator
    value: JsonValue = None


Condition: TypeAlias = Eq | In | Lt | Le | Gt | Ge | Has | IsNull | StartsWith | JsonPath | And | Or | Not

MAX_FILTER_DEPTH = 32
MAX_FILTER_PARTS = 1_000
MAX_FILTER_VALUES = 100_000
"""The most levels, parts and values of a whole filter."""


def all_of(*parts: Condition | None) -> Condition | None:
    """Return the conjunction of the given conditions; None if there are none."""
    kept = tuple(p for p in parts if p is not None)
    return None if not kept else kept[0] if len(kept) == 1 else And(kept)


ALWAYS, NEVER = And(()), Or(())


def simplify(part: Condition) -> Condition:
    """Return an equal condition without parts that are always or never true."""
    match part:
        case And(parts) | Or(parts):
            kind, neutral = type(part), type(part)(())
            kept = tuple(one for p in parts if (one := simplify(p)) != neutral)
            if any(isinstance(one, And | Or) and not one.parts for one in kept):
                return NEVER if isinstance(part, And) else ALWAYS
            return kept[0] if len(kept) == 1 else kind(kept)
        case Not(inner):
            inner = simplify(inner)
            return NEVER if inner == ALWAYS else ALWAYS if inner == NEVER else Not(inner)
        case _:
            return part


def has_json(part: Condition | None) -> bool:
    """Return whether a condition names a path in the body."""
    match part:
        case And(parts) | Or(parts):
            return any(has_json(p) for p in parts)
        case Not(inner):
            return has_json(inner)
        case _:
            return isinstance(part, JsonPath)


def widen(part: Condition, knows: Callable[[Condition], bool]) -> Condition:
    """Return a condition without the comparisons that a store does not make.

    Every record that meets the given condition meets the returned one; others may too.
    """
    return simplify(_without_unknown(part, knows, ALWAYS, NEVER))


def _without_unknown(
    part: Condition, knows: Callable[[Condition], bool], unknown: Condition, opposite: Condition
) -> Condition:
    match part:
        case And(parts) | Or(parts):
            return type(part)(tuple(_without_unknown(p, knows, unknown, opposite) for p in parts))
        case Not(inner):
            return Not(_without_unknown(inner, knows, opposite, unknown))
        case _:
            return part if knows(part) else unknown


SYSTEM_FIELDS = frozenset(
    "id scope version created_at updated_at expires_at generation role tier owing discard_at accesses"
    " accessed_at".split()
)
"""The fields of every record, usable in filters and orders beside the declared ones.

`owing` is true if steps are pending.
"""


# -- queries ---------------------------------------------------------------------------


class RowType(StrEnum):
    """The type of a stored row."""

    RECORD = "record"
    MARK = "mark"
    TOMBSTONE = "tombstone"


@dataclass(frozen=True, slots=True)
class Order:
    field: str
    descending: bool = False


HOMES = frozenset({Role.HOME})
RECORDS = frozenset({RowType.RECORD})
WORDS = "#words"
VECTOR = "#vector"
"""Names for `select`, beside fields.

They stand for a record's counted words, as `memory.ports.lexical` packs them, and its
vector.
"""
MAX_LIMIT = 10_000
"""The most rows of one answer.

To read all rows, walk the pages with `memory.ports.full_scan`.
"""
MAX_ORDERS = 8


@dataclass(frozen=True, slots=True)
class Query:
    """A question for the records of one collection in these roles, page by page.

    The id is the last sort key, in the direction of the last given order, so every
    order is total. Missing values sort first in ascending order and last in descending
    order. `cursor` continues after the record it was made from. Ties and concurrent
    inserts lose or repeat no record.

    `limit` is from 1 to `MAX_LIMIT`. Counting and deleting ignore `limit`, `order` and
    `cursor`.

    With `select`, the page has heads instead of records. Each head has exactly the
    named values: declared fields, system fields, `WORDS`, `VECTOR`. Heads are not
    verified against a record's checksum. To be sure, read the record by its key.

    `types` of marks or tombstones need `Everywhere`. The filter may then use `id`,
    `version`, `owing` and `discard_at`.
    """

    collection: Collection
    where: Where
    filter: Condition | None = None
    order: tuple[Order, ...] = ()
    limit: int = 100
    cursor: str | None = None
    roles: frozenset[Role] = HOMES
    types: frozenset[RowType] = RECORDS
    select: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The identity of a record's copy, and the selected values.

    `fields` holds the selected fields that have a value.
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
    """The results of a query, in order; `cursor` is None on the last page.

    `corrupt` names the records that were skipped as unreadable. A query with `select`
    fills `heads` instead of `records`.
    """

    records: tuple[Stored, ...] = ()
    cursor: str | None = None
    corrupt: tuple[Key, ...] = ()
    heads: tuple[Head, ...] = ()


@dataclass(frozen=True, slots=True)
class Count:
    """The number of matching records and their bytes, as near as the store can tell."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Words:
    """Search by words: records with any content word of the text, best first.

    The text is never syntax: quotes, operators, wildcards and NUL are just characters.
    Words are analysed as in `memory.ports.text`, unless the adapter documents its own
    table. A text without any word finds nothing.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Near:
    """Search by meaning: the highest cosine similarity to this vector.

    The vector is packed float32 with the same dimensions as the records' vectors.
    """

    vector: bytes


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the best records of one collection that pass the filter.

    `limit` is from 1 to `MAX_LIMIT`. Hits carry heads with the values that `select`
    names, as in `Query`. So a store need not read, check and send fifty records if ten
    are shown. The caller reads those by key.

    A search may be approximate. An engine may miss a record that matches, for example
    while it moves records between its files. `get` and `query` never miss one.
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
    """The head of a found record and its score; higher is better.

    Scores of one search are comparable. For `Near` they are cosines.
    """

    head: Head
    score: float


@dataclass(frozen=True, slots=True)
class PartitionPage:
    """Partitions with their generations, ordered by tenant and scope.

    `cursor` is None on the last page.
    """

    partitions: tuple[tuple[Partition, int], ...] = ()
    cursor: str | None = None


# -- cursors ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Position:
    """The end of a page: the sort values and the id of its last record.

    It is the same on every adapter, so pages of several stores can be merged.
    """

    values: tuple[FieldValue, ...] = field(default=())
    id: str = ""


def encode_cursor(values: Sequence[FieldValue], record_id: str) -> str:
    """Encode an opaque cursor from sort values and an id.

    It holds no text of the record. It drops the sign of zero, which a store may have
    lost.
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
    """Encode the cursor of a page of partitions that ends here."""
    return _opaque([partition.tenant, partition.scope])


def decode_partition(cursor: str) -> Partition:
    """Return the partition after which this cursor continues.

    Raises:
        InvalidInput: It is a cursor of another kind.
    """
    try:
        tenant, scope = _read(cursor)
    except (ValueError, TypeError) as exc:
        raise InvalidInput("cursor", _NO_CURSOR) from exc
    if not isinstance(tenant, str) or not isinstance(scope, str):
        raise InvalidInput("cursor", _NO_CURSOR)
    return Partition(tenant, scope)


_NO_CURSOR = "is not a cursor of such a call. Pass the cursor of its earlier page, unchanged"


def _opaque(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def _read(cursor: str) -> list[Any]:
    parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    if not isinstance(parts, list):
        raise TypeError("a cursor is a list")
    return parts


def decode_cursor(cursor: str, order: Sequence[Order]) -> Position:
    """Return the position that a cursor holds.

    Raises:
        InvalidInput: The cursor was not made for this order.
    """
    try:
        values, record_id = _read(cursor)
        restored = tuple(moment(v["t"]) if isinstance(v, dict) else v for v in values)
    except (ValueError, TypeError, KeyError, OverflowError) as exc:
        raise InvalidInput("cursor", _NO_CURSOR) from exc
    if len(restored) != len(order) or not is_id(record_id):
        raise InvalidInput("cursor", "this cursor was made for a query with another order")
    return Position(restored, record_id)
