"""The state that a plan works on: records as its earlier steps will leave them.

A walk over a store then yields the records in that state. A plan may name as many
records as a store holds, so the state keeps their keys. It keeps more only for records
that later steps meet or count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from memory.domain.scope import ScopeKind
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.topology import Topology
from memory.ports.collections import Collection
from memory.ports.heads import head_of
from memory.ports.query import Everywhere, Head, Partitions, Tenant, Under, Where, covers
from memory.ports.record import Key, Partition, Record, Role
from memory.ports.store import Store

Row: TypeAlias = Head | Record


@dataclass(slots=True)
class CountedEntry:
    """The values of a record in one tier that quotas count.

    `size` is in bytes, and None until it is needed.
    """

    key: Key
    scope: str
    role: Role
    tier: str
    size: int | None


@dataclass(frozen=True, slots=True)
class PlanRequirements:
    """The data that later steps of a plan need.

    `texts` says whether rules measure texts. `fields` are the fields that rules use.
    `size` returns the bytes that quotas count of a loaded record; None without quotas.
    """

    texts: bool
    fields: Set[str]
    size: Callable[[Record], int | None] | None


class DryRunState:
    """The records that will be deleted, moved, or created."""

    def __init__(self, topology: Topology, keeps: PlanRequirements) -> None:
        self._topology = topology
        self.keeps = keeps
        self._known = dict[tuple[str, Key], Row | None]()
        self._new = set[tuple[str, Key]]()
        self._passed = set[tuple[str, Key]]()
        self._touched = set[tuple[str, Partition]]()
        self._there = dict[tuple[str, str], dict[Partition, dict[Key, Row]]]()
        """The records that will exist, by tenant and scope."""
        self.revision = 0
        """Changes whenever the set of known records changes."""
        self._counted = dict[Key, CountedEntry | None]()
        self._changes = dict[tuple[str, str], list[tuple[CountedEntry | None, CountedEntry | None]]]()
        self.settled = set[tuple[Key, str]]()
        """Steps of session events that will be complete."""

    def goes(self, collection: Collection, row: Row) -> None:
        """Note that a record will be deleted."""
        self._know(collection, row, None)

    def moves(self, collection: Collection, row: Row, tier: str) -> None:
        self._know(collection, row, replace(row, tier=tier))

    def comes(self, collection: Collection, record: Record) -> None:
        """Note that a record will be created."""
        self._new.add((collection.name, record.key))
        self._know(collection, record, record)

    def passes(self, collection: Collection, key: Key) -> None:
        """Note that a record will move to a place where no later step looks."""
        self._passed.add((collection.name, key))

    def _know(self, collection: Collection, row: Row, will_be: Row | None) -> None:
        at = collection.name, row.key
        self._count(collection, row, will_be)
        kept = None if will_be is None else self._without_texts(collection, will_be)
        of_tenant = self._there.setdefault((collection.name, row.key.tenant), {})
        if kept is not None:
            of_tenant.setdefault(row.partition, {})[row.key] = kept
        elif self._known.get(at) is not None:
            del of_tenant[row.partition][row.key]
        self.revision += kept is not None or self._known.get(at) is not None
        self._known[at] = kept
        self._touched.add((collection.name, row.partition))

    def _without_texts(self, collection: Collection, row: Row) -> Row:
        """Return the row without its texts, if no later step needs them.

        Texts of new records in a session stay, because copies may have to be made.
        """
        if not isinstance(row, Record) or self.keeps.texts:
            return row
        copied = (collection.name, row.key) in self._new and row.scope.startswith(f"{ScopeKind.SESSION}:")
        return row if copied else head_of(collection, row, self.keeps.fields)

    def knows(self, collection: Collection, key: Key) -> bool:
        """Return whether the plan changes the record."""
        return (collection.name, key) in self._known

    def is_met(self, collection: Collection, key: Key) -> bool:
        """Return whether a walk over a store meets the record unchanged."""
        return (collection.name, key) not in self._known and (collection.name, key) not in self._passed

    def will_be(self, collection: Collection, key: Key) -> Row | None:
        """Return the planned state of a record; None if deleted or unknown."""
        return self._known.get((collection.name, key))

    def comes_to_be(self, collection: Collection, key: Key) -> bool:
        """Return whether the record is new, so that no store has it yet."""
        return (collection.name, key) in self._new

    def is_gone(self, collection: Collection, key: Key) -> bool:
        return self.knows(collection, key) and self.will_be(collection, key) is None

    def touches(self, collection: Collection, partition: Partition) -> bool:
        """Return whether the plan changes a record of this scope."""
        return (collection.name, partition) in self._touched

    def there(self, collection: Collection, where: Where, store: Store, tier: str) -> list[Row]:
        """Return the known records that a store will hold, oldest first.

        `tier` limits them to one tier, unless it is empty.
        """
        known = [row for rows in self._in(collection, where) for row in rows.values()]
        return sorted(
            (row for row in known if tier in ("", row.tier) and self._topology.home(row.tier) is store),
            key=_position,
        )

    def _in(self, collection: Collection, where: Where) -> Iterable[dict[Key, Row]]:
        match where:
            case Everywhere():
                return [
                    rows
                    for (name, _), scopes in self._there.items()
                    if name == collection.name
                    for rows in scopes.values()
                ]
            case Tenant(tenant):
                return self._there.get((collection.name, tenant), {}).values()
            case Under(tenant):
                scopes = self._there.get((collection.name, tenant), {})
                return [rows for partition, rows in scopes.items() if covers(where, partition)]
            case Partitions(partitions):
                scopes = self._there.get((collection.name, where.tenant), {})
                return [scopes[partition] for partition in dict.fromkeys(partitions) if partition in scopes]

    # -- what quotas count -------------------------------------------------------------

    def _count(self, collection: Collection, row: Row, will_be: Row | None) -> None:
        if self.keeps.size is None or collection is not ENTRIES:
            return
        if row.key not in self._counted:
            self._counted[row.key] = None if (collection.name, row.key) in self._new else self._counts(row)
        before, after = self._counted[row.key], None if will_be is None else self._counts(will_be)
        self._counted[row.key] = after
        for scope in (row.scope, ""):
            self._changes.setdefault((row.key.tenant, scope), []).append((before, after))

    def _counts(self, row: Row) -> CountedEntry:
        size = self.keeps.size(row) if isinstance(row, Record) and self.keeps.size is not None else None
        return CountedEntry(row.key, row.scope, row.role, row.tier, size)

    def changes(self, tenant: str, scope: str) -> Sequence[tuple[CountedEntry | None, CountedEntry | None]]:
        """Return the changes of a scope's entries in order.

        Each has the entry as counted before and after. An empty scope stands for the
        whole tenant.
        """
        return self._changes.get((tenant, scope), ())

    def counted_entry(self, key: Key) -> CountedEntry | None:
        """Return an entry as it will be counted; None if deleted or unknown."""
        return self._counted.get(key)


class Walk:
    """Pages of a walk over a store's planned records, oldest first."""

    def __init__(
        self, ahead: DryRunState, collection: Collection, where: Where, store: Store, tier: str
    ) -> None:
        self._ahead = ahead
        self._about = (collection, where, store, tier)
        self._behind: tuple[Any, ...] | None = None
        self._revision = -1
        self._there: list[Row] = []
        self._at: list[tuple[Any, ...]] = []

    def page(self, rows: Sequence[Row], *, is_last: bool) -> list[Row]:
        """Return a page without records that will be gone, and with new ones.

        A new record that sorts before the walk's position is not met.
        """
        if not rows and not is_last:
            return []
        collection, begin, end = self._about[0], self._behind, None if is_last else _position(rows[-1])
        self._behind = _position(rows[-1]) if rows else begin
        stay = [row for row in rows if self._ahead.is_met(collection, row.key)]
        come = self._rows_between(begin, end)
        return sorted([*stay, *come], key=_position) if come else stay

    def _rows_between(self, begin: tuple[Any, ...] | None, end: tuple[Any, ...] | None) -> list[Row]:
        if self._revision != self._ahead.revision:
            self._revision, self._there = self._ahead.revision, self._ahead.there(*self._about)
            self._at = [_position(row) for row in self._there]
        first = 0 if begin is None else bisect_right(self._at, begin)
        return self._there[first : len(self._at) if end is None else bisect_right(self._at, end)]


def _position(row: Row) -> tuple[Any, ...]:
    """Return the order of stores: by creation, then by id."""
    created_at: Any = row.created_at if isinstance(row, Record) else row.fields["created_at"]
    return created_at, row.key.id
