"""Two mid stores by tenant, Redis for sessions: each tenant's memory lives, is found,
moves and is deleted in its own store alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.kinds import KINDS
from memory.ports.query import MAX_LIMIT, Everywhere, Query, RowType
from memory.ports.record import Record, Role
from memory.ports.store import Store
from tests.support import mongo_servers, placings
from tests.support.backends import marks_of

pytestmark = [*marks_of("redis", "postgresql", "mongo_replica_set"), pytest.mark.behaviour("B81", "B85")]

OWN = {"acme": "eu", "globex": "us"}


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory(placings.two_mid_stores(tmp_path)) as opened:
        yield opened


async def tenants_in(memory: Memory, name: str) -> set[str]:
    """Whose entries a store holds, whatever their role."""
    store = named(memory, name)
    everything = Query(ENTRIES, Everywhere(), roles=frozenset(Role), limit=MAX_LIMIT)
    return {r.key.tenant for r in (await store.query(everything)).records}


def named(memory: Memory, name: str) -> Store:
    (store,) = [leaf for leaf in engine_of(memory).topology.leaves if leaf.name == name]
    return store


async def told(memory: Memory, tenant: str) -> dict[str, Any]:
    """One tenant's story: what is written to a user and a session, found, moved on at
    the session's end, changed and related.
    """
    own = memory.for_tenant(tenant)
    lasting = await own.write(
        f"{tenant} keeps the spare key under the blue pot", scope="user:ada", title="keys"
    )
    passing = await own.write("The plumber comes on Tuesday", scope="session:s1", tags=["fact"])
    await own.relations.relate(lasting.id, "relates_to", passing.id)
    await own.update(lasting.id, content=f"{tenant} keeps the spare key under the red pot")
    report = await own.sessions.end("s1")
    return {
        "moved": [m.entry_id for m in report.moved] == [passing.id],
        "found": [hit.entry.id for hit in await own.search("where is the spare key", scope="user:ada")]
        == [lasting.id],
        "found where it went": [hit.entry.id for hit in await own.search("plumber", scope="session:s1")]
        == [passing.id],
        "versions": len(await own.entries.history(lasting.id)),
        "relations": len(await own.relations.find(source_id=lasting.id)),
        "home": [copy.store for copy in await own.admin.where(lasting.id) if copy.role == "home"]
        == [OWN[tenant]],
        "home of what moved": [
            copy.store for copy in await own.admin.where(passing.id) if copy.role == "home"
        ]
        == [OWN[tenant]],
    }


async def test_each_tenants_memory_is_in_its_own_store_and_works_alike(memory: Memory) -> None:
    expected = {
        "moved": True,
        "found": True,
        "found where it went": True,
        "versions": 2,
        "relations": 1,
        "home": True,
        "home of what moved": True,
    }
    for tenant in OWN:
        assert await told(memory, tenant) == expected, tenant
    for tenant, name in OWN.items():
        assert await tenants_in(memory, name) == {tenant}
        route = memory.for_tenant(tenant).admin.route("user:ada")
        assert name in str(route)


async def test_deleting_a_scope_of_one_tenant_leaves_the_others_as_they_are(memory: Memory) -> None:
    for tenant in OWN:
        await told(memory, tenant)
    assert await memory.for_tenant("acme").admin.erase("user:ada") == 1
    assert list(await memory.for_tenant("acme").retrieve("user:ada")) == []
    assert len(await memory.for_tenant("globex").retrieve("user:ada")) == 1
    for collection in KINDS.collections:
        records = (
            await named(memory, "eu").query(
                Query(collection, Everywhere(), roles=frozenset(Role), limit=MAX_LIMIT)
            )
        ).records
        assert not [r for r in records if isinstance(r, Record) and r.scope == "user:ada"], collection.name
    assert (
        await named(memory, "eu").query(Query(ENTRIES, Everywhere(), types=frozenset({RowType.TOMBSTONE})))
    ).records


async def test_with_one_store_gone_the_other_tenant_notices_nothing(memory: Memory) -> None:
    for tenant in OWN:
        await told(memory, tenant)
    mongo_servers.replica_set().kill()
    try:
        acme = memory.for_tenant("acme")
        await acme.write("The plumber was here", scope="user:ada")
        answer = await acme.search("plumber", scope="user:ada")
        assert next(iter(answer)).entry.content == "The plumber was here"
        assert not answer.degraded
        states = {report.store: report.ok for report in await memory.admin.check()}
        assert states == {"sessions": True, "eu": True, "us": False}
    finally:
        mongo_servers.replica_set().revive()
    assert len(await memory.for_tenant("globex").retrieve("user:ada")) == 1
