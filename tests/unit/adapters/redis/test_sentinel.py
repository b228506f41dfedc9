"""A server found through Sentinel: the store follows the service's name, and does not
claim what a failover may lose.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis as driver

from memory.adapters.redis.store import RedisStore
from memory.domain.errors import ConfigError, StoreUnavailable
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import apply_all, id_of, put, query_ids, record
from tests.support import redis_servers
from tests.support.servers import Server
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [pytest.mark.backend("redis"), *NEEDS_SERVER]

WATCH = (
    "printf 'port {port}\\nsentinel monitor main 127.0.0.1 {master} 1\\n' > /tmp/s.conf; "
    "exec redis-server /tmp/s.conf --sentinel --protected-mode no"
)


@pytest.fixture(scope="module")
def sentinel() -> Iterator[Server]:
    """A sentinel that watches the durable server of this test process, both on the
    host's loopback interface.
    """
    master = redis_servers.durable().port
    server = Server(
        "redis",
        redis_servers.answers,
        lambda port: ("sh", "-c", WATCH.format(port=port, master=master)),
        host_network=True,
    )
    yield server
    server.stop()


async def test_the_master_of_a_service_is_found_and_used(sentinel: Server, prefix: str) -> None:
    store = RedisStore(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/main", prefix=prefix)
    await store.open(DECLARED)
    try:
        assert store.capabilities.atomic
        assert not store.capabilities.durable, "a replica that takes over may lack the last writes"
        assert store.epoch
        await apply_all(store, put(record(1)), put(record(2)))
        assert await query_ids(store) == [id_of(1), id_of(2)]
        assert "main" in (await store.check()).detail
        with driver.Redis(port=redis_servers.durable().port) as master:
            assert master.keys(f"*{prefix}*:r:*")
    finally:
        await store.close()
        redis_servers.emptied(redis_servers.durable().port)


async def test_a_service_no_sentinel_knows_is_unavailable(sentinel: Server) -> None:
    with pytest.raises(StoreUnavailable):
        await RedisStore(f"redis+sentinel://127.0.0.1:{sentinel.port}/other").open(DECLARED)


async def test_a_sentinel_taken_for_a_server_is_named(sentinel: Server) -> None:
    with pytest.raises(ConfigError, match=r"this is a Sentinel.*redis\+sentinel://"):
        await RedisStore(f"redis://127.0.0.1:{sentinel.port}").open(DECLARED)
