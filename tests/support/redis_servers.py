"""The Redis servers of the tests: durable, with the default settings, and one node in
cluster mode. One each a test process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from memory.ports.record import Key
from tests.support.servers import Server, free_port

DATA = "/data"
DURABLE = ("--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")


def answers(port: int) -> None:
    """Raises unless a server answers there."""
    import redis

    with redis.Redis(port=port, socket_timeout=1, socket_connect_timeout=1) as client:
        client.ping()


def serves_slots(port: int) -> None:
    """Raises unless a cluster node answers there and its cluster takes writes; gives a
    new node all slots.
    """
    import redis

    with redis.Redis(port=port, socket_timeout=1, socket_connect_timeout=1) as client:
        info = client.execute_command("CLUSTER INFO")
        if int(info["cluster_slots_assigned"]) < 16_384:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16_383)
        assert client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"


def server(*settings: str) -> Server:
    """A Redis with these settings, of the caller's own."""
    return Server(
        "redis",
        answers,
        lambda port: ("redis-server", "--port", str(port), "--dir", DATA, *settings),
        data=[DATA],
    )


@cache
def durable() -> Server:
    return server(*DURABLE)


@cache
def default() -> Server:
    return server()


@cache
def cluster() -> Server:
    def command(port: int) -> Sequence[str]:
        announce = (
            "--cluster-announce-ip",
            "127.0.0.1",
            "--cluster-announce-port",
            str(port),
            "--cluster-port",
            str(free_port()),
        )
        return ("redis-server", "--port", str(port), "--cluster-enabled", "yes", *announce, *DURABLE)

    return Server("redis", serves_slots, command)


def emptied(port: int, database: int = 0) -> None:
    """Forget everything a test left."""
    import redis

    with redis.Redis(port=port, db=database, socket_timeout=10) as client:
        client.flushdb()


def forget(port: int, key: str) -> None:
    """Take a key away, as somebody else may."""
    import redis

    with redis.Redis(port=port, socket_timeout=10) as client:
        client.delete(key)


def used(port: int) -> int:
    """Bytes of memory the server takes."""
    import redis

    with redis.Redis(port=port, socket_timeout=10) as client:
        return int(client.info("memory")["used_memory"])


def limit(port: int, room: int | None) -> None:
    """Let the server take so many bytes more than it has; None: as many as there are."""
    import redis

    with redis.Redis(port=port, socket_timeout=10) as client:
        client.config_set("maxmemory", 0 if room is None else used(port) + room)


def damage(port: int, prefix: str, collection: str, key: Key) -> None:
    """Flip a bit of the last byte of a record's value, which is of its content."""
    import redis

    from memory.adapters.redis.keys import address_of, record_key

    name = record_key(prefix, address_of(collection, key))
    with redis.Redis(port=port, socket_timeout=10) as client:
        value = bytearray(client.get(name) or b"")
        value[-1] ^= 1
        client.set(name, bytes(value), keepttl=True)
