"""The promise of deliveries: once flushed, and unless a store was away, every replica
stands at its home's version and nothing is owed.
"""

from __future__ import annotations

from memory.orchestrator.engine import Engine
from memory.ports.query import Everywhere, Query
from memory.ports.record import Key, Record, Role
from memory.ports.store import Store


async def undelivered(engine: Engine) -> list[str]:
    """What is not as it is to be, a sentence each."""
    kinds, topology, wrong = engine.placement.kinds, engine.topology, list[str]()
    for kind in [kind for kind in kinds if kind.replicated]:
        homes = {
            home.key: home
            for store in topology.homes
            for home in await _all(engine, store, kind.collection.name, Role.HOME)
        }
        copies = {
            store: await _all(engine, store, kind.collection.name, Role.REPLICA) for store in topology.homes
        }
        versions = {(store, copy.key): copy.version for store, found in copies.items() for copy in found}
        wrong += [
            f"{home.key.id} owes {[owed.id for owed in home.owed]}" for home in homes.values() if home.owed
        ]
        wrong += [
            f"{key.id} is gone, and has a replica in {store.name}"
            for store, key in versions
            if key not in homes
        ]
        for home in homes.values():
            for store in {topology.home(tier) for tier in kind.replicas(home.tier)} - {
                topology.home(home.tier)
            }:
                if versions.get((store, home.key)) != home.version:
                    wrong.append(
                        f"{home.key.id} is of version {home.version}, its replica in {store.name} of"
                        f" {versions.get((store, home.key))}"
                    )
    wrong += [f"{key} waits" for key in _waiting(engine)]
    if engine.deliveries._size:
        wrong.append(f"{engine.deliveries._size} bytes are counted of what waits no more")
    return wrong


async def _all(engine: Engine, store: Store, collection: str, role: Role) -> list[Record]:
    query = Query(
        engine.placement.kinds.by_name(collection), Everywhere(), limit=500, roles=frozenset({role})
    )
    return [
        row
        async for page in engine.placement.pages("look", store, query)
        for row in page.records
        if isinstance(row, Record)
    ]


def _waiting(engine: Engine) -> list[Key]:
    return [waits.pending.owner.key for waits in engine.deliveries._all()]
