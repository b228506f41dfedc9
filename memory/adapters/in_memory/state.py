"""The data of an in-memory store, kept apart from the store object.

Two stores may share a state. A simulation may roll it back, and a restart may wipe it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory.ports.query import Partitions, Where, covers
from memory.ports.record import Corrupt, Key, Mark, Partition, Record, Role, Standing, Stored


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Copy of all data of a state at one moment."""

    slots: dict[str, dict[Key, Standing]]
    generations: dict[Partition, int]
    damaged: dict[tuple[str, Key], str]


class State:
    """Slots by collection and key, live records by partition, and generations."""

    def __init__(self) -> None:
        self.runs = 1
        """Number of runs so far; see `restart`."""
        self.slots: dict[str, dict[Key, Standing]] = {}
        self.by_partition: dict[str, dict[Partition, dict[Key, Record]]] = {}
        self.generations: dict[Partition, int] = {}
        self.damaged: dict[tuple[str, Key], str] = {}
        self._undo: list[tuple[dict[Any, Any], Any, Any]] | None = None
        self._leaving: list[tuple[datetime, int, str, Key]] | None = None
        """Heap of the slots that `forget` may drop, earliest first; None until its
        first call.

        An item may refer to a version that was replaced since.
        """
        self._sequence = 0
        """Tie-breaker for heap items with the same time."""

    # -- reading -----------------------------------------------------------------------

    def fetch_stored(self, collection: str, key: Key) -> Standing | None:
        slots = self.slots.get(collection)
        return slots.get(key) if slots else None

    def fetch_visible(self, collection: str, key: Key) -> Stored | None:
        """Return the slot as a reader sees it: a damaged record becomes `Corrupt`."""
        if self.damaged and (problem := self.damaged.get((collection, key))) is not None:
            return Corrupt(key, problem)
        return self.fetch_stored(collection, key)

    def is_damaged(self, collection: str, key: Key) -> bool:
        return bool(self.damaged) and (collection, key) in self.damaged

    @property
    def damages(self) -> int:
        """Number of damaged records."""
        return len(self.damaged)

    def live(self, collection: str, where: Where) -> Iterator[Record]:
        """Yield the live records of these partitions, in no particular order."""
        partitions = self.by_partition.get(collection, {})
        if isinstance(where, Partitions):
            for partition in dict.fromkeys(where.partitions):
                yield from partitions.get(partition, {}).values()
        else:
            for partition, records in partitions.items():
                if covers(where, partition):
                    yield from records.values()

    def everything(self, collection: str) -> Iterator[Standing]:
        yield from self.slots.get(collection, {}).values()

    def generation(self, partition: Partition) -> int:
        return self.generations.get(partition, 0)

    def partitions(self) -> Iterator[tuple[Partition, int]]:
        """Yield partitions with live records or a generation; 0 stands for none."""
        held = {
            partition for live in self.by_partition.values() for partition, records in live.items() if records
        }
        yield from ((partition, self.generation(partition)) for partition in held | self.generations.keys())

    def idle(self) -> Iterator[tuple[Partition, int]]:
        """Yield partitions without records and marks about which the state keeps data.

        Each comes with its generation.
        """
        kept = dict.fromkeys(
            [*self.generations, *(partition for live in self.by_partition.values() for partition in live)]
        )
        busy = {
            partition for live in self.by_partition.values() for partition, records in live.items() if records
        }
        busy |= {
            Partition(s.key.tenant, s.scope)
            for slots in self.slots.values()
            for s in slots.values()
            if isinstance(s, Mark)
        }
        yield from ((partition, self.generation(partition)) for partition in kept if partition not in busy)

    # -- changing ----------------------------------------------------------------------

    def place(self, collection: str, key: Key, new: Standing | None) -> None:
        """Store `new` under the key; None removes the slot."""
        slots = self.slots.setdefault(collection, {})
        live = self.by_partition.setdefault(collection, {})
        old = slots.get(key)
        if isinstance(old, Record):
            self._assign(live[old.partition], key, None)
        if isinstance(new, Record):
            self._assign(live.setdefault(new.partition, {}), key, new)
        self._assign(slots, key, new)
        if new is not None and self._leaving is not None:
            self._note_leaving(collection, new)
        if self.damaged:
            self._assign(self.damaged, (collection, key), None)

    def raise_generation(self, partition: Partition, to: int | None) -> int:
        current = self.generation(partition)
        raised = current + 1 if to is None else max(current, to)
        if raised != current:
            self._assign(self.generations, partition, raised)
        return raised

    def forget_partition(self, partition: Partition) -> None:
        """Forget all data about an empty partition."""
        self.generations.pop(partition, None)
        for live in self.by_partition.values():
            live.pop(partition, None)

    def _assign(self, mapping: dict[Any, Any], key: Any, value: Any) -> None:
        if self._undo is not None:
            self._undo.append((mapping, key, mapping.get(key)))
        if value is None:
            mapping.pop(key, None)
        else:
            mapping[key] = value

    # -- all or nothing ----------------------------------------------------------------

    def begin(self) -> None:
        """Record every change from now on until `commit` or `roll_back`."""
        self._undo = []

    def commit(self) -> None:
        self._undo = None

    def roll_back(self) -> None:
        undo, self._undo = self._undo or [], None
        for mapping, key, value in reversed(undo):
            self._assign(mapping, key, value)

    # -- what tests do to a server -----------------------------------------------------

    def snapshot(self) -> Snapshot:
        return Snapshot(
            {name: dict(slots) for name, slots in self.slots.items()},
            dict(self.generations),
            dict(self.damaged),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Replace all data with the snapshot's. The snapshot can be used again."""
        self.wipe()
        for collection, slots in snapshot.slots.items():
            for key, standing in slots.items():
                self.place(collection, key, standing)
        self.generations.update(snapshot.generations)
        self.damaged.update(snapshot.damaged)

    def wipe(self) -> None:
        for held in (self.slots, self.by_partition, self.generations, self.damaged):
            held.clear()
        self._leaving = None

    def restart(self, keep: bool) -> None:
        """Simulate a restart, with or without the stored data. The epoch changes."""
        self.runs += 1
        if not keep:
            self.wipe()

    def damage(self, collection: str, key: Key, problem: str = "checksum mismatch") -> None:
        """Make the live record under the key unreadable."""
        if not isinstance(self.fetch_stored(collection, key), Record):
            raise LookupError(f"no live record {key} in '{collection}' to damage")
        self.damaged[(collection, key)] = problem

    def forget(self, now: datetime) -> None:
        """Drop expired cached copies, marks and tombstones, as a store with `ttl` does.

        A slot with pending steps stays.
        """
        if self._leaving is None:
            self._leaving = []
            for collection, slots in self.slots.items():
                for standing in slots.values():
                    self._note_leaving(collection, standing)
        while self._leaving and self._leaving[0][0] < now:
            until, _, collection, key = heapq.heappop(self._leaving)
            there = self.fetch_stored(collection, key)
            if there is not None and _forgotten_after(there) == until and not there.owed:
                self.place(collection, key, None)

    def _note_leaving(self, collection: str, standing: Standing) -> None:
        until = _forgotten_after(standing)
        if until is not None and not standing.owed and self._leaving is not None:
            self._sequence += 1
            heapq.heappush(self._leaving, (until, self._sequence, collection, standing.key))


def _forgotten_after(standing: Standing) -> datetime | None:
    """Return when a store with the capability `ttl` may drop this; None for never.

    Only cached copies among the records may be dropped: other data depends on the rest.
    """
    if isinstance(standing, Record):
        return standing.expires_at if standing.role is Role.CACHED else None
    return standing.discard_at
