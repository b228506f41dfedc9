"""A way to a server that loses connections when it is told to: now, or in the place of
an answer that is on its way back.
"""

from __future__ import annotations

import asyncio
import contextlib


class Dropping:
    """Listens on a free port of the loopback interface (`port`) and passes bytes on to
    a server's port.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers_left: int | None = None
        self.port = 0
        self.dropped = 0

    async def __aenter__(self) -> Dropping:
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

    def drop_answer(self, number: int = 0) -> None:
        """Pass on so many more pieces of answers; the next one is lost, and the
        connections with it.
        """
        self._answers_left = number

    def hold_on(self) -> None:
        """Lose nothing that was still to be lost."""
        self._answers_left = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, downstream = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, downstream}
        for task in (self._pass(reader, downstream, False), self._pass(upstream, writer, True)):
            self._tasks.add(asyncio.ensure_future(task))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if answers and self._answers_left is not None:
                    if self._answers_left == 0:
                        self._answers_left = None
                        self.dropped += 1
                        self.drop()
                        return
                    self._answers_left -= 1
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
