"""A durable store is taken back to an earlier moment, as from a backup, or replaced by an empty one; and what is still promised then.

What was acknowledged since that moment may be gone, and what was erased since may be back. But sweeps come to an end, everything can be written,
changed, linked, moved and read as if nothing had been, and an erasure erases: nothing of the scope is left in any store.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from memory.adapters.in_memory import InMemoryStore
from memory.domain.entry import EntryDraft
from memory.domain.scope import Scope
from memory.orchestrator.asked import Asked
from memory.orchestrator.tiering import MoveResult
from memory.ports.collections import ENTRIES, ENTRY_VERSIONS, RELATIONS
from memory.ports.record import Key, Record
from tests.simulation.loop import seeded
from tests.simulation.workload import ALL_SCOPES, TENANTS

if TYPE_CHECKING:
    from tests.simulation.client import EngineClient
    from tests.simulation.world import World


def set_back(world: World) -> None:
    """One durable store, drawn from the seed, loses what it acknowledged since a moment of the run, or everything."""
    random = seeded(world.scenario.seed, 6)
    durable = [s.store for s in world.distinct if s.restart is None and isinstance(s.store, InMemoryStore)]
    store = durable[int(random.random() * len(durable))]
    earlier = world.remembered.get(store.name, [])
    if earlier and random.random() < 0.6:
        store.state.restore(random.choice(earlier))
        world.say("operator", f"--- {store.name} is restored from a backup ---")
    else:
        store.state.wipe()
        world.say("operator", f"--- {store.name} is replaced by an empty one ---")


async def aftermath(client: EngineClient) -> None:
    """Work goes on in every scope, and then every scope is erased."""
    from tests.simulation.audit import Inspection, sweep_clean

    await sweep_clean(client)
    new = [entry_id for tenant in TENANTS for scope in ALL_SCOPES for entry_id in await _goes_on(client, tenant, scope)]
    await sweep_clean(client)
    Inspection(client).of_these(new)
    for tenant in TENANTS:
        for scope in ALL_SCOPES:
            await client.engine.erasure.erase_scope(tenant, scope)
    await sweep_clean(client)
    for tenant in TENANTS:
        left = await client.engine.browsing.browse(Asked(tenant, ALL_SCOPES, limit=200))
        if left:
            _broken(client, "resurrected", f"after the erasure of every scope there is {[e.content for e in left]}")
    for server in client.world.distinct:
        assert isinstance(server.store, InMemoryStore)
        for collection in (ENTRIES, ENTRY_VERSIONS, RELATIONS):
            for standing in server.store.state.everything(collection.name):
                if isinstance(standing, Record) and not (server.restart is not None and standing.cached_at is not None):
                    _broken(client, "leftover", f"after the erasure of every scope {server.store.name} holds {standing}")


async def _goes_on(client: EngineClient, tenant: str, scope: Scope) -> list[str]:
    engine, entries = client.engine, client.engine.entries
    first = await entries.write(tenant, EntryDraft(scope=scope, content="after one"))
    other = await entries.write(tenant, EntryDraft(scope=scope, content="after other"))
    await entries.update(tenant, first.id, {"content": "after two"})
    link = await engine.relations.relate(tenant, first.id, "supports", other.id)
    for again in range(2):
        told = [e.content for e in await entries.history(tenant, first.id)]
        if told != ["after one", "after two"]:
            _broken(client, "wrong past", f"of a new entry of {scope.text} is told {told}")
        if link.id not in {r.id for r in await engine.relations.related(tenant, source_id=first.id)}:
            _broken(client, "lost", f"a new relation in {scope.text} is not listed")
        seen = {e.id for e in await engine.browsing.browse(Asked(tenant, (scope,), limit=200))}
        if not {first.id, other.id} <= seen:
            _broken(client, "lost", f"new entries of {scope.text} are not browsed")
        if not again:
            await asyncio.sleep(1)
            result = await engine.tiering.move(ENTRIES, Key(tenant, first.id), "long")
            if result not in (MoveResult.MOVED, MoveResult.ALREADY):
                _broken(client, "order", f"a new entry of {scope.text} does not move on: {result}")
    return [first.id, other.id]


def _broken(client: EngineClient, kind: str, why: str) -> None:
    client.history.broken(kind, "after a setback", why)
