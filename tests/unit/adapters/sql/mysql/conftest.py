"""Stores on MariaDB or MySQL, whichever the image is, each in a database of its own."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from memory.adapters.sql.mysql.store import MySqlStore
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import HERE, id_of
from memory.ports.record import Partition
from tests.support import mysql_servers
from tests.support.backends import BACKENDS, marks_of
from tests.support.mysql_servers import MySqlServer

Raw = Callable[..., Awaitable[Sequence[Any]]]
_databases = itertools.count()

ON_SERVER = marks_of("mysql" if BACKENDS["mysql"].missing() is None else "mariadb")


def sixteen(n: int, at: Partition = HERE) -> bytes:
    """The id of the contract's record of this number as its column holds it."""
    return UUID(id_of(n, at)).bytes


@pytest.fixture
def server() -> MySqlServer:
    return mysql_servers.container()


@pytest_asyncio.fixture
async def database(server: MySqlServer) -> AsyncIterator[str]:
    name = f"unit_{next(_databases)}"
    await server.fresh(name)
    yield name
    await server.drop(name)


@pytest_asyncio.fixture
async def store(server: MySqlServer, database: str) -> AsyncIterator[MySqlStore]:
    opened = MySqlStore(
        server.url(database, pool_timeout=120)
    )  # where many call at once, the last waits long on a busy machine
    await opened.open(DECLARED)
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def raw(server: MySqlServer, database: str) -> Raw:
    """A statement as any other program sends it, in the test's database."""

    async def run(sql: str, *values: object) -> Sequence[Any]:
        return await server.run_sql(sql, *values, database=database)

    return run
