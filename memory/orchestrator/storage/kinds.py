"""The kinds of record, and how the engine handles each.

Erasure, the outbox, sweeps, moves and transfer iterate over this table. A new kind is
one line here. A kind with rules of its own has a module (entries, relations, erasures,
leases, settings), never a flag.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memory.domain.errors import MemoryTiersError
from memory.domain.scope import Scope, ScopeKind
from memory.orchestrator.storage.collections import (
    ARTIFACTS,
    CLAIMS,
    COUNTERS,
    DOCUMENT_CHUNKS,
    DOCUMENTS,
    ENTRIES,
    ENTRY_PASSAGES,
    ENTRY_VERSIONS,
    HOLDS,
    LEASES,
    MANIFESTS,
    MESSAGES,
    NUMBERS,
    OPERATIONS,
    PASSAGES,
    RELATIONS,
    REQUESTS,
    RESERVATIONS,
    RUNS,
    SCRATCHPADS,
    SESSIONS,
    SETTINGS,
    TASKS,
)
from memory.orchestrator.storage.split import CONVERSATION, SCRATCHPAD
from memory.policies.routing import Route, replicas_of, route
from memory.ports.collections import Collection
from memory.ports.record import Partition


@dataclass(frozen=True, slots=True)
class Kind:
    """A collection, and how the engine handles its records."""

    collection: Collection
    scoped: bool = True
    """Whether its records belong to callers' scopes and are erased with them. All other
    records are the engine's own and hold no caller's text.
    """
    home: str | None = "mid"
    """The tier of its new records. None: their scope decides."""
    versions: Collection | None = None
    """Where replaced versions go. They are deleted with the record."""
    passages: Collection | None = None
    """Where the parts of long texts go for search by meaning (see `long_texts`). They
    end with the record. Its collection declares `said`.
    """
    children: tuple[tuple[Collection, str], ...] = ()
    """Collections in the archive whose records refer to a record of this kind, and the
    field of the reference. They are deleted with the record.
    """
    parts: tuple[tuple[Collection, str], ...] = ()
    """As `children`, but in the record's own store, and a writer may store them before
    the record.

    So no sweep takes them for orphans. A deletion takes those older than itself. A
    record with parts has no copies in other stores.
    """
    replicated: bool = False
    """Whether a later tier gets whole copies for searching."""
    movable: bool = False
    """Whether promotion rules and sweeps move its records to later tiers."""
    exported: bool = True
    apart: str | None = None
    """Prefix of the scopes that hold only such records: those of conversations or of
    scratchpads. None: callers' own scopes.
    """
    heads: bool = False
    """Whether all other records of its scope are unreadable without its record."""

    def scope_of(self, scope: Scope) -> str | None:
        """Return the scope of this kind's records that belong to a caller's scope.

        None if there are no such records.
        """
        if self.apart is None:
            return scope.text
        if not self.conversational:
            return None
        return f"{CONVERSATION}:{scope.id}" if scope.kind is ScopeKind.SESSION else None

    @property
    def conversational(self) -> bool:
        return self.apart == CONVERSATION

    def route(self, scope_kind: ScopeKind | None = None) -> Route:
        """Return the tier of a new record, its copies, and the reason."""
        return route(self.collection.name, self.home, scope_kind, replicated=self.replicated)

    def replicas(self, tier: str) -> tuple[str, ...]:
        """Return the tiers that hold replicas of a record while `tier` is its home."""
        return replicas_of(tier) if self.replicated else ()

    @property
    def named_by(self) -> dict[Collection, tuple[str, ...]]:
        """Return the collections of children, each with all its reference fields."""
        found: dict[Collection, tuple[str, ...]] = {}
        for child, field in self.children:
            found[child] = (*found.get(child, ()), field)
        return found


class Kinds:
    """A table of kinds."""

    def __init__(self, *kinds: Kind) -> None:
        self._of = {kind.collection: kind for kind in kinds}

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._of.values())

    def of(self, collection: Collection) -> Kind:
        return self._of[collection]

    def by_name(self, collection: str) -> Collection:
        """Return the collection of this name.

        Raises:
            MemoryTiersError: This version of the library has no such collection.
        """
        for known in self._of:
            if known.name == collection:
                return known
        raise MemoryTiersError(f"this version of the library does not know the collection '{collection}'")

    @property
    def collections(self) -> tuple[Collection, ...]:
        return tuple(self._of)

    @property
    def scoped(self) -> tuple[Kind, ...]:
        return tuple(kind for kind in self if kind.scoped)

    def within(self, *partitions: Partition) -> tuple[Kind, ...]:
        """Return the kinds whose records can be stored in one of these partitions."""
        beginnings = {kind.apart for kind in self.scoped}
        asked = {
            begins if (begins := partition.scope.partition(":")[0]) in beginnings else None
            for partition in partitions
        }
        return tuple(kind for kind in self.scoped if kind.apart in asked)

    @property
    def movable(self) -> tuple[Kind, ...]:
        return tuple(kind for kind in self if kind.movable)

    def parents(self, child: Collection) -> dict[str, Collection]:
        """Return the fields by which records of this collection refer to others.

        The values are the collections of the referenced records.
        """
        return {field: kind.collection for kind in self for of, field in kind.children if of is child}

    @property
    def expiring_kinds(self) -> tuple[Kind, ...]:
        """Return the kinds that expire by themselves.

        These are all kinds in callers' scopes, without replaced versions, which are
        deleted with their record.
        """
        versions = {kind.versions for kind in self}
        return tuple(kind for kind in self.scoped if kind.collection not in versions)


KINDS = Kinds(
    Kind(
        ENTRIES,
        home=None,
        versions=ENTRY_VERSIONS,
        passages=ENTRY_PASSAGES,
        children=((RELATIONS, "source_id"), (RELATIONS, "target_id"), (NUMBERS, "entry_id")),
        replicated=True,
        movable=True,
    ),
    Kind(ENTRY_VERSIONS, exported=False),
    Kind(ENTRY_PASSAGES, exported=False),
    Kind(RELATIONS),
    Kind(NUMBERS, exported=False),
    Kind(SESSIONS, apart=CONVERSATION, heads=True),
    Kind(ARTIFACTS, apart=CONVERSATION),
    Kind(MANIFESTS, exported=False, apart=CONVERSATION),
    Kind(MESSAGES, apart=CONVERSATION),
    Kind(PASSAGES, exported=False, apart=CONVERSATION),
    Kind(TASKS, apart=CONVERSATION),
    Kind(RUNS, apart=CONVERSATION),
    Kind(SCRATCHPADS, exported=False, apart=SCRATCHPAD),
    Kind(DOCUMENTS, exported=False, parts=((DOCUMENT_CHUNKS, "document_id"),)),
    Kind(DOCUMENT_CHUNKS, exported=False),
    Kind(REQUESTS, exported=False, apart="requests"),
    Kind(COUNTERS, scoped=False, exported=False),
    Kind(CLAIMS, scoped=False, exported=False),
    Kind(RESERVATIONS, scoped=False, exported=False),
    Kind(OPERATIONS, scoped=False, exported=False),
    Kind(HOLDS, scoped=False, exported=False),
    Kind(LEASES, scoped=False, exported=False),
    Kind(SETTINGS, scoped=False, exported=False),
)
