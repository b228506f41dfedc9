"""Looks into the stores, below the port, whenever a worker begins or ends something:
what stands there, what has gone, what has moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from memory.adapters.in_memory import InMemoryStore
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, RELATIONS
from memory.orchestrator.storage.sources import CONFIRM_SOURCES
from memory.policies.routing import is_later_tier
from memory.ports.collections import Collection
from memory.ports.record import Key, Mark, Partition, Record, Role
from tests.simulation.rules.told import Moved, Seen, Told


class Watch:
    """Notes what is seen. `stores`: those that keep what they are given."""

    def __init__(self, told: Told, stores: Sequence[InMemoryStore]) -> None:
        self._told = told
        self._stores = stores

    def look(self) -> None:
        told, now = self._told, self._told.now()
        entries = self.entries()
        for key, record in entries.items():
            before = told.entries.get(key)
            if before is not None and before.gone > now and before.record.tier != record.tier:
                if not is_later_tier(before.record.tier, record.tier):
                    told.broken.append(
                        f"{key.id} has gone back from '{before.record.tier}' to '{record.tier}'"
                    )
                told.moved.append(Moved(before.record, record.tier, before.last, now))
        self._note(told.entries, entries, now, "entry")
        self._note(told.versions, {row.key: row for row in self.rows(ENTRY_VERSIONS)}, now, "version")
        self._note(told.relations, {row.key: row for row in self.rows(RELATIONS)}, now, "relation")
        counted = Counter(record.partition for record in entries.values())
        for partition in counted.keys() | told.counts.keys():
            told.counts[partition].append((now, counted[partition]))

    def entries(self) -> dict[Key, Record]:
        """The entries, each as it is at home. A copy that is on its way is one once its
        source has let go of it; what was derived is one once its sources were found
        unchanged.
        """
        marked = {
            (row.key, row.to)
            for store in self._stores
            for row in store.state.everything(ENTRIES.name)
            if isinstance(row, Mark)
        }
        found: dict[Key, Record] = {}
        for row in self.rows(ENTRIES, Role.HOME, Role.ARRIVING):
            if any(owed.step == CONFIRM_SOURCES for owed in row.owed):
                continue
            if row.role is Role.HOME or ((row.key, row.tier) in marked and row.key not in found):
                found[row.key] = row
        return found

    def rows(self, collection: Collection, *roles: Role) -> Iterator[Record]:
        """The records of these roles in all stores; of all roles where none is named."""
        for store in self._stores:
            for row in store.state.everything(collection.name):
                if isinstance(row, Record) and (not roles or row.role in roles):
                    yield row

    def in_scope(self, tenant: str, scope: str) -> list[Record]:
        return [record for record in self.entries().values() if record.partition == Partition(tenant, scope)]

    def _note(self, seen: dict[Key, Seen], standing: dict[Key, Record], now: float, what: str) -> None:
        for key, record in standing.items():
            before = seen.get(key)
            if before is None:
                seen[key] = Seen(record, now, now)
            elif before.gone <= now:
                self._told.broken.append(
                    f"{what} {key.id} was gone at {before.gone:.3f}, and stands again at {now:.3f}: {record}"
                )
                before.gone, before.last, before.record = float("inf"), now, record
            else:
                before.record, before.last = record, now
        for key, one in seen.items():
            if key not in standing and one.gone > now:
                one.gone = now
