"""Partitions that nothing is left of."""

from __future__ import annotations

from collections import Counter

import pytest
import redis

from memory.adapters.redis.store import RedisStore
from memory.ports.contract.collections import DECLARED
from tests.support.servers import Server
from tests.unit.adapters import forgetting
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [pytest.mark.backend("redis"), *NEEDS_SERVER]


async def test_dead_scopes_leave_no_key_behind(store: RedisStore, server: Server, prefix: str) -> None:
    async def counted() -> object:
        with redis.Redis(port=server.port, socket_timeout=10) as client:
            keys = client.keys(
                f"*{prefix}*"
            )  # SCAN may name a key twice while the server makes its table smaller
            kinds = Counter(key.decode().split("}:")[1].split(":")[0] for key in keys)
            return kinds, sum(client.zcard(key) for key in keys if key.endswith((b":e", b":i")))

    await forgetting.dead_scopes_leave_nothing_behind(store, counted)


async def test_a_writer_who_begins_in_a_partition_that_is_just_forgotten_loses_nothing(
    store: RedisStore, server: Server, prefix: str
) -> None:
    other = RedisStore(f"redis://127.0.0.1:{server.port}", prefix=prefix)
    await other.open(DECLARED)
    try:
        await forgetting.a_writer_who_begins_meanwhile_loses_nothing(store, other)
    finally:
        await other.close()
