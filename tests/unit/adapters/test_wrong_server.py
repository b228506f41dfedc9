"""A URL of one kind at the port of a server of another kind: the error says what
answers there, and soon.
"""

from __future__ import annotations

import time
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
from tests.support import mongo_servers, mysql_servers, postgres_servers, redis_servers, servers

PORTS: dict[str, Callable[[], int]] = {
    "Redis": lambda: redis_servers.durable().port,
    "PostgreSQL": lambda: postgres_servers.container().port,
    "MySQL or MariaDB": lambda: mysql_servers.container().port,
    "MongoDB": lambda: mongo_servers.alone().port,
}
IMAGES = {"Redis": "redis", "PostgreSQL": "postgres", "MySQL or MariaDB": "mysql", "MongoDB": "mongo"}
STORES: dict[str, Callable[[str], Store]] = {
    "Redis": lambda at: RedisStore(f"redis://ann:s3cret@{at}"),
    "PostgreSQL": lambda at: PostgresStore(f"postgresql://ann:s3cret@{at}/memory"),
    "MySQL or MariaDB": lambda at: MySqlStore(f"mysql://ann:s3cret@{at}/memory"),
    "MongoDB": lambda at: MongoStore(f"mongodb://ann:s3cret@{at}/memory"),
}

pytestmark = pytest.mark.server


def _needs(*kinds: str) -> None:
    for kind in kinds:
        if reason := servers.missing(IMAGES[kind]):
            pytest.skip(reason)


@pytest.mark.parametrize("kind", list(PORTS))
async def test_a_server_is_told_by_its_first_words(kind: str) -> None:
    _needs(kind)
    assert await what_answers("127.0.0.1", PORTS[kind]()) == kind


@pytest.mark.parametrize(
    ("wanted", "there"), [(wanted, there) for wanted in STORES for there in PORTS if there != wanted]
)
async def test_another_server_at_the_port_is_named_and_no_secret_is(wanted: str, there: str) -> None:
    _needs(there)
    store = STORES[wanted](f"127.0.0.1:{PORTS[there]()}")
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=f"{there} answers, not {wanted}") as caught:
        await store.open(DECLARED)
    assert time.monotonic() - begun < 9, "before the time limits of connecting"
    assert "s3cret" not in str(caught.value)


async def test_a_port_where_nothing_listens_is_no_server() -> None:
    assert await what_answers("127.0.0.1", 1) == ""
