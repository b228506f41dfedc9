"""Stores on PostgreSQL, each in a schema of its own."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from memory.adapters.sql.postgresql.store import PostgresStore
from memory.ports.contract.collections import DECLARED
from tests.support import postgres_servers
from tests.support.backends import BACKENDS
from tests.support.postgres_servers import Postgres

Raw = Callable[..., Awaitable[list[Any]]]
_schemas = itertools.count()


def backend(name: str) -> list[pytest.MarkDecorator]:
    """The marks of a test on that backend."""
    reason = BACKENDS[name].missing()
    marks = [pytest.mark.backend(name), pytest.mark.skipif(reason is not None, reason=str(reason))]
    return [*marks, pytest.mark.server] if BACKENDS[name].needs_server else marks


ON_SERVER = backend("postgresql")
BOTH = [pytest.param(name, marks=backend(name), id=name) for name in ("postgresql", "postgresql_pgvector")]


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Postgres:
    """The server in a container; with the parameter `postgresql_pgvector` the one that
    has the extension.
    """
    return (
        postgres_servers.with_pgvector()
        if getattr(request, "param", "") == "postgresql_pgvector"
        else postgres_servers.container()
    )


@pytest.fixture
def schema() -> str:
    return f"unit_{next(_schemas)}"


@pytest_asyncio.fixture
async def store(server: Postgres, schema: str, raw: Raw) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(
        server.url(schema, pool_timeout=120)
    )  # where many call at once, the last waits long on a busy machine
    await opened.open(DECLARED)
    yield opened
    await opened.close()
    await raw(f"DROP SCHEMA {schema} CASCADE")


@pytest_asyncio.fixture
async def raw(server: Postgres, schema: str) -> Raw:
    """A statement as any other program sends it; `{s}` in it is the schema."""

    async def run(sql: str, *values: object) -> list[Any]:
        connection = await asyncpg.connect(timeout=10, **server.settings)
        try:
            return list(await connection.fetch(sql.replace("{s}", schema), *values))
        finally:
            await connection.close()

    return run
