"""To wait for what happens beside a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    deadline = time.monotonic() + 60
    while not await holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)
