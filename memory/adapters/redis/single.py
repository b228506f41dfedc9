"""One server, named by the URL or found through Sentinel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from redis.asyncio import ConnectionPool, Redis, Sentinel, SSLConnection
from redis.asyncio.connection import AbstractConnection, Connection

from memory.adapters.redis.config import RedisConfig
from memory.adapters.redis.link import Link
from memory.adapters.redis.names import Place
from memory.adapters.redis.scripts import Argument, Call
from memory.domain.errors import NotOpen


class ServerLink(Link):
    """One server, named by the URL or by its sentinels. Every script call is one step, whatever it touches."""

    one_server = True

    def __init__(self, config: RedisConfig) -> None:
        super().__init__(config)
        self._client: Redis | None = None
        self._sentinel: Sentinel | None = None

    async def open(self) -> None:
        self.runs.clear()
        options = {**self._options(), "db": self.config.database, "redis_connect_func": self._introduce}
        if self.config.kind == "sentinel":
            self._client = self._master(options)
        else:
            host, port = self.config.nodes[0]
            tls = {"connection_class": SSLConnection, **self._tls()} if self.config.tls else {"connection_class": Connection}
            pool = ConnectionPool(host=host, port=port, max_connections=self.config.connections, **options, **tls)
            self._client = Redis.from_pool(pool)

    def _master(self, options: dict[str, Any]) -> Redis:
        config = self.config
        own = {"username": config.sentinel_username, "password": config.sentinel_password}
        tls = {"ssl": True, **self._tls()} if config.tls else {}
        quiet = {name: options[name] for name in ("socket_timeout", "socket_connect_timeout", "retry", "protocol")}
        self._sentinel = Sentinel(  # type: ignore[no-untyped-call]
            list(config.nodes), sentinel_kwargs={**quiet, **own, **tls}, **options
        )
        master: Redis = self._sentinel.master_for(config.service, max_connections=config.connections, **tls)
        return master

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
        sentinel, self._sentinel = self._sentinel, None
        for asked in sentinel.sentinels if sentinel is not None else ():
            await asked.aclose()

    @property
    def _connected(self) -> Redis:
        if self._client is None:  # closed while this call was under way
            raise NotOpen("this store")
        return self._client

    async def servers(self, *command: str) -> list[Any]:
        return [await self.command(*command)]

    async def command(self, *command: Argument) -> Any:
        return await self._in_time(lambda: self._connected.execute_command(*command))  # type: ignore[no-untyped-call,unused-ignore]

    async def keys(self, pattern: str) -> AsyncIterator[list[bytes]]:
        cursor = 0
        while True:
            cursor, found = await self.command("SCAN", cursor, "MATCH", pattern, "COUNT", self.config.thresholds.keys_at_once)
            yield found
            if not cursor:
                return

    async def values(self, places: Sequence[Place]) -> list[bytes | None]:
        found: list[bytes | None] = await self.command("MGET", *self._keys(places))
        return found

    async def run(self, name: str, calls: Sequence[Call], options: Sequence[Argument], *, repeatable: bool) -> list[bytes]:
        return await self._evaluated(self._connected, name, calls, options, repeatable) if calls else []

    def _place(self, connection: AbstractConnection) -> str:
        return "server"
