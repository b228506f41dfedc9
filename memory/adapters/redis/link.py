"""The way to the server, whichever kind it is: time limits, scripts and which run of a server answers."""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from redis import exceptions as driver
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from memory.adapters.redis.config import RedisConfig
from memory.adapters.redis.names import Place, record_key, tagged
from memory.adapters.redis.scripts import Argument, Call, frames, script

T = TypeVar("T")


class Link(ABC):
    """Connected to a server or cluster. Errors are the driver's.

    Every round trip ends within `timeout` seconds, waiting for one of the `connections` included. The driver's own time limits are off but for
    connecting: one clock for the whole is simpler and quicker than one for each read. A call that is cut off closes its connection, so that no
    late answer is taken for another's.
    Writes are never sent twice; reads are, once, when the connection was lost (servers close idle ones).
    """

    one_server: bool

    def __init__(self, config: RedisConfig) -> None:
        self.config = config
        self._room = asyncio.Semaphore(config.connections)
        self.runs: dict[str, str] = {}
        """The run id of each server as last connected to. A restart breaks every connection, so no answer of a new run is taken for the old one's."""

    @property
    def epoch(self) -> str:
        return "+".join(sorted(self.runs.values()))

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def servers(self, *command: str) -> list[Any]:
        """The answer of each server that takes writes."""

    @abstractmethod
    async def command(self, *command: Argument) -> Any:
        """One command on one key."""

    @abstractmethod
    def keys(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """The keys of this glob pattern, some at a time: each that stands there all the while, some perhaps twice."""

    @abstractmethod
    async def values(self, places: Sequence[Place]) -> list[bytes | None]:
        """What stands in these places."""

    @abstractmethod
    async def run(self, name: str, calls: Sequence[Call], options: Sequence[Argument], *, repeatable: bool) -> list[bytes]:
        """The answers of a script to these calls, carried out in order within each bucket; on one server in order and all in one step."""

    # -- shared -------------------------------------------------------------------------------------------------------

    async def _in_time(self, work: Callable[[], Awaitable[T]], repeatable: bool = True) -> T:
        async with asyncio.timeout(self.config.timeout), self._room:
            try:
                return await work()
            except driver.ConnectionError as error:
                if not repeatable or isinstance(error, driver.AuthenticationError | driver.AuthorizationError | driver.BusyLoadingError):
                    raise
            return await work()

    async def _evaluated(self, client: Any, name: str, calls: Sequence[Call], options: Sequence[Argument], repeatable: bool) -> list[bytes]:
        known = script(name)
        arguments: list[Argument] = [1, tagged(self.config.prefix, calls[0].bucket), self.config.prefix, *options]
        for call in calls:
            arguments += call.arguments

        async def send() -> Any:
            try:
                return await client.execute_command("EVALSHA", known.digest, *arguments)
            except driver.NoScriptError:
                return await client.execute_command("EVAL", known.text, *arguments)

        return frames(await self._in_time(send, repeatable))

    def _keys(self, places: Sequence[Place]) -> list[bytes]:
        return [record_key(self.config.prefix, place) for place in places]

    async def _introduce(self, connection: AbstractConnection) -> None:
        """On every new connection: learn which run of the server it leads to."""
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        answer = await connection.read_response(disable_decoding=True)
        lines = dict(line.partition(b":")[::2] for line in answer.replace(b"\r", b"").split(b"\n") if b":" in line)
        self.runs[self._place(connection)] = lines.get(b"run_id", b"").decode() or secrets.token_hex(20)

    @abstractmethod
    def _place(self, connection: AbstractConnection) -> str: ...

    def _options(self) -> dict[str, Any]:
        """What every connection is made with. The driver retries nothing: a write may have been applied."""
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
