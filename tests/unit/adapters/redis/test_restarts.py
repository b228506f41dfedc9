"""A server that keeps nothing on disk restarts while a store is open."""

from __future__ import annotations

import asyncio

import pytest

from memory.adapters.redis.inspection import Inspection
from memory.adapters.redis.store import RedisStore
from memory.domain.errors import StoreUnavailable
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import key_of
from tests.support import redis_servers
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [pytest.mark.backend("redis_volatile"), *NEEDS_SERVER]


async def test_calls_that_notice_a_restart_at_once_take_it_for_no_loss(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = redis_servers.default()
    store = RedisStore(f"redis://127.0.0.1:{server.port}", prefix=prefix, timeout=60)
    await store.open(DECLARED)
    read, make = Inspection.mark, Inspection.mark_run
    made, making, asked = asyncio.Event(), set[int](), list[int]()

    async def read_late(self: Inspection) -> str:
        found = await read(self)
        if id(self) not in making:
            asked.append(id(self))
            if len(asked) > 1:  # the others read no mark, and go on once the first made one
                await asyncio.wait_for(made.wait(), 60)
        return found

    async def make_mark(self: Inspection) -> str:
        making.add(id(self))
        mark = await make(self)
        made.set()
        return mark

    server.kill()
    server.revive()
    monkeypatch.setattr(Inspection, "mark", read_late)
    monkeypatch.setattr(Inspection, "mark_run", make_mark)
    while True:  # the first calls may meet a connection that died with the server
        try:
            await asyncio.gather(*(store.get(SAMPLES, [key_of(n)]) for n in range(3)))
            break
        except StoreUnavailable:
            asked.clear()
    monkeypatch.undo()
    health = await store.check()
    await store.close()
    assert len(asked) >= 2
    assert health.ok, health.detail
