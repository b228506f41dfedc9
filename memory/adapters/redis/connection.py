"""Connections to a server: time limits, scripts and the server's run id.

It has the base class for all kinds of servers and the class for single servers.
"""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from redis import exceptions as driver
from redis.asyncio import ConnectionPool, Redis, Sentinel, SSLConnection
from redis.asyncio.connection import AbstractConnection, Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from memory.adapters.redis.config import RedisConfig
from memory.adapters.redis.keys import Address, hash_tag, record_key
from memory.adapters.redis.scripts import Argument, Call, frames, script
from memory.domain.errors import NotOpen

T = TypeVar("T")


_DEMOTED = "previous master is now a slave"
"""Driver's message when a master named by Sentinel has become a replica."""


class Connections(ABC):
    """Connections to a server or cluster. It raises the driver's errors.

    Every round trip ends within `timeout` seconds, including the wait for a connection.
    The driver's own time limits are off, except for connecting: one limit for the whole
    call is simpler and faster than one per read. A cancelled call closes its
    connection, so that no other call receives its late answer. Writes are never
    repeated. Reads are repeated once if the connection was lost, because servers close
    idle ones.
    """

    one_server: bool

    def __init__(self, config: RedisConfig) -> None:
        self.config = config
        self._client: Any = None
        self._room = asyncio.Semaphore(config.connections)
        self.runs: dict[str, str] = {}
        """Run id of each server at the last connection.

        A restart breaks every connection, so answers of two runs are never confused.
        """

    @property
    def epoch(self) -> str:
        return "+".join(sorted(self.runs.values()))

    @abstractmethod
    async def open(self) -> None: ...

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @abstractmethod
    async def leave(self) -> None:
        """Close idle connections: they lead to a server that became a replica."""

    @abstractmethod
    async def servers(self, *command: str) -> list[Any]:
        """Send the command to every master and return the answers."""

    @abstractmethod
    def keys(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Yield the keys that match this glob pattern, in batches.

        Every key that exists during the whole scan is returned. Some keys may be
        repeated.
        """

    @abstractmethod
    async def values(self, addresses: Sequence[Address]) -> list[bytes | None]:
        """Return the values at these addresses."""

    @abstractmethod
    async def run(
        self, name: str, calls: Sequence[Call], options: Sequence[Argument], *, repeatable: bool
    ) -> list[bytes]:
        """Run the calls with a script and return its answers.

        Calls run in order within each bucket. On one server, all run in order and in
        one step.
        """

    # -- shared ------------------------------------------------------------------------

    @property
    def _live_client(self) -> Any:
        if self._client is None:  # closed during this call
            raise NotOpen("this store")
        return self._client

    async def command(self, *command: Argument) -> Any:
        """Run one command on one key."""
        return await self._in_time(lambda: self._live_client.execute_command(*command))

    async def _in_time(self, work: Callable[[], Awaitable[T]], repeatable: bool = True) -> T:
        async with asyncio.timeout(self.config.timeout), self._room:
            try:
                return await work()
            except driver.ReadOnlyError:
                await self.leave()  # nothing was done: it is a replica now, its master takes the call
            except driver.ConnectionError as error:
                if _DEMOTED in str(error):
                    await self.leave()
                elif not repeatable or isinstance(
                    error, driver.AuthenticationError | driver.AuthorizationError | driver.BusyLoadingError
                ):
                    raise
            return await work()

    async def _evaluate(
        self, client: Any, name: str, calls: Sequence[Call], options: Sequence[Argument], repeatable: bool
    ) -> list[bytes]:
        known, config = script(name), self.config
        given = [*options, *[argument for call in calls for argument in call.arguments]]

        async def send() -> Any:
            once = secrets.token_bytes(8)
            arguments = (
                1,
                hash_tag(config.prefix, calls[0].bucket),
                config.prefix,
                int(self.one_server),
                once,
                config.thresholds.changes_told,
                *given,
            )
            try:
                return await client.execute_command("EVALSHA", known.digest, *arguments)
            except driver.NoScriptError:
                return await client.execute_command("EVAL", known.text, *arguments)

        return frames(await self._in_time(send, repeatable))

    def _keys(self, addresses: Sequence[Address]) -> list[str]:
        return [record_key(self.config.prefix, address) for address in addresses]

    async def _introduce(self, connection: AbstractConnection) -> None:
        """Learn the server's run id on every new connection."""
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        try:
            answer = await connection.read_response(disable_decoding=True)
        except driver.NoPermissionError:  # the run is unknown, so each connection counts as a new one
            answer = b""
        lines = dict(
            line.partition(b":")[::2] for line in answer.replace(b"\r", b"").split(b"\n") if b":" in line
        )
        self.runs[self._server(connection)] = lines.get(b"run_id", b"").decode() or secrets.token_hex(20)

    @abstractmethod
    def _server(self, connection: AbstractConnection) -> str: ...

    def _options(self) -> dict[str, Any]:
        """Options of every connection.

        The driver retries nothing, because the server may have applied a write.
        """
        config = self.config
        options: dict[str, Any] = {
            "socket_timeout": None,
            "socket_connect_timeout": config.connect_timeout,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "username": config.username,
            "password": config.password,
        }
        return options

    def _tls(self) -> dict[str, Any]:
        config = self.config
        return {
            "ssl_ca_certs": config.tls_ca,
            "ssl_certfile": config.tls_cert,
            "ssl_keyfile": config.tls_key,
            "ssl_check_hostname": config.tls_check_hostname,
        }


class ServerConnections(Connections):
    """Connections to one server, which the URL or its sentinels name.

    Every script call is one step.
    """

    one_server = True

    def __init__(self, config: RedisConfig) -> None:
        super().__init__(config)
        self._sentinel: Sentinel | None = None

    async def open(self) -> None:
        self.runs.clear()
        options = {**self._options(), "db": self.config.database, "redis_connect_func": self._introduce}
        if self.config.kind == "sentinel":
            self._client = self._master(options)
        else:
            host, port = self.config.nodes[0]
            tls = (
                {"connection_class": SSLConnection, **self._tls()}
                if self.config.tls
                else {"connection_class": Connection}
            )
            pool = ConnectionPool(
                host=host, port=port, max_connections=self.config.connections, **options, **tls
            )
            self._client = Redis.from_pool(pool)

    def _master(self, options: dict[str, Any]) -> Redis:
        config = self.config
        own = {"username": config.sentinel_username, "password": config.sentinel_password}
        tls = {"ssl": True, **self._tls()} if config.tls else {}
        quiet = {
            name: options[name] for name in ("socket_timeout", "socket_connect_timeout", "retry", "protocol")
        }
        self._sentinel = Sentinel(  # type: ignore[no-untyped-call]
            list(config.nodes), sentinel_kwargs={**quiet, **own, **tls}, **options
        )
        master: Redis = self._sentinel.master_for(config.service, max_connections=config.connections, **tls)
        return master

    async def close(self) -> None:
        await super().close()
        sentinel, self._sentinel = self._sentinel, None
        for asked in sentinel.sentinels if sentinel is not None else ():
            await asked.aclose()

    async def leave(self) -> None:
        if self._client is not None:
            await self._client.connection_pool.disconnect(inuse_connections=False)

    async def servers(self, *command: str) -> list[Any]:
        return [await self.command(*command)]

    async def keys(self, pattern: str) -> AsyncIterator[list[bytes]]:
        cursor = 0
        while True:
            cursor, found = await self.command(
                "SCAN", cursor, "MATCH", pattern, "COUNT", self.config.thresholds.keys_at_once
            )
            yield found
            if not cursor:
                return

    async def values(self, addresses: Sequence[Address]) -> list[bytes | None]:
        found: list[bytes | None] = await self.command("MGET", *self._keys(addresses))
        return found

    async def run(
        self, name: str, calls: Sequence[Call], options: Sequence[Argument], *, repeatable: bool
    ) -> list[bytes]:
        return await self._evaluate(self._live_client, name, calls, options, repeatable) if calls else []

    def _server(self, connection: AbstractConnection) -> str:
        return "server"
