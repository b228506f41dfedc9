"""What a plan foresees: records as they will be when what it has named so far is done. Who walks over a store then meets them so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from memory.orchestrator.topology import Topology
from memory.ports.collections import Collection
from memory.ports.query import Everywhere, Head, Partitions, Tenant, Where
from memory.ports.record import Key, Partition, Record
from memory.ports.store import Store


class Foreseen:
    """The records that will be gone, in another tier, or new."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._rows: dict[tuple[str, Key], Head | Record | None] = {}
        self._touched = set[tuple[str, Partition]]()

    def goes(self, collection: Collection, row: Head | Record) -> None:
        """It will have been deleted."""
        self._know(collection, row, None)

    def moves(self, collection: Collection, row: Head | Record, tier: str) -> None:
        self._know(collection, row, replace(row, tier=tier))

    def comes(self, collection: Collection, record: Record) -> None:
        """It will have been made."""
        self._know(collection, record, record)

    def _know(self, collection: Collection, row: Head | Record, will_be: Head | Record | None) -> None:
        self._rows[collection.name, row.key] = will_be
        self._touched.add((collection.name, row.partition))

    def knows(self, collection: Collection, key: Key) -> bool:
        """Whether it will be otherwise than it stands."""
        return (collection.name, key) in self._rows

    def touches(self, collection: Collection, partition: Partition) -> bool:
        """Whether it knows of a record of this scope."""
        return (collection.name, partition) in self._touched

    def there(self, collection: Collection, where: Where, store: Store, tier: str) -> list[Head | Record]:
        """What it knows that a store will hold, of a tier where one is named, oldest first."""
        known = [row for (name, _), row in self._rows.items() if name == collection.name and row is not None]
        return sorted(
            (row for row in known if tier in ("", row.tier) and self._topology.home(row.tier) is store and _is_in(row.partition, where)),
            key=_position,
        )


class Walk:
    """Pages of a walk over what a store holds, oldest first, as they will be."""

    def __init__(self, ahead: Foreseen, collection: Collection, where: Where, store: Store, tier: str) -> None:
        self._ahead = ahead
        self._about = (collection, where, store, tier)
        self._behind: tuple[Any, ...] | None = None

    def page(self, rows: Sequence[Head | Record], *, is_last: bool) -> list[Head | Record]:
        """The rows of a page, without those that will not be there, with those that will. What comes to stand behind where the walk is is not met."""
        if not rows and not is_last:
            return []
        collection, begin, end = self._about[0], self._behind, None if is_last else _position(rows[-1])
        self._behind = _position(rows[-1]) if rows else begin
        stay = [row for row in rows if not self._ahead.knows(collection, row.key)]
        there = [(row, _position(row)) for row in self._ahead.there(*self._about)]
        come = [row for row, at in there if (begin is None or at > begin) and (end is None or at <= end)]
        return sorted([*stay, *come], key=_position) if come else stay


def _is_in(partition: Partition, where: Where) -> bool:
    match where:
        case Everywhere():
            return True
        case Tenant(tenant):
            return partition.tenant == tenant
        case Partitions(partitions):
            return partition in partitions


def _position(row: Head | Record) -> tuple[Any, ...]:
    """As stores order them: the id last."""
    created_at: Any = row.created_at if isinstance(row, Record) else row.fields["created_at"]
    return created_at, row.key.id
