"""The writes a store takes, the conditions they stand under, and what comes back for
each.

Every write names one key, stands on its own, and is repeatable: applying it twice
leaves what applying it once leaves. How a condition meets what is stored (`-` is
nothing stored):

| condition     | -     | live, version v       | mark, version v | tombstone, version v  |
|---------------|-------|-----------------------|-----------------|-----------------------|
| `Absent()`    | apply | conflict              | conflict        | conflict              |
| `AtVersion(n)`| conflict | v == n, role, tier | conflict        | v == n, neither asked |
| `Newer()`     | apply | v < the new version   | v < new version | v < new version       |
| `Always()`    | apply | apply                 | apply           | apply                 |

What is owed is settled, never overwritten. A put, a deletion, a release or a purge,
allowed or not by its condition, meets what owes so:

| what stands there owes a step that     | live, mark or tombstone, owing |
|----------------------------------------|--------------------------------|
| the write owes too, by its `id`        | as above: it is carried on     |
| is of one of the `settles` of a write  | as above: it is dropped        |
| is neither                             | conflict, but for `Always()`   |

Where a corrupt record stands, nothing is known to be owed, `Absent()` and
`AtVersion(n)` do not hold, and `Newer()` does unless the version that can still be read
is not lower. A store that decides without reading the content may let `AtVersion(n)`
hold over damage that nobody has met yet: what it leaves is whole.

Clauses (`memory.ports.contract.clauses`): write.*, put.*, delete.*, release.*,
annotate.*, purge.*, generation.*, damage.writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from memory.ports.collections import Collection
from memory.ports.record import JsonValue, Key, Mark, Partition, PendingStep, Record, Role, Stored, Tombstone


@dataclass(frozen=True, slots=True)
class Absent:
    """Nothing is stored under the key: no live copy, no mark, no tombstone."""


@dataclass(frozen=True, slots=True)
class AtVersion:
    """A live copy or a tombstone of exactly this version; with `role` or `tier`, a live
    copy in that role and tier. Never a mark.
    """

    version: int
    role: Role | None = None
    tier: str | None = None
    """Moves within one store change the tier without a new version: who writes a whole
    record back asks that it is where it was read.
    """


@dataclass(frozen=True, slots=True)
class Newer:
    """What is stored, of whatever kind, has a lower version than the write, or nothing
    is stored.
    """


@dataclass(frozen=True, slots=True)
class Always:
    """No condition. For caches, which decide nothing."""


When: TypeAlias = Absent | AtVersion | Newer | Always


@dataclass(frozen=True, slots=True)
class Put:
    """Store a whole record, replacing whatever stands under its key, when the condition
    holds.

    A record whose generation is None gets the partition's current generation; one with
    a number lower than the partition's current generation is rejected with reason
    "generation" whatever the condition says: it was erased. `settles` names the steps
    that what stands there may owe and this write drops. With `erases` nothing of what
    stood there stays readable, as after a deletion: a store that keeps a version to
    restore keeps none of it. A full store takes such a put if it takes deletions.
    """

    collection: Collection
    record: Record
    when: When
    settles: frozenset[str] = frozenset()
    erases: bool = False

    @property
    def key(self) -> Key:
        return self.record.key


@dataclass(frozen=True, slots=True)
class Delete:
    """Leave a tombstone of this version where the condition holds; nothing of the
    record's content stays readable.

    Under `Newer()` a tombstone is left also where nothing was stored, so that a late
    copy is refused. Deleting what is missing otherwise conflicts. `discard_at` of None
    keeps the tombstone until a later `Annotate` sets one.
    """

    collection: Collection
    key: Key
    version: int
    when: AtVersion | Newer
    owed: tuple[PendingStep, ...] = ()
    note: Mapping[str, JsonValue] = field(default_factory=dict)
    discard_at: datetime | None = None
    settles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of the live HOME copy at exactly version `at`, because it now lives in
    tier `to`: leaves a mark of that version.

    Repeating it on the mark it left is applied again without change.
    """

    collection: Collection
    key: Key
    at: int
    to: str
    owed: tuple[PendingStep, ...] = ()
    discard_at: datetime | None = None
    settles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Annotate:
    """Change bookkeeping of what stands under the key at exactly version `at`, without
    a new version.

    Applies to live copies, and for `settle` and `discard_at` also to marks and
    tombstones. `role_is` restricts it to a live copy in that role. `settle` takes the
    owed steps of these ids away (those not owed are no error); nothing can be added to
    what is owed. `accessed_at` also counts one access.
    """

    collection: Collection
    key: Key
    at: int
    role_is: Role | None = None
    role: Role | None = None
    tier: str | None = None
    settle: tuple[str, ...] = ()
    discard_at: datetime | None = None
    accessed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Purge:
    """Forget what stands under the key at exactly version `at`, leaving nothing.

    Without `role_is`: a mark, a tombstone, or a live copy in the role CACHED. With it:
    a live copy in just that role, CACHED or ARRIVING. Everything else conflicts.
    Purging what is missing is applied.
    """

    collection: Collection
    key: Key
    at: int
    role_is: Role | None = None
    settles: frozenset[str] = frozenset()

    def forgets(self, stored: Stored) -> bool:
        """Whether this purge forgets what stands there, where that owes nothing else."""
        if isinstance(stored, Record):
            return (
                stored.version == self.at
                and stored.role is (self.role_is or Role.CACHED)
                and stored.role in (Role.CACHED, Role.ARRIVING)
            )
        return isinstance(stored, Mark | Tombstone) and stored.version == self.at and self.role_is is None


@dataclass(frozen=True, slots=True)
class RaiseGeneration:
    """Raise the partition's generation, which counts for every collection, to at least
    `to`, or by one where `to` is None.

    The outcome's `number` is the current one after; `to=0` reads it. Generations start
    at 0 and never fall.
    """

    partition: Partition
    to: int | None = None


Write: TypeAlias = Put | Delete | Release | Annotate | Purge | RaiseGeneration


class Status(StrEnum):
    APPLIED = "applied"  # the write is in effect and as safe as the store's `durable` says
    CONFLICT = "conflict"  # its condition did not hold; `stored` is what stands there
    REJECTED = "rejected"  # the store refuses this write whatever is stored; `reason` says why
    SKIPPED = "skipped"  # its batch was applied together or not at all, and another item failed


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one write.

    `version` is the version now stored under the key, None where nothing is. `stored`,
    on a conflict, is what stands there. `generation` is the generation an applied Put
    was stored with; `number` the raised generation. `reason`, on a rejection:
    "generation" for an erased scope, else a sentence that names field and limit.
    """

    status: Status
    version: int | None = None
    stored: Stored | None = None
    generation: int | None = None
    number: int | None = None
    reason: str = ""

    @property
    def applied(self) -> bool:
        return self.status is Status.APPLIED
