"""A few connections, held open and lent out one call at a time.

Outside a transaction each statement is one round trip that commits itself, so nothing is sent to take or give back a connection, and no
state stays on one. What went wrong on a connection in any other way than a refusal by the server leaves it in doubt: it is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg

from memory.adapters.sql.postgresql.claims import PostgresConfig
from memory.adapters.sql.postgresql.errors import PoolTimeout

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Greeting: TypeAlias = Callable[[Connection], Awaitable[None]]

_GOODBYE = 2.0
"""Seconds a connection may take to close in good order."""


async def connect(config: PostgresConfig) -> Connection:
    """A new connection, in time."""
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


class Pool:
    """Up to `pool_size` connections. `greet` is run on each new one."""

    def __init__(self, config: PostgresConfig, greet: Greeting) -> None:
        self._config = config
        self._greet = greet
        self._idle: list[Connection] = []
        self._made = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closing = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def lent(self) -> int:
        return self._made - len(self._idle)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One connection for one call, each of whose statements must be through within `command_timeout`."""
        connection = await self._take()
        try:
            yield connection
        except BaseException as error:
            self._give_back(connection, sound=_server_said(error) and not connection.is_in_transaction())
            raise
        else:
            self._give_back(connection, sound=True)

    async def close(self) -> None:
        """Wait for the calls under way, then let go of every connection."""
        self._closing = True
        try:
            async with asyncio.timeout(self._config.command_timeout):
                await self._empty.wait()
        finally:
            idle, self._idle = self._idle, []
            self._made -= len(idle)
            await asyncio.gather(*[goodbye(c) for c in idle])

    # -- lending ------------------------------------------------------------------------------------------------------

    async def _take(self) -> Connection:
        """An idle connection, the one used last first, or a new one; waits for one where there may be no more."""
        if not self._idle and self._made >= self._config.pool_size:
            await self._wait()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():  # the server went away since
                self._empty.clear()
                return connection
            self._made -= 1
        self._made += 1
        self._empty.clear()
        try:
            return await self._new()
        except BaseException:
            self._gone()
            raise

    async def _wait(self) -> None:
        """Until there is an idle connection, or room for a new one."""
        try:
            async with asyncio.timeout(self._config.pool_timeout):
                while not self._idle and self._made >= self._config.pool_size:
                    await self._turn()
        except TimeoutError:
            raise PoolTimeout from None

    async def _new(self) -> Connection:
        connection = await connect(self._config)
        try:
            async with asyncio.timeout(self._config.connect_timeout):
                await self._greet(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _turn(self) -> None:
        """Wait until a connection is given back or gone."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it was ours already: the next in line takes it
                self._wake()
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _give_back(self, connection: Connection, *, sound: bool) -> None:
        if sound and not self._closing and not connection.is_closed():
            self._idle.append(connection)
            self._wake()
        else:
            connection.terminate()
            self._gone()
        if self.lent == 0:
            self._empty.set()

    def _gone(self) -> None:
        self._made -= 1
        self._wake()
        if self.lent == 0:
            self._empty.set()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


def _server_said(error: BaseException) -> bool:
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
