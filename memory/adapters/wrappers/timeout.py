"""Time limit for every call, in addition to the adapter's own limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from memory.adapters.wrappers.base import Call, Wrapper
from memory.domain.errors import StoreTimeout
from memory.ports.store import Health, Store

T = TypeVar("T")

UNLIMITED = ("open", "close", "audit", "vacuum")
"""Calls without a limit.

Migrations may take long. `close` waits for running calls, which have limits themselves.
Maintenance of a whole store is requested explicitly.
"""


class Timeout(Wrapper):
    """Cancels a call after `seconds` and raises `StoreTimeout`.

    The result of a cancelled write is unknown. `check()` returns an unhealthy result
    instead of raising. `open`, `close`, `audit` and `vacuum` have no limit.
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
        return (
            f"{call.method} did not end within the {self._seconds:g} s that 'timeout' allows; raise"
            " 'timeout', or find out why the store is slow"
        )
