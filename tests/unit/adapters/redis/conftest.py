"""Every test here may ask for an open store on a server; a machine without one says so."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from memory.adapters.redis.store import RedisStore
from memory.ports.contract.collections import DECLARED
from tests.support import redis_servers, servers
from tests.support.servers import Server

_prefixes = itertools.count()

NEEDS_SERVER = [
    pytest.mark.server,
    pytest.mark.skipif(servers.missing("redis") is not None, reason=str(servers.missing("redis"))),
]
SERVERS = [
    pytest.param("redis", marks=[pytest.mark.backend("redis"), *NEEDS_SERVER], id="redis"),
    pytest.param("redis+cluster", marks=[pytest.mark.backend("redis_cluster"), *NEEDS_SERVER], id="cluster"),
]


@pytest.fixture
def server() -> Server:
    """The durable single server."""
    return redis_servers.durable()


@pytest.fixture
def prefix() -> str:
    return f"unit-{next(_prefixes)}"


@pytest_asyncio.fixture
async def store(server: Server, prefix: str) -> AsyncIterator[RedisStore]:
    made = RedisStore(
        f"redis://127.0.0.1:{server.port}", prefix=prefix, timeout=60
    )  # where many call at once, the last waits long on a busy machine
    await made.open(DECLARED)
    try:
        yield made
    finally:
        await made.close()
        redis_servers.emptied(server.port)
