"""Texts that many callers have embedded at the same time go to the embedder as one call: models and services take many for little more than one."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future
from collections.abc import Sequence
from typing import TypeAlias

from memory.ports.embedder import Embedder, Fingerprint

MOST = 64
"""Texts of different callers in one call."""

Asked: TypeAlias = tuple[str, "Future[bytes]"]


class SharedEmbedder:
    """An embedder that is asked once for the single texts that come in one turn of the event loop. Nobody waits for a call that is under way.

    Who is cancelled cuts off nobody else. Where a call failed each text is embedded by itself, so that none fails for another.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._asked: dict[AbstractEventLoop, list[Asked]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def fingerprint(self) -> Fingerprint:
        return await self._embedder.fingerprint()

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if len(texts) != 1:
            return await self._embedder.embed(texts)
        loop = asyncio.get_running_loop()
        asked = self._asked.setdefault(loop, [])
        answer: Future[bytes] = loop.create_future()
        asked.append((texts[0], answer))
        if len(asked) == 1:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                answer.cancel()
                raise
            finally:
                del self._asked[loop]
                if len(asked) > 1:
                    self._begin(asked)
            if len(asked) == 1:
                return await self._embedder.embed(texts)
        return [await answer]

    def _begin(self, asked: Sequence[Asked]) -> None:
        for start in range(0, len(asked), MOST):
            task = asyncio.create_task(self._answer(asked[start : start + MOST]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, asked: Sequence[Asked]) -> None:
        wanted = [(text, answer) for text, answer in asked if not answer.cancelled()]
        if not wanted:
            return
        try:
            vectors = await self._embedder.embed([text for text, _ in wanted])
            answered = list(zip(wanted, vectors, strict=True))
        except asyncio.CancelledError:  # the event loop ends
            for _, answer in wanted:
                answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised to who asked
            if len(wanted) > 1:
                await asyncio.gather(*[self._answer([one]) for one in wanted])
            elif not wanted[0][1].done():
                wanted[0][1].set_exception(error)
            return
        for (_, answer), vector in answered:
            if not answer.done():
                answer.set_result(vector)
