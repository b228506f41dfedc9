"""A way to a server that passes bytes on."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Self


class Relay(ABC):
    """Listens on a free port of the loopback interface (`port`) and passes bytes on to
    a server's port.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def drop(self) -> None:
        """Every connection is gone, as after a restart or an idle hour behind a
        firewall.
        """
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    def _begin(self, *ways: Coroutine[Any, Any, None]) -> None:
        for way in ways:
            self._tasks.add(asyncio.ensure_future(way))

    @abstractmethod
    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect to the server, and begin to pass on what comes either way."""
