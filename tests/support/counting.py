"""A way to a server that counts round trips: requests and the answers to them."""

from __future__ import annotations

import asyncio
import contextlib

_WATCHING = (b"hello\x00", b"ismaster\x00", b"helloOk\x00")
"""What MongoDB's driver asks by itself, on connections of its own, whatever else goes
on.
"""


class Counting:
    """Listens on a free port of the loopback interface (`port`) and passes bytes on to
    a server's port.

    A trip is whatever goes to the server and the answer that comes back: `trips` counts
    answers that follow a request. Statements sent together are one trip, as they take
    the time of one.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.trips = 0

    async def __aenter__(self) -> Counting:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {writer, downstream}
        asked = asyncio.Event()
        for task in (self._requests(reader, downstream, asked), self._answers(upstream, writer, asked)):
            self._tasks.add(asyncio.ensure_future(task))

    async def _requests(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, asked: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(2**20):
                if not any(word in data for word in _WATCHING):
                    asked.set()
                sink.write(data)
                await sink.drain()
        sink.transport.abort()

    async def _answers(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, asked: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(2**20):
                if asked.is_set():
                    asked.clear()
                    self.trips += 1
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
