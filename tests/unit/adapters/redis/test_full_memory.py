"""A memory whose Redis is full: everything works that reads, opens, checks or makes
room.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from memory import Memory
from memory.domain.errors import StoreFull
from tests.support import redis_servers
from tests.support.servers import Server
from tests.unit.adapters.redis.conftest import SERVERS

pytestmark = pytest.mark.parametrize("scheme", SERVERS)
SESSIONS = ("s", "t")
ROOM = "y" * 50_000
"""What the first erasure frees: more than the server needs for its connections, which
comes and goes.
"""


def _config(server: Server, scheme: str, prefix: str) -> dict[str, Any]:
    url = f"{scheme}://127.0.0.1:{server.port}?prefix={prefix}"
    return {
        "stores": {"redis": {"url": url}},
        "tiers": dict.fromkeys(("short", "mid", "long"), "redis"),
        "durations": {"sweep_every": "0s"},
    }


async def _fill(memory: Memory) -> None:
    for n in range(1000):
        await memory.write(f"{n} " + "y" * 60_000, scope="user:filler")


def _server(scheme: str) -> Server:
    return redis_servers.cluster() if "cluster" in scheme else redis_servers.durable()


@pytest_asyncio.fixture
async def full(scheme: str, prefix: str) -> AsyncIterator[dict[str, Any]]:
    """The config of a memory in a server that takes nothing more."""
    server = _server(scheme)
    config = _config(server, scheme, prefix)
    async with Memory(config) as memory:
        for scope in ("user:ada", "user:bob", "user:eve"):
            text = f"a fact of {scope}"
            await memory.write(f"{text} {ROOM}" if scope == "user:bob" else text, scope=scope, key="fact")
        for name in SESSIONS:
            await memory.session(name, user="cleo").append({"role": "user", "content": "hello"})
        redis_servers.limit(server.port, 0)
        with pytest.raises(StoreFull, match="maxmemory"):
            await _fill(memory)
    redis_servers.forget(
        server.port, f"{{{prefix}}}:format"
    )  # as an earlier version leaves it: the opening cannot note it either
    redis_servers.limit(server.port, -1)
    yield config
    redis_servers.limit(server.port, None)
    redis_servers.emptied(server.port)


async def test_a_memory_opens_reads_and_makes_room_in_a_full_server(full: dict[str, Any]) -> None:
    async with Memory(full) as memory:
        assert all(report.ok for report in await memory.admin.check())
        assert [entry.content for entry in await memory.retrieve("user:ada")] == ["a fact of user:ada"]
        assert [hit.entry.content for hit in await memory.search("fact", scope="user:ada")] == [
            "a fact of user:ada"
        ]
        assert (await memory.session("s").context()).messages[0].content == "hello"
        with pytest.raises(StoreFull):
            await memory.session("s").append({"role": "user", "content": "more " * 1000})

        assert await memory.admin.erase("user:bob") == 1
        (ada,) = await memory.retrieve("user:ada")
        assert await memory.delete(ada.id)
        session = memory.session("t")
        (said,) = (await session.history()).items
        assert await session.erase(str(said.message.id))
        assert (await session.context()).messages == []
        assert (await session.history()).items[0].is_redacted
        assert await memory.session("s").delete()
        assert (await memory.admin.erase_user("cleo")).sessions == 1
        for _ in range(100):
            swept = await memory.admin.sweep()
            if not swept.pending_steps:
                break
            await asyncio.sleep(0.1)
        assert swept.ran
        assert not swept.pending_steps
        for scope in ("user:ada", "user:bob"):
            assert await memory.retrieve(scope) == []
        await memory.admin.erase_tenant()
        assert [entry async for entry in memory.entries.iterate()] == []


async def test_what_is_stored_in_parts_is_deleted_in_a_server_far_over_its_limit(
    scheme: str, prefix: str
) -> None:
    """What the deletions free does not bring the server below its limit."""
    server, large = _server(scheme), "y" * 100_000
    try:
        async with Memory(_config(server, scheme, prefix), embedder="none") as memory:
            session = memory.session("s", user="cleo")
            await session.append({"role": "user", "content": large, "id": "m1"})
            artifact = await memory.artifacts.put("s", "report.md", large.encode())
            await memory.documents.put("user:cleo", "large", large * 4)
            await memory.scratchpads.append(large)
            redis_servers.limit(server.port, -redis_servers.used(server.port) // 2)
            with pytest.raises(StoreFull):
                await session.append({"role": "user", "content": "more"})
            assert await session.erase("m1")
            assert await memory.artifacts.delete(artifact.id)
            assert await memory.documents.delete("user:cleo", "large")
            assert await memory.scratchpads.clear()
            swept = await memory.admin.sweep()
            assert (swept.ran, swept.pending_steps) == (True, 0)
            assert (await memory.admin.stats()).pending_steps == 0
            assert not await memory.scratchpads.clear()
            redis_servers.limit(server.port, None)
            assert (await memory.admin.compare()).ok
    finally:
        redis_servers.limit(server.port, None)
        redis_servers.emptied(server.port)
