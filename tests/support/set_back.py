"""A drawn history on a whole memory, and what must hold of its stores after one of them
was set back alone and healed.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from memory import Memory
from memory.domain.errors import Conflict
from memory.domain.scope import Scope
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, RELATIONS
from memory.policies.routing import TIERS, is_later_tier
from memory.ports.query import Everywhere, Query, RowType
from memory.ports.record import Key, Mark, Record, Role, Tombstone
from memory.ports.store import Store
from tests.acceptance.support import Clock

SCOPES = (Scope.session("s1"), Scope.session("s2"), Scope.user("ada"), Scope.user("ben"), Scope.org("o1"))


@dataclass
class Told:
    """What was acknowledged of one entry last: its text, or that it is gone; where its
    home was, and when that came about.
    """

    text: str | None
    tier: str
    since: datetime
    edits: int = 0


@dataclass
class History:
    """Work on a memory, and what it was told."""

    memory: Memory
    clock: Clock
    random: random.Random
    entries: dict[str, Told] = field(default_factory=dict)
    step: int = 0

    @property
    def living(self) -> list[str]:
        return [entry_id for entry_id, told in self.entries.items() if told.text is not None]

    async def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.step += 1
            self.clock.moment += timedelta(seconds=self.random.randrange(1, 40))
            await self._act(self.random.choice("wwwwwuuuumdmdlr"))
            if self.step % 25 == 0:
                await self.settle()
        await self.settle()

    async def settle(self) -> None:
        """Sweeps, some time later, until nothing is owed: the notes are written too."""
        for _ in range(2):
            self.clock.moment += timedelta(minutes=6)
            await self.memory.admin.sweep()

    async def erase(self, scope: Scope) -> None:
        here = [entry.id async for entry in self.memory.entries.iterate(scope)]
        await self.memory.admin.erase(scope)
        for entry_id in here:
            self._tell(entry_id, None, self.entries[entry_id].tier)

    def _tell(self, entry_id: str, text: str | None, tier: str) -> None:
        edits = self.entries[entry_id].edits + 1 if entry_id in self.entries else 0
        self.entries[entry_id] = Told(text, tier, self.clock.moment, edits)

    async def _act(self, what: str) -> None:
        living = self.living
        if what == "w" or not living:
            text = f"text {self.step}"
            entry = await self.memory.write(
                text, scope=self.random.choice(SCOPES), key=f"k{self.step}" if self.step % 5 == 0 else None
            )
            self._tell(entry.id, text, entry.tier)
            return
        entry_id = self.random.choice(living)
        match what:
            case "u":
                updated = await self.memory.update(entry_id, content=f"text {self.step}, edited")
                self._tell(entry_id, updated.content, updated.tier)
            case "d":
                tier = self.entries[entry_id].tier
                await self.memory.delete(entry_id)
                self._tell(entry_id, None, tier)
            case "m":
                to = self.random.choice(TIERS[1:])
                if is_later_tier(self.entries[entry_id].tier, to):
                    await self.memory.admin.move([entry_id], to)
                    said = self.entries[entry_id].text
                    self._tell(entry_id, said, to)
            case "l":
                other = self.random.choice(living)
                if other != entry_id:
                    with contextlib.suppress(Conflict):
                        await self.memory.relations.relate(entry_id, "supports", other)
            case "r":
                await self.memory.get(entry_id)


async def wrong(engine: Engine) -> list[str]:
    """What does not hold over all stores: every entry has one home, replicas equal it,
    nothing stands of what was deleted, and nothing is owed.
    """
    found: list[str] = []
    rows: dict[Key, dict[Store, Record | Mark | Tombstone]] = {}
    for store in engine.topology.homes:
        async for row in _standing(store):
            rows.setdefault(row.key, {})[store] = row
    homes: dict[Key, tuple[Store, Record]] = {}
    for key, there in rows.items():
        records = {store: row for store, row in there.items() if isinstance(row, Record)}
        at_home = [(store, row) for store, row in records.items() if row.role is Role.HOME]
        if records and len(at_home) != 1:
            found.append(
                f"{key.id} has {len(at_home)} homes: { {store.name: row for store, row in there.items()} }"
            )
            continue
        deleted = max((row.version for row in there.values() if isinstance(row, Tombstone)), default=0)
        found += [
            f"{key.id} was deleted, and stands in {store.name}"
            for store, row in records.items()
            if row.version < deleted
        ]
        found += [f"{key.id} owes in {store.name}: {row.owed}" for store, row in there.items() if row.owed]
        if at_home:
            homes[key] = at_home[0]
            found += _replicas(engine, homes[key], records)
    async for version in _records(engine.topology.archive, ENTRY_VERSIONS):
        home = homes.get(Key(version.key.tenant, str(version.fields["entry_id"])))
        if home is None or home[1].version <= version.version:
            found.append(
                f"version {version.version} of {version.fields['entry_id']!s} is kept, which is no past of an"
                f" entry: {home}"
            )
    async for link in _records(engine.topology.archive, RELATIONS):
        ends = {Key(link.key.tenant, str(link.fields[end])) for end in ("source_id", "target_id")}
        found += [f"a relation names {end.id}, which is nowhere" for end in ends - homes.keys()]
    return found


def _replicas(engine: Engine, at_home: tuple[Store, Record], records: dict[Store, Record]) -> list[str]:
    home, record = at_home
    wanted = {
        engine.topology.home(tier) for tier in engine.placement.kinds.of(ENTRIES).replicas(record.tier)
    } - {home}
    there = {store for store, row in records.items() if row.role is Role.REPLICA}
    found = (
        [f"{record.key.id} has replicas in {[s.name for s in there]}, not in {[s.name for s in wanted]}"]
        if there != wanted
        else []
    )
    return found + [
        f"the replica of {record.key.id} in {s.name} is another"
        for s in there & wanted
        if not records[s].same_content(record)
    ]


async def _standing(store: Store) -> AsyncIterator[Record | Mark | Tombstone]:
    for types in ({RowType.RECORD}, {RowType.MARK, RowType.TOMBSTONE}):
        query = Query(ENTRIES, Everywhere(), roles=frozenset(Role), types=frozenset(types), limit=10_000)
        for row in (await store.query(query)).records:
            if isinstance(row, Record | Mark | Tombstone):
                yield row


async def _records(store: Store, collection: object) -> AsyncIterator[Record]:
    for row in (await store.query(Query(collection, Everywhere(), limit=10_000))).records:  # type: ignore[arg-type]
        if isinstance(row, Record):
            yield row


async def missing(history: History, restored: str, since: datetime, lost: set[str]) -> list[str]:
    """What is not as it was acknowledged and is not said to be lost, though more than
    the store that was set back had known of it.
    """
    found: list[str] = []
    for entry_id, told in history.entries.items():
        entry = await history.memory.get(entry_id)
        says = None if entry is None else entry.content
        if says == told.text or entry_id in lost:
            continue
        alone = told.tier == restored and told.tier != "mid" and told.since >= since
        if not alone or (
            told.text is not None and told.edits and entry is None and restored == "long" and _had_past(told)
        ):
            found.append(f"{entry_id}, in '{told.tier}' since {told.since}: says {says}, not {told.text}")
    return found


def _had_past(told: Told) -> bool:
    return told.text is not None and "edited" in told.text
