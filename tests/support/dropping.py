"""A way to a server that loses connections when it is told to: now, or in the place of
an answer that is on its way back.
"""

from __future__ import annotations

import asyncio
import contextlib

from tests.support.relaying import Relay


class Dropping(Relay):
    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._answers_left: int | None = None
        self.dropped = 0

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
        self._begin(self._pass(reader, downstream, False), self._pass(upstream, writer, True))

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
