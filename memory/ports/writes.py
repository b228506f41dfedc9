"""The writes of a store, their conditions, and their outcomes.

Every write names one key, is independent, and is repeatable: applying it twice leaves
the same state as applying it once. The table shows when a condition holds (`-` means
that nothing is stored):

| condition      | -        | live, version v     | mark, version v | tombstone, v   |
|----------------|----------|---------------------|-----------------|----------------|
| `Absent()`     | apply    | conflict            | conflict        | conflict       |
| `AtVersion(n)` | conflict | v == n, role, tier  | conflict        | v == n (note)  |
| `Newer()`      | apply    | v < the new version | v < new version | v < new version|
| `Always()`     | apply    | apply               | apply           | apply          |

Note: `AtVersion` holds on a tombstone only if it names neither a role nor a tier.

Pending steps are completed, never overwritten. They restrict a put, a deletion, a
release and a purge further, whether or not the condition holds:

| the stored item has a pending step that | live, mark or tombstone        |
|-----------------------------------------|--------------------------------|
| the write has too, by its `id`          | as above; the step stays       |
| is among the write's `settles`          | as above; the step is dropped  |
| is neither                              | conflict, except for `Always()`|

A corrupt record counts as having no pending step. `Absent()` and `AtVersion(n)` do not
hold on it. `Newer()` holds unless the version can still be read and is not lower. A
store that decides without reading the content may accept `AtVersion(n)` on damage that
nobody has met yet. The result of such a write is undamaged.

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
    """A live copy or a tombstone of exactly this version; never a mark.

    With `role` or `tier`, only a live copy in that role and tier.
    """

    version: int
    role: Role | None = None
    tier: str | None = None
    """The tier that the live copy must be in.

    Moves within one store change the tier without a new version. A writer that writes
    back a whole record can require the tier that it read.
    """


@dataclass(frozen=True, slots=True)
class Newer:
    """The stored item has a lower version than the write, or nothing is stored."""


@dataclass(frozen=True, slots=True)
class Always:
    """No condition. It is for caches, which decide nothing."""


When: TypeAlias = Absent | AtVersion | Newer | Always


@dataclass(frozen=True, slots=True)
class Put:
    """Store a whole record in place of the stored item, if the condition holds.

    A record with a generation of None gets the partition's current generation. A record
    with a lower number was erased: it is rejected with reason "generation" under any
    condition.

    `settles` names pending steps of the stored item that this write drops. With
    `erases`, nothing of the stored item stays readable, as after a deletion. A store
    that keeps old versions for restoring keeps none of it. A full store accepts such a
    put if it accepts deletions.
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
    """Leave a tombstone of this version if the condition holds.

    Nothing of the record's content stays readable. Under `Newer()` a tombstone is left
    even if nothing was stored, so a late copy is refused. With other conditions,
    deleting a missing item conflicts. `discard_at` of None keeps the tombstone until a
    later `Annotate` sets a time.
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
    """Replace the live HOME copy at exactly version `at` by a mark of that version.

    The record now lives in tier `to`. Repeating the write on its own mark is applied
    again and changes nothing.
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
    """Change bookkeeping of the item at exactly version `at`, without a new version.

    It applies to live copies. `settle` and `discard_at` also apply to marks and
    tombstones. `role_is` restricts it to a live copy in that role. `settle` removes the
    pending steps with these ids; unknown ids are no error. It cannot add pending steps.
    `accessed_at` replaces the moment of the last access, and counts one access.
    `expires_at` moves the expiry of a live copy, only to a later moment; a copy without
    an expiry stays without.
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
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Purge:
    """Remove the item at exactly version `at`, leaving nothing.

    Without `role_is`, it removes a mark, a tombstone, or a live copy in the role
    CACHED. With `role_is`, it removes a live copy in just that role, CACHED or
    ARRIVING. Any other item conflicts. Purging a missing item is applied.
    """

    collection: Collection
    key: Key
    at: int
    role_is: Role | None = None
    settles: frozenset[str] = frozenset()

    def forgets(self, stored: Stored) -> bool:
        """Return whether this purge removes the item, apart from its pending steps."""
        if isinstance(stored, Record):
            return (
                stored.version == self.at
                and stored.role is (self.role_is or Role.CACHED)
                and stored.role in (Role.CACHED, Role.ARRIVING)
            )
        return isinstance(stored, Mark | Tombstone) and stored.version == self.at and self.role_is is None


@dataclass(frozen=True, slots=True)
class RaiseGeneration:
    """Raise the partition's generation to at least `to`, or by one if `to` is None.

    A generation counts for every collection. The outcome's `number` is the generation
    afterwards; `to=0` reads it. Generations start at 0 and never fall.
    """

    partition: Partition
    to: int | None = None


Write: TypeAlias = Put | Delete | Release | Annotate | Purge | RaiseGeneration


class Status(StrEnum):
    APPLIED = "applied"  # the write is in effect and as safe as the store's `durable` says
    CONFLICT = "conflict"  # its condition did not hold; `stored` is the item that is there
    REJECTED = "rejected"  # the store refuses this write in any state; `reason` says why
    SKIPPED = "skipped"  # its batch was applied together or not at all, and another item failed


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one write.

    `version` is the version now stored under the key; None if nothing is stored.
    `stored` is the stored item of a conflict. `generation` is the generation of an
    applied put, and `number` the raised generation. `reason` explains a rejection:
    "generation" for an erased scope, else a sentence that names the field and the
    limit.
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
