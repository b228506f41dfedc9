"""Store that may be unreachable at startup; a later call opens it.

One unreachable store must not keep a memory of several stores from starting. Until the
store answers, calls to it fail as if it had gone down while open. Until then its
capabilities are the claimed ones, not the detected ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from memory.adapters.wrappers.base import Call, Wrapper
from memory.domain.errors import ConfigError, NotOpen, StoreUnavailable
from memory.ports.collections import Collection
from memory.ports.store import Health, Store

T = TypeVar("T")

AGAIN_AFTER = 5.0
"""Seconds between a failed attempt to open and the next one.

Calls in between fail at once.
"""


class DeferredOpen(Wrapper):
    """Opens even while the store is unreachable (`StoreUnavailable`).

    Every other failure to open is raised.

    `on_arrival` is awaited after a late opening, before the store is used. If it
    raises, the store stays unavailable. If the detected capabilities differ from the
    claimed ones, calls made on the claimed ones raise `StoreUnavailable` and can be
    retried.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.on_arrival: Callable[[], Awaitable[None]] | None = None
        self._collections: Sequence[Collection] | None = None
        self._away: StoreUnavailable | ConfigError | None = None
        self._next_attempt = 0.0
        self._attempting = asyncio.Lock()
        self._opening: asyncio.Task[object] | None = None
        """Task that opens the store late: `on_arrival` may use the store before others
        do.
        """

    @property
    def away(self) -> str:
        """Reason why the store could not be opened yet; empty while it is open."""
        return "" if self._away is None else str(self._away)

    async def open(self, collections: Sequence[Collection]) -> None:
        async with self._attempting:
            if self._collections is not None and self._away is None:
                return
            try:
                await self.inner.open(collections)
                self._away = None
            except StoreUnavailable as error:
                self._note_failure(error)
            self._collections = collections

    async def close(self) -> None:
        async with self._attempting:
            self._collections, self._away = None, None
            await self.inner.close()
            self._attempting = asyncio.Lock()  # a new lock, because another event loop may open it again

    async def check(self) -> Health:
        try:
            await self._ensure_open()
        except StoreUnavailable as error:
            if self._away is not None:
                return Health(ok=False, detail=str(error.__cause__ or self._away))
        return await self.inner.check()

    async def _call(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if self._away is not None and asyncio.current_task() is not self._opening:
            claimed = self.inner.capabilities
            await self._ensure_open()
            if self.inner.capabilities != claimed:
                raise StoreUnavailable(
                    self.name, "was opened just now with other capabilities than claimed; try again"
                )
        return await work()

    async def _ensure_open(self) -> None:
        """Open the store if it is not open yet. Raise if that fails."""
        async with self._attempting:
            if self._collections is None:
                raise NotOpen(f"store '{self.name}'")
            if self._away is None:
                return
            left = self._next_attempt - asyncio.get_running_loop().time()
            if left > 0:
                raise StoreUnavailable(
                    self.name,
                    f"could not be opened ({_problem(self._away)}); the next attempt is possible in"
                    f" {left:.0f} s",
                )
            self._opening = asyncio.current_task()
            try:
                await self.inner.open(self._collections)
                if self.on_arrival is not None:
                    await self.on_arrival()
            except (StoreUnavailable, ConfigError) as error:
                await self.inner.close()
                self._note_failure(error)
                raise StoreUnavailable(self.name, f"could not be opened ({_problem(error)})") from error
            except BaseException:
                await self.inner.close()
                raise
            finally:
                self._opening = None
            self._away = None

    def _note_failure(self, error: StoreUnavailable | ConfigError) -> None:
        self._away = error
        self._next_attempt = asyncio.get_running_loop().time() + AGAIN_AFTER


def _problem(error: StoreUnavailable | ConfigError) -> str:
    return error.problem if isinstance(error, StoreUnavailable) else str(error)
