"""Locks per point, so that tasks of one store do not make each other retry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyLocks:
    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def at(self, point: str) -> AsyncIterator[None]:
        """Hold the lock of a point.

        To hold several, all tasks must take them in one order.
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
