"""Connections to PostgreSQL: making them in time, and judging them after errors."""

from __future__ import annotations

import asyncio
import os
from typing import Any, TypeAlias
from urllib.parse import urlencode

import asyncpg

from memory.adapters.sql.postgresql.config import PostgresConfig
from memory.adapters.sql.server.pool import connect_shielded

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_GOODBYE = 2.0
"""The seconds that a connection may take to close in good order."""


_WITHOUT_JIT = "SET jit = off"
"""The server overestimates searches of many partitions, and compiles them for seconds.

A pooler may refuse the setting as a parameter of a connection, so it is a statement.
"""


class UnusableFile(Exception):
    """A file of certificates or keys that an option names cannot be read."""


async def connect(config: PostgresConfig) -> Connection:
    """Return a new connection, in time."""
    return await connect_shielded(_open_connection(config))


async def _open_connection(config: PostgresConfig) -> Connection:
    certificates = {"sslrootcert": config.sslrootcert, "sslcert": config.sslcert, "sslkey": config.sslkey}
    files = {name: path for name, path in certificates.items() if path is not None}
    for name, path in files.items():
        if not os.access(path, os.R_OK):
            raise UnusableFile(f"{name} names '{path}', which does not exist or cannot be read")
    hosts, ports = zip(*config.addresses, strict=True)
    settings = {"application_name": config.application_name} | (
        {"options": config.options} if config.options else {}
    )
    async with asyncio.timeout(config.connect_timeout):
        connection = await asyncpg.connect(
            dsn=f"postgresql://?{urlencode(files)}" if files else None,
            host=list(hosts),
            port=list(ports),
            user=config.user,
            password=config.password,
            database=config.database,
            ssl=None if all(host.startswith("/") for host in hosts) else config.ssl,
            target_session_attrs=config.target_session_attrs,
            timeout=config.connect_timeout,
            command_timeout=config.command_timeout,
            statement_cache_size=config.statement_cache_size,
            max_cached_statement_lifetime=0,
            server_settings=settings,
        )
        if "jit" not in (config.options or ""):
            try:
                await connection.execute(_WITHOUT_JIT)
            except BaseException:
                connection.terminate()
                raise
        return connection


_OF_THE_CONNECTION = (
    asyncpg.PostgresConnectionError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
)
"""Errors that another connection may not raise.

Examples are a server that became read-only, and statements that a pooler moved to
another server.
"""


def is_failover_error(error: BaseException) -> bool:
    """Whether the pool's connections lead to a server that takes no more writes.

    After a failover another server takes them.
    """
    return isinstance(error, asyncpg.ReadOnlySQLTransactionError)


def no_room(error: BaseException) -> bool:
    """Whether the server takes no more connections."""
    return isinstance(error, asyncpg.TooManyConnectionsError)


def still_good(error: BaseException) -> bool:
    """Whether the connection is known to be as good as before.

    The server answered with an error, or the driver never sent anything.
    """
    if isinstance(error, asyncpg.PostgresError):
        return not isinstance(error, _OF_THE_CONNECTION)
    return isinstance(error, Exception) and not isinstance(
        error, TimeoutError | OSError | asyncpg.InterfaceError | asyncpg.InternalClientError
    )


async def goodbye(connection: Any) -> None:
    """Close a connection in good order, or at once where that takes too long."""
    try:
        await connection.close(timeout=_GOODBYE)
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
