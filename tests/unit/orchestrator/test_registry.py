"""No collection is forgotten: what is added to the registry is erased with its scope, or is known to belong to none."""

from __future__ import annotations

import pytest

from memory.orchestrator.collections import COLLECTIONS, LEASES, OPERATIONS, SETTINGS
from memory.ports.collections import Collection
from memory.ports.query import Query, within
from memory.ports.record import Key, Partition, Record, Role
from memory.ports.writes import Always, Put
from tests.unit.orchestrator.world import TENANT, USER, World

OF_NO_SCOPE = (OPERATIONS, LEASES, SETTINGS)
"""What the engine keeps for itself, under a tenant that no caller can name."""


@pytest.mark.parametrize("collection", [c for c in COLLECTIONS if c not in OF_NO_SCOPE], ids=lambda c: c.name)
@pytest.mark.parametrize("role", list(Role))
async def test_erasing_a_scope_reaches_every_collection_in_every_store_and_role(collection: Collection, role: Role) -> None:
    async with World() as world:
        partition = Partition(TENANT, USER.text)
        key = Key(TENANT, world.engine.placement.new_id(TENANT, USER.text))
        now = world.clock()
        for store in world.stores:
            await store.apply([Put(collection, Record(key, USER.text, 1, now, now, body={"secret": "words"}, role=role, tier="mid"), Always())])

        await world.engine.erasure.erase_scope(TENANT, USER)

        for store in world.stores:
            assert (await store.count(Query(collection, within(partition), roles=frozenset(Role)))).records == 0
            assert not isinstance((await store.get(collection, [key]))[0], Record)
