"""Turns at a point: tasks of one store that write to the same point do so one after the
other, and do not make each other try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyLocks:
    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def at(self, point: str) -> AsyncIterator[None]:
        """Hold the point's turn. Who needs several takes them in one order, the same as
        everybody else.
        """
        lock, waiting = self._locks.get(point, (asyncio.Lock(), 0))
        self._locks[point] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._locks[point]
            if waiting == 1:
                del self._locks[point]
            else:
                self._locks[point] = (lock, waiting - 1)
