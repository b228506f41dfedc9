"""A real Qdrant server that freezes, dies and comes back, and many clients of it. The
contract on it is in `tests/contract`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from memory.adapters.qdrant.store import QdrantStore
from memory.domain.errors import StoreTimeout, StoreUnavailable
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import HERE, apply_all, fetch_record, fetch_stored, id_of, one, put, record
from memory.ports.writes import Absent, AtVersion, RaiseGeneration
from tests.contract.qdrant_harnesses import new_server
from tests.support import servers
from tests.support.servers import Server

WHY_NOT = servers.missing("qdrant")
pytestmark = [
    pytest.mark.server,
    pytest.mark.backend("qdrant_server"),
    pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or ""),
]
_NAMES = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = new_server()
    yield made
    made.stop()


@pytest_asyncio.fixture
async def store(server: Server) -> AsyncIterator[QdrantStore]:
    opened = QdrantStore(f"qdrant://127.0.0.1:{server.port}?timeout=2", collection=f"own-{next(_NAMES)}")
    await opened.open(DECLARED)
    yield opened
    await opened.close()


async def test_a_frozen_server_is_a_timeout_and_serves_again_when_it_wakes(
    store: QdrantStore, server: Server
) -> None:
    await apply_all(store, put(record()))
    server.freeze()
    try:
        begun = time.monotonic()
        with pytest.raises(StoreTimeout):
            await fetch_stored(store)
        assert not (await store.check()).ok
        assert time.monotonic() - begun < 10
    finally:
        server.thaw()
    assert (await fetch_record(store)).key.id == id_of(1)


async def test_what_a_server_acknowledged_before_it_died_is_there_when_it_is_back(
    store: QdrantStore, server: Server
) -> None:
    await apply_all(store, *[put(record(n)) for n in range(20)])
    server.kill()
    try:
        with pytest.raises(StoreUnavailable):
            await one(store, put(record(50)))
    finally:
        server.revive()
    assert [(await fetch_record(store, n)).key.id for n in range(20)] == [id_of(n) for n in range(20)]
    await apply_all(store, put(record(60)))


async def test_sixty_four_clients_write_at_once(server: Server) -> None:
    name = f"own-{next(_NAMES)}"
    stores = [QdrantStore(f"qdrant://127.0.0.1:{server.port}?timeout=30", collection=name) for _ in range(64)]
    for store in stores:
        await store.open(DECLARED)
    try:
        created = await asyncio.gather(
            *(one(s, put(record(version=n + 1), Absent())) for n, s in enumerate(stores))
        )
        assert sum(o.applied for o in created) == 1
        version = (await fetch_record(stores[0])).version
        changed = await asyncio.gather(
            *(one(s, put(record(version=version + n + 1), AtVersion(version))) for n, s in enumerate(stores))
        )
        assert sum(o.applied for o in changed) == 1
        raised = await asyncio.gather(*(one(s, RaiseGeneration(HERE)) for s in stores))
        assert sorted(o.number or 0 for o in raised) == list(range(1, 65))
    finally:
        for store in stores:
            await store.close()
