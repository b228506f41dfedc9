"""Connections to PostgreSQL: how they are made, in time, and what leaves one as good as before."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import asyncpg

from memory.adapters.sql.postgresql.config import PostgresConfig
from memory.adapters.sql.server.pool import connected

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_GOODBYE = 2.0
"""Seconds a connection may take to close in good order."""


async def connect(config: PostgresConfig) -> Connection:
    """A new connection, in time."""
    return await connected(_connected(config))


async def _connected(config: PostgresConfig) -> Connection:
    async with asyncio.timeout(config.connect_timeout):
        return await asyncpg.connect(
            host=config.host,
            port=config.port,
            user=config.user,
            password=config.password,
            database=config.database,
            ssl=None if config.host.startswith("/") else config.ssl,
            timeout=config.connect_timeout,
            command_timeout=config.command_timeout,
            statement_cache_size=config.statement_cache_size,
            max_cached_statement_lifetime=0,
            server_settings={"application_name": "memory-tiers"},
        )


def still_good(error: BaseException) -> bool:
    """Whether the connection is known to be as good as before: the server answered with an error, or the driver never sent anything."""
    if isinstance(error, asyncpg.PostgresError):
        return not isinstance(error, asyncpg.PostgresConnectionError)
    return isinstance(error, Exception) and not isinstance(error, TimeoutError | OSError | asyncpg.InterfaceError | asyncpg.InternalClientError)


async def goodbye(connection: Any) -> None:
    """Close a connection in good order, or at once where that takes too long."""
    try:
        await connection.close(timeout=_GOODBYE)
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
