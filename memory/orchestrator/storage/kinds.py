"""The kinds of record there are, and what becomes of each: erasure, the outbox, sweeps,
moves and transfer go over this table.

A kind more is one line here. What has rules of its own keeps a module (entries,
relations, erasures, leases, settings), never a flag.
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
    """A collection, and what the engine does with its records."""

    collection: Collection
    scoped: bool = True
    """Whether its records belong to callers' scopes and are erased with them; others
    are the engine's own and hold no caller's text.
    """
    home: str | None = "mid"
    """The tier where its records are born; None: that their scope decides."""
    versions: Collection | None = None
    """Where versions that were replaced go. They are deleted with the record."""
    passages: Collection | None = None
    """Where the parts of long texts go that are found by meaning (see `long_texts`).
    They end with the record; its collection declares `said`.
    """
    children: tuple[tuple[Collection, str], ...] = ()
    """Records in the archive, and the field by which each names a record of this kind:
    they are deleted with it.
    """
    replicated: bool = False
    """Whether a later tier gets whole copies for searching."""
    movable: bool = False
    """Whether promotion rules and sweeps move its records to later tiers."""
    exported: bool = True
    apart: str | None = None
    """What the scopes begin with in which its records lie, and nothing but such: of
    conversations, of scratchpads. None: callers' own scopes.
    """

    def scope_of(self, scope: Scope) -> str | None:
        """Where the records of this kind lie that belong to a caller's scope; None
        where there are none.
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
        """Where a new record is born, and why."""
        return route(self.collection.name, self.home, scope_kind, replicated=self.replicated)

    def replicas(self, tier: str) -> tuple[str, ...]:
        """The tiers that hold replicas of a record while `tier` is its home."""
        return replicas_of(tier) if self.replicated else ()

    @property
    def named_by(self) -> dict[Collection, tuple[str, ...]]:
        """The children, each with all its fields that name a record of this kind."""
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
        """The collection of this name. Raises where there is none here: another version
        of the library has it.
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
        """Those of which records can lie in one of these partitions."""
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
        """The fields by which records of this collection name others, and of which
        collection those are.
        """
        return {field: kind.collection for kind in self for of, field in kind.children if of is child}

    @property
    def expiring_kinds(self) -> tuple[Kind, ...]:
        """Those that end by themselves: all of callers' but replaced versions, which go
        with their record.
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
    Kind(SESSIONS, apart=CONVERSATION),
    Kind(ARTIFACTS, apart=CONVERSATION),
    Kind(MANIFESTS, exported=False, apart=CONVERSATION),
    Kind(MESSAGES, apart=CONVERSATION),
    Kind(PASSAGES, exported=False, apart=CONVERSATION),
    Kind(TASKS, exported=False, apart=CONVERSATION),
    Kind(RUNS, exported=False, apart=CONVERSATION),
    Kind(SCRATCHPADS, exported=False, apart=SCRATCHPAD),
    Kind(COUNTERS, scoped=False, exported=False),
    Kind(CLAIMS, scoped=False, exported=False),
    Kind(RESERVATIONS, scoped=False, exported=False),
    Kind(OPERATIONS, scoped=False, exported=False),
    Kind(HOLDS, scoped=False, exported=False),
    Kind(LEASES, scoped=False, exported=False),
    Kind(SETTINGS, scoped=False, exported=False),
)
