"""Random work by two stores in turns on one folder, closed and opened in between: the
outcomes and records of the specification, for both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.random_work import IDS, PLACES, RandomWork
from memory.ports.query import MAX_LIMIT, Query, Tenant
from memory.ports.record import Key, Role
from memory.ports.store import Store
from tests.support.depth import drawn
from tests.unit.adapters.file.helping import opened

pytestmark = pytest.mark.backend("file")

KEYS = [Key(tenant, record_id) for tenant in sorted({place.tenant for place in PLACES}) for record_id in IDS]


async def _standing(store: Store) -> list[object]:
    """What stands under every key, and what each tenant's records are."""
    tenants = sorted({place.tenant for place in PLACES})
    return [
        await store.get(SAMPLES, KEYS),
        *[
            (
                await store.query(Query(SAMPLES, Tenant(tenant), roles=frozenset(Role), limit=MAX_LIMIT))
            ).records
            for tenant in tenants
        ],
    ]


@pytest.mark.parametrize("seed", range(drawn(4, 1)))
async def test_two_stores_in_turns_do_what_the_specification_does(folder: Path, seed: int) -> None:
    specification, ours, beside = (
        InMemoryStore(),
        await opened(folder, fsync=False),
        await opened(folder, fsync=False),
    )
    await specification.open(DECLARED)
    work = RandomWork(100 + seed, ours.capabilities)
    for turn in range(6):
        writes = [work.write() for _ in range(40)]
        expected = await specification.apply(writes)
        for write, mine, other in zip(
            writes, await (ours if turn % 2 else beside).apply(writes), expected, strict=True
        ):
            assert mine == other, write
        query = work.query()
        assert await ours.query(query) == await beside.query(query)
        assert await _standing(ours) == await _standing(beside) == await _standing(specification)
        if turn == 3:
            await ours.close()
            await ours.open(DECLARED)
    for store in (ours, beside):
        await store.close()
