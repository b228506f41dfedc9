"""After the last fault: nothing may be owed for ever, and the stores must hold exactly what the history says, and no text beside it."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memory.adapters.in_memory import InMemoryStore
from memory.orchestrator.retrieval import Asked
from memory.policies.routing import replicas_of
from memory.ports.collections import COLLECTIONS, ENTRIES, ENTRY_VERSIONS, OPERATIONS, RELATIONS
from memory.ports.record import Mark, Record, Role, Stored, Tombstone
from tests.simulation.workload import ALL_SCOPES, TENANTS

if TYPE_CHECKING:
    from tests.simulation.client import EngineClient

ROUNDS = 6
"""Sweeps after which nothing may be owed any more when nothing fails."""

_MARKER = re.compile(r"\bm(?:c?\d+(?:\.\d+)?|k\d?-[\w:-]*)")


async def settle(client: EngineClient) -> None:
    """Sweep until nothing is owed, read everything, let all lives end, sweep and read again, and look into the stores."""
    await _sweep_clean(client)
    client.history.settled()
    await _read_everything(client)
    settings = client.engine.settings
    for life in (settings.mark_life, settings.tombstone_life, settings.mark_life):  # the last for marks of moves that age brought about
        await asyncio.sleep(life.total_seconds() + 300)
        await _sweep_clean(client)
    await _read_everything(client)
    Inspection(client).run()


async def _sweep_clean(client: EngineClient) -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(client.engine.settings.lease.total_seconds() * 3)
        report = await client.engine.maintenance.sweep()
        if report.ran and not (report.finished or report.still_owed or report.moved or report.removed_copies or report.waiting):
            return
    client.history.broken("leftover", "-", f"after {ROUNDS} sweeps without a fault there is still work to do: {report}")


async def _read_everything(client: EngineClient) -> None:
    await asyncio.sleep(client.engine.settings.cache_max_age.total_seconds() + 1)
    for tenant in TENANTS:
        for scope in ALL_SCOPES:
            asked = Asked(tenant, (scope,), limit=200)
            await client.answered("final browse", asked, lambda a=asked: client.engine.retrieval.browse(a))  # type: ignore[misc]
            await client.found("final search", asked)
    for name, entry_id in list(client.world.ids.items()):
        tenant = client.history.registers[name].tenant
        done = await client.attempt("final get", lambda t=tenant, i=entry_id: client.engine.entries.get(t, i))  # type: ignore[misc]
        if done is not None:
            client.sight(name, done[0], tenant, done[1])


class Inspection:
    """Looks at everything that every store holds, below the port."""

    def __init__(self, client: EngineClient) -> None:
        self._history = client.history
        self._topology = client.engine.topology
        self._servers = {s.store.name: s.store for s in client.world.distinct}
        self._homes: dict[str, list[tuple[str, Record]]] = defaultdict(list)
        for name, collection, standing in self._everything():
            if collection == ENTRIES.name and isinstance(standing, Record) and standing.role is Role.HOME:
                self._homes[standing.key.id].append((name, standing))

    def run(self) -> None:
        for entry_id, homes in self._homes.items():
            if len(homes) > 1:
                self._broken("doubled", entry_id, f"has its home in {' and in '.join(name for name, _ in homes)}")
        for name, collection, standing in self._everything():
            if standing_owes(standing):
                self._broken("leftover", standing.key.id, f"owes in {name}: {standing}")
            if isinstance(standing, Mark | Tombstone):
                self._broken("leftover", standing.key.id, f"a {type(standing).__name__.lower()} of {collection} is still in {name} after its life")
            elif isinstance(standing, Record):
                self._inspect(name, collection, standing)
        self._inspect_replicas()

    def _inspect(self, name: str, collection: str, record: Record) -> None:
        about = str(record.fields.get("entry_id") or record.key.id)
        if record.role is Role.ARRIVING:
            self._broken("leftover", about, f"an arriving copy is still in {name}")
        if collection == OPERATIONS.name:
            self._broken("leftover", about, f"an operation is still in {name}: {record}")
        if collection == RELATIONS.name and not {record.fields["source_id"], record.fields["target_id"]} <= set(self._homes):
            self._broken("leftover", about, f"a relation outlived an end of it in {name}")
        if about not in self._homes and (text := _MARKER.findall(repr(record))):
            self._broken("leftover", about, f"text {text} of an erased entry is in {name} as a {record.role} of {collection}")
        if collection in (ENTRIES.name, ENTRY_VERSIONS.name):
            roots = {self._history.markers.get(marker, "?").partition(">")[0] for marker in _MARKER.findall(repr(record))}
            register = self._history.names.get(about)
            if register is not None and roots - {register.partition(">")[0]}:
                self._broken("foreign", register, f"text written for {sorted(roots)} is in {name}: {record}")

    def _inspect_replicas(self) -> None:
        """Every replica equals its home, and every home that wants one has it."""
        found: set[tuple[str, str]] = set()
        for name, collection, standing in self._everything():
            if collection == ENTRIES.name and isinstance(standing, Record) and standing.role is Role.REPLICA:
                homes = self._homes.get(standing.key.id, [])
                found.add((name, standing.key.id))
                if not any(home.same_content(standing) for _, home in homes):
                    self._broken("stale", standing.key.id, f"the replica in {name} is not what its home says: {standing} / {homes}")
        for entry_id, homes in self._homes.items():
            for name, home in homes:
                for tier in replicas_of(ENTRIES.name, home.tier):
                    target = self._topology.home(tier).name
                    if target != name and (target, entry_id) not in found:
                        self._broken("lost", entry_id, f"has no replica in {target}")

    def _everything(self) -> Iterator[tuple[str, str, Stored]]:
        for name, store in self._servers.items():
            assert isinstance(store, InMemoryStore)
            for collection in COLLECTIONS:
                for standing in list(store.state.everything(collection.name)):
                    yield name, collection.name, standing

    def _broken(self, kind: str, entry_id: str, detail: str) -> None:
        self._history.broken(kind, self._history.names.get(entry_id, entry_id), detail)


def standing_owes(standing: Stored) -> bool:
    return bool(getattr(standing, "owed", ()))
