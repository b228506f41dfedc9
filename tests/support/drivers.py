"""The drivers of the backends on servers, each with a store that reaches its server by
a port of ours: on the way there tests count and lose.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from memory.ports.store import Store
from tests.support import mongo_servers, mysql_servers, postgres_servers, redis_servers


@dataclass(frozen=True)
class Driver:
    """A server's port, and a store that reaches it on another one."""

    backend: str
    port: Callable[[], int]
    store: Callable[[int], Store]
    before: Callable[[], Awaitable[None]] | None = None


def _redis(port: int) -> Store:
    from memory.adapters.redis.store import RedisStore

    return RedisStore(f"redis://127.0.0.1:{port}", prefix=f"dropped-{uuid.uuid4().hex}")


def _postgresql(port: int) -> Store:
    from memory.adapters.sql.postgresql.store import PostgresStore

    server = postgres_servers.container()
    return PostgresStore(
        server.url(f"dropped_{uuid.uuid4().hex}").replace(f":{server.settings['port']}/", f":{port}/")
    )


def _mariadb(port: int) -> Store:
    from memory.adapters.sql.mysql.store import MySqlStore

    server = mysql_servers.container()
    return MySqlStore(server.url("dropped").replace(f":{server.port}/", f":{port}/"))


def _mongo(port: int) -> Store:
    from memory.adapters.mongo.store import MongoStore

    server = mongo_servers.replica_set()
    url = server.url("dropped").replace(f":{server.port}/", f":{port}/")
    return MongoStore(f"{url}&directConnection=true", prefix=f"d{uuid.uuid4().hex}_")


DRIVERS = [
    Driver("redis", lambda: redis_servers.durable().port, _redis),
    Driver("postgresql", lambda: int(postgres_servers.container().settings["port"]), _postgresql),
    Driver(
        "mariadb",
        lambda: mysql_servers.container().port,
        _mariadb,
        before=lambda: mysql_servers.container().fresh("dropped"),
    ),
    Driver("mongo_replica_set", lambda: mongo_servers.replica_set().port, _mongo),
]
