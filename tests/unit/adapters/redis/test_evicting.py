"""A server that evicts keys may drop an index and keep its records: what deletes, or
asks for everything, finds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from memory import Memory
from tests.support import redis_servers
from tests.support.servers import Server
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [pytest.mark.backend("redis"), *NEEDS_SERVER]

TEXT = "the heron nests in the reeds"
EVICTED = {
    "every index": "tagxudsmeic",
    "the names of partitions": "ei",
    "the records of partitions": "ts",
}


@pytest.fixture
def evicting() -> Iterator[Any]:
    """A client of the durable server, which evicts for as long as the test lasts."""
    server = redis_servers.durable()
    with redis.Redis(port=server.port, socket_timeout=10) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", 2**30)
        yield client
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")
    redis_servers.emptied(server.port)


def _config(server: Server, prefix: str) -> dict[str, Any]:
    url = f"redis://127.0.0.1:{server.port}?prefix={prefix}"
    return {
        "stores": {"redis": {"url": url}},
        "tiers": dict.fromkeys(("short", "mid", "long"), "redis"),
        "accept_loss": ["redis"],
    }


def evict(client: Any, prefix: str, letters: str) -> None:
    """Drop every index of these letters, as the server may."""
    keys = [
        key for key in client.scan_iter(f"{{{prefix}:*") if key.partition(b"}:")[2][:1].decode() in letters
    ]
    assert keys
    client.delete(*keys)


def keys_with_text(client: Any, prefix: str) -> list[bytes]:
    keys = list(client.scan_iter(f"{{{prefix}:*}}:r:*"))
    return (
        [key for key, value in zip(keys, client.mget(keys), strict=True) if value and TEXT.encode() in value]
        if keys
        else []
    )


@pytest.mark.parametrize("letters", EVICTED.values(), ids=EVICTED)
async def test_an_erasure_leaves_no_text_whatever_index_was_evicted(
    evicting: Any, server: Server, prefix: str, letters: str
) -> None:
    async with (
        Memory(_config(server, prefix)) as memory,
        Memory(_config(server, prefix), tenant="other") as other,
    ):
        for scope in ("user:ada", "user:bob", "session:s"):
            await memory.write(f"{TEXT} {scope}", scope=scope)
        await memory.session("chat", user="ada").append({"role": "user", "content": TEXT})
        kept = await other.write(TEXT, scope="user:ada")
        await asyncio.gather(memory.admin.flush(), other.admin.flush())
        evict(evicting, prefix, letters)

        assert len([entry async for entry in memory.entries.iterate()]) == 3
        assert sum(tier.entries for tier in (await memory.admin.stats()).tiers) == 3
        assert await memory.admin.erase("user:bob") == 1
        evict(evicting, prefix, letters)
        await memory.admin.erase_tenant()
        left = keys_with_text(evicting, prefix)
        assert len(left) == 1
        assert kept.id.encode() in left[0]


async def test_an_audit_names_an_evicted_index_and_makes_it_anew(
    evicting: Any, server: Server, prefix: str
) -> None:
    async with Memory(_config(server, prefix)) as memory:
        await memory.write(TEXT, scope="user:ada")
        evict(evicting, prefix, "te")
        assert await memory.retrieve("user:ada") == []
        (audit,) = await memory.admin.audit()
        assert any("index" in problem for problem in audit.problems)
        await memory.admin.audit(repair=True)
        assert [entry.content for entry in await memory.retrieve("user:ada")] == [TEXT]


@pytest.mark.parametrize("durable", [False, True])
async def test_reads_are_degraded_after_another_program_flushed_the_server(
    evicting: Any, server: Server, prefix: str, caplog: pytest.LogCaptureFixture, durable: bool
) -> None:
    if durable:
        evicting.config_set("maxmemory-policy", "noeviction")
        evicting.config_set("appendonly", "yes")
        evicting.config_set("appendfsync", "always")
    config = _config(server, prefix)
    async with Memory(config) as memory:
        await memory.write(TEXT, scope="user:ada")
        assert (await memory.retrieve("user:ada")).degraded == ()
        assert (await memory.search("nothing", scope="user:bob")).degraded == ()
        evicting.flushall()
        for answer in (await memory.retrieve("user:ada"), await memory.search("heron", scope="user:ada")):
            assert not answer
            assert [note for note in answer.degraded if "its server lost all data while open" in note]
        assert "its server lost all data while open" in caplog.text
        assert [report.ok for report in await memory.admin.check()] == [False]
        await memory.write(TEXT, scope="user:ada")
        assert (await memory.retrieve("user:ada")).degraded, "what was there before is missing all the same"
    async with Memory(config) as memory:
        assert (await memory.retrieve("user:ada")).degraded == ()
        assert [report.ok for report in await memory.admin.check()] == [True]
