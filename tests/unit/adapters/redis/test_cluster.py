"""A cluster of three nodes: records spread over them, and a slot that moves between
them while the store is in use loses nothing.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import pytest_asyncio
import redis

from memory.adapters.redis.keys import hash_tag, home_bucket
from memory.adapters.redis.store import RedisStore
from memory.domain.errors import StoreUnavailable
from memory.ports.candidates import Candidates
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, apply_all, id_of, key_of, put, query_ids, record
from memory.ports.query import Everywhere, Tenant, within
from memory.ports.record import Partition
from tests.support import redis_servers
from tests.support.servers import Server
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [pytest.mark.backend("redis_cluster"), *NEEDS_SERVER]

NODE = (
    "redis-server --port {port} --cluster-port {bus} --cluster-enabled yes --cluster-config-file {port}.conf"
    " --save '' --protected-mode no &"
)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture(scope="module")
def nodes() -> Iterator[dict[int, Any]]:
    """The three nodes of a cluster, as any other program sees them, by port."""
    ports = _free_ports(6)
    started = "\n".join(
        NODE.format(port=port, bus=bus) for port, bus in zip(ports[:3], ports[3:], strict=True)
    )

    def ready(_: int) -> None:
        for port in ports[:3]:
            redis_servers.answers(port)

    server = Server("redis", ready, lambda _: ("sh", "-c", f"cd /tmp\n{started}\nwait"), host_network=True)
    assert server.port
    addresses = " ".join(f"127.0.0.1:{port}" for port in ports[:3])
    server.run("sh", "-c", f"redis-cli --cluster create {addresses} --cluster-yes")
    clients = {port: redis.Redis(port=port, decode_responses=True) for port in ports[:3]}
    server.wait_for(lambda _: all_agree(clients))
    yield clients
    for client in clients.values():
        client.close()
    server.stop()


def all_agree(clients: dict[int, Any]) -> None:
    assert all(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok" for client in clients.values())


@pytest_asyncio.fixture
async def store(nodes: dict[int, Any], prefix: str) -> AsyncIterator[RedisStore]:
    made = RedisStore(f"redis+cluster://127.0.0.1:{next(iter(nodes))}", prefix=prefix)
    await made.open(DECLARED)
    yield made
    await made.close()


async def test_records_spread_over_the_nodes_and_are_found_together(
    store: RedisStore, nodes: dict[int, Any], prefix: str
) -> None:
    scopes = [Partition("acme", f"user:{n}") for n in range(40)]
    await apply_all(store, *[put(record(n, at)) for n, at in enumerate(scopes)])
    assert all(node.keys(f"*{prefix}*:r:*") for node in nodes.values())
    assert (
        set(await query_ids(store, Tenant("acme")))
        == {id_of(n, at) for n, at in enumerate(scopes)}
        == set(await query_ids(store, Everywhere()))
    )
    assert (await store.check()).facts["servers"] == 3
    assert len(store.epoch.split("+")) == 3


async def test_a_slot_on_its_way_refuses_for_now_and_loses_nothing(
    store: RedisStore, nodes: dict[int, Any], prefix: str
) -> None:
    await apply_all(store, *[put(record(n)) for n in range(30)])
    everyone = Candidates(SAMPLES, within(HERE), among=tuple(id_of(n) for n in range(30)))
    slot = next(iter(nodes.values())).execute_command("CLUSTER KEYSLOT", hash_tag(prefix, home_bucket(HERE)))
    here = next(port for port, node in nodes.items() if node.execute_command("CLUSTER COUNTKEYSINSLOT", slot))
    there = next(port for port in nodes if port != here)
    names = {port: node.execute_command("CLUSTER MYID") for port, node in nodes.items()}
    nodes[there].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[here])
    nodes[here].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[there])

    def move(keys: list[str]) -> None:
        for key in keys:
            nodes[here].execute_command("MIGRATE", "127.0.0.1", there, key, 0, 5000)

    move(nodes[here].execute_command("CLUSTER GETKEYSINSLOT", slot, 1000)[::2])
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: query_ids(store),
        lambda: store.candidates(everyone),
        lambda: store.apply([put(record(5, version=9))]),
        lambda: store.apply([put(record(99))]),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable):
            await call()
    move(nodes[here].execute_command("CLUSTER GETKEYSINSLOT", slot, 1000))
    for node in nodes.values():
        node.execute_command("CLUSTER SETSLOT", slot, "NODE", names[there])

    assert await query_ids(store) == [id_of(n) for n in range(30)]
    assert set((await store.candidates(everyone)).ids) == {id_of(n) for n in range(30)}
    stands = await store.get(SAMPLES, [key_of(n) for n in range(30)])
    assert [getattr(s, "version", None) for s in stands] == [1] * 30
