"""A URL of one kind at the port of a server of another kind: the error says what
answers there, and soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from memory.adapters.mongo.store import MongoStore
from memory.adapters.redis.store import RedisStore
from memory.adapters.sql.mysql.store import MySqlStore
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.domain.errors import ConfigError
from memory.ports.contract.collections import DECLARED
from memory.ports.server_probe import what_answers
from memory.ports.store import Store
from tests.support import mongo_servers, mysql_servers, postgres_servers, redis_servers
from tests.support.backends import BACKENDS, marks_of

PORTS: dict[str, Callable[[], int]] = {
    "Redis": lambda: redis_servers.durable().port,
    "PostgreSQL": lambda: postgres_servers.container().port,
    "MySQL or MariaDB": lambda: mysql_servers.container().port,
    "MongoDB": lambda: mongo_servers.alone().port,
}
MYSQL = "mysql" if BACKENDS["mysql"].missing() is None else "mariadb"
THERE = [
    pytest.param(kind, marks=marks_of(backend))
    for kind, backend in zip(PORTS, ("redis", "postgresql", MYSQL, "mongo"), strict=True)
]
"""Each on the worker that runs the other tests of that server."""
LONG = 600
"""Seconds that a store would wait for the right server: the error comes long before."""
STORES: dict[str, Callable[[str], Store]] = {
    "Redis": lambda at: RedisStore(f"redis://ann:s3cret@{at}", timeout=LONG, connect_timeout=LONG),
    "PostgreSQL": lambda at: PostgresStore(f"postgresql://ann:s3cret@{at}/memory", connect_timeout=LONG),
    "MySQL or MariaDB": lambda at: MySqlStore(f"mysql://ann:s3cret@{at}/memory", connect_timeout=LONG),
    "MongoDB": lambda at: MongoStore(f"mongodb://ann:s3cret@{at}/memory", timeout=LONG, connect_timeout=LONG),
}


@pytest.mark.parametrize("kind", THERE)
async def test_a_server_is_told_by_its_first_words(kind: str) -> None:
    assert await what_answers("127.0.0.1", PORTS[kind]()) == kind


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        pytest.param(wanted, *there.values, marks=there.marks)
        for wanted in STORES
        for there in THERE
        if there.values != (wanted,)
    ],
)
async def test_another_server_at_the_port_is_named_and_no_secret_is(wanted: str, there: str) -> None:
    store = STORES[wanted](f"127.0.0.1:{PORTS[there]()}")
    with pytest.raises(ConfigError, match=f"{there} answers, not {wanted}") as caught:
        async with asyncio.timeout(LONG / 5):
            await store.open(DECLARED)
    assert "s3cret" not in str(caught.value)


async def test_a_port_where_nothing_listens_is_no_server() -> None:
    assert await what_answers("127.0.0.1", 1) == ""
