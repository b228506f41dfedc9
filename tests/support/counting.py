"""A way to a server that counts round trips: requests and the answers to them."""

from __future__ import annotations

import asyncio
import contextlib

from tests.support.relaying import Relay

_WATCHING = (b"hello\x00", b"ismaster\x00", b"helloOk\x00")
"""What MongoDB's driver asks by itself, on connections of its own, whatever else goes
on.
"""


class Counting(Relay):
    """A trip is whatever goes to the server and the answer that comes back: `trips`
    counts answers that follow a request. Statements sent together are one trip, as they
    take the time of one.
    """

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.trips = 0

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {writer, downstream}
        asked = asyncio.Event()
        self._begin(self._requests(reader, downstream, asked), self._answers(upstream, writer, asked))

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
