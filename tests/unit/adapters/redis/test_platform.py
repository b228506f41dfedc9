"""Redis as platform teams run it: replicas, failovers, users with few rights, TLS that
is not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from memory import Memory
from memory.adapters.redis.settings import safety_of
from memory.adapters.redis.store import RedisStore
from memory.domain.errors import ConfigError, StoreError, StoreUnavailable
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, apply_all, id_of, put, query_ids, record
from memory.ports.query import Query, within
from tests.support import redis_servers
from tests.support.servers import Server
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [pytest.mark.backend("redis"), *NEEDS_SERVER]


# -- replicas --------------------------------------------------------------------------


@contextlib.contextmanager
def _a_replica_of(server: Server) -> Iterator[None]:
    """Something that reads the server's writes, as a replica does."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as replica:
        replica.sendall(b"PSYNC ? -1\r\n")
        replica.recv(64)
        yield


async def test_a_master_with_replicas_is_not_durable_by_a_plain_url_either(
    server: Server, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(f"redis://127.0.0.1:{server.port}", prefix=prefix)
    with _a_replica_of(server), caplog.at_level(logging.WARNING):
        await store.open(DECLARED)
        assert not store.capabilities.durable
        assert "a replica that takes over" in caplog.text
        assert "min-replicas-to-write 1" in caplog.text
        await store.close()
    redis_servers.emptied(server.port)


def test_a_master_that_stops_without_its_replicas_needs_no_advice_about_that() -> None:
    settings = {"appendonly": "yes", "appendfsync": "always", "min-replicas-to-write": "1"}
    (advice,) = safety_of(settings, fails_over=True).advice
    assert "min-replicas" not in advice


@contextlib.asynccontextmanager
async def _address(*servers: Server) -> AsyncIterator[tuple[int, list[Server]]]:
    """A port that leads to the first server of the list, for each connection anew: an
    address that moves with a failover.
    """
    leads_to = list(servers)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inwards, outwards = await asyncio.open_connection("127.0.0.1", leads_to[0].port)
        await asyncio.gather(pump(reader, outwards), pump(inwards, writer))

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1], leads_to
    finally:
        listening.close()


async def test_a_demoted_master_is_left_at_once(server: Server, prefix: str) -> None:
    old = redis_servers.default()
    async with _address(old, server) as (port, leads_to):
        store = RedisStore(f"redis://127.0.0.1:{port}", prefix=prefix)
        await store.open(DECLARED)
        try:
            await asyncio.gather(
                *(apply_all(store, put(record(n))) for n in range(20))
            )  # over several connections
            with redis.Redis(port=old.port) as client:
                client.execute_command("REPLICAOF", "127.0.0.1", "1")
                with pytest.raises(StoreUnavailable):
                    await store.apply([put(record(20))])
                del leads_to[0]
                await asyncio.gather(*(apply_all(store, put(record(n))) for n in range(21, 41)))
                assert await query_ids(store) == [id_of(n) for n in range(21, 41)]
                client.execute_command("REPLICAOF", "NO", "ONE")
        finally:
            await store.close()
            redis_servers.emptied(old.port)
            redis_servers.emptied(server.port)


# -- rights ----------------------------------------------------------------------------

COMMANDS = (
    "+get +set +mget +del +exists +eval +evalsha +scan +zadd +zrem +zrange +zremrangebylex +zscore +sadd"
    " +srem +smembers +sismember +hget +hset +hdel +hlen +lindex +lrange +rpush +ltrim +pttl +pexpire"
    " +pexpireat +persist +time"
)
"""As docs/backends.md lists them."""


@contextlib.contextmanager
def _user(server: Server, *rules: str) -> Iterator[str]:
    """The URL of a user with these rights."""
    with redis.Redis(port=server.port) as client:
        client.execute_command("ACL", "SETUSER", "least", "reset", "on", ">secret", *rules)
        try:
            yield f"redis://least:secret@127.0.0.1:{server.port}"
        finally:
            client.execute_command("ACL", "DELUSER", "least")


def test_the_documents_list_these_commands() -> None:
    assert COMMANDS in (Path(__file__).parents[4] / "docs" / "backends.md").read_text()


async def test_a_user_with_the_documented_rights_can_do_all(server: Server, prefix: str) -> None:
    with _user(server, f"~{{{prefix}*", *COMMANDS.split()) as url:
        store = RedisStore(url, prefix=prefix)
        await store.open(DECLARED)
        await apply_all(store, put(record(1)), put(record(2)))
        assert await query_ids(store) == [id_of(1), id_of(2)]
        assert await store.delete_matching(Query(SAMPLES, within(HERE)), 10) == 2
        assert (await store.check()).version == "Redis of unknown version (INFO is refused)"
        assert not (await store.audit()).problems
        assert not store.capabilities.durable
        await store.close()
    redis_servers.emptied(server.port)


@pytest.mark.parametrize(
    "keys", [("~{PREFIX*",), ("~{PREFIX:*", "~{PREFIX}:*")], ids=["one-pattern", "exact"]
)
async def test_a_memory_with_the_documented_rights_works(
    server: Server, prefix: str, keys: tuple[str, ...]
) -> None:
    assert f"`{' '.join(keys)}`" in (Path(__file__).parents[4] / "docs" / "backends.md").read_text()
    rules = (
        *(key.replace("PREFIX", prefix) for key in keys),
        "resetchannels",
        *COMMANDS.split(),
        "+info",
        "+config|get",
    )
    with _user(server, *rules) as url, redis.Redis(port=server.port) as client:
        client.set(f"{prefix}:of another", "kept")
        stores = {"redis": {"url": url, "options": {"prefix": prefix}}}
        config = {
            "stores": stores,
            "tiers": dict.fromkeys(("short", "mid", "long"), "redis"),
            "accept_loss": ["redis"],
            "embedder": "none",
        }
        async with Memory(config) as memory:
            session = memory.session("s", user="ada")
            await session.append({"role": "user", "content": "Ada likes tea"})
            entry = await memory.write("Ada likes tea", scope="user:ada")
            await memory.update(entry.id, content="Ada likes green tea")
            assert (await memory.search("tea", scope="user:ada"))[0].entry.id == entry.id
            assert await memory.search_messages("tea")
            await memory.admin.sweep()
            assert all(store.ok for store in await memory.admin.check())
            assert (await memory.admin.erase_user("ada")).sessions == 1
            await memory.admin.erase_tenant()
        assert client.get(f"{prefix}:of another") == b"kept"
        client.delete(f"{prefix}:of another")
    redis_servers.emptied(server.port)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (("~other*", "+@all"), r"~\{unit-\d+\*"),
        (("~*", "+@all", "-evalsha", "-eval"), "command 'evalsha'"),
        (("~*", "+@all", "-get"), "command 'get'"),
    ],
)
async def test_a_missing_right_is_named(
    server: Server, prefix: str, rules: tuple[str, ...], said: str
) -> None:
    async def used(url: str) -> Any:
        store = RedisStore(url, prefix=prefix)
        await store.open(DECLARED)
        try:
            await store.apply([put(record(1))])
        finally:
            await store.close()

    with _user(server, *rules) as url, pytest.raises(StoreError, match=said) as caught:
        await used(url)
    assert "secret" not in str(caught.value)
    redis_servers.emptied(server.port)


async def test_a_port_without_tls_is_named(server: Server) -> None:
    with pytest.raises(ConfigError, match="offers no TLS"):
        await RedisStore(f"rediss://127.0.0.1:{server.port}", timeout=2).open(DECLARED)
