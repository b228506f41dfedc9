"""A limit of time on every call, above whatever limits the adapter itself keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from memory.adapters.wrappers.base import Call, Wrapper
from memory.domain.errors import StoreTimeout
from memory.ports.store import Health, Store

T = TypeVar("T")

UNLIMITED = ("open", "close", "audit", "vacuum")
"""Migrations take what they take, and so does waiting for calls under way, each of
which ends in time. Upkeep of a whole store is asked for.
"""


class Timeout(Wrapper):
    """A call that takes longer than `seconds` is given up and raises `StoreTimeout`:
    what a write came to is then unknown.

    `check()` says so instead of raising. `open`, `close`, `audit` and `vacuum` are not
    limited.
    """

    def __init__(self, inner: Store, seconds: float) -> None:
        super().__init__(inner)
        self._seconds = seconds

    async def _call(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if call.method in UNLIMITED:
            return await work()
        timer = asyncio.timeout(self._seconds)
        try:
            async with timer:
                return await work()
        except TimeoutError:
            if not timer.expired():
                raise
            raise StoreTimeout(self.name, self._message(call)) from None

    async def check(self) -> Health:
        try:
            return await super().check()
        except StoreTimeout as late:
            return Health(ok=False, detail=str(late))

    def _message(self, call: Call) -> str:
        return f"{call.method} did not end within the {self._seconds:g} s that 'timeout' allows; raise it, or find out what the store is busy with"
