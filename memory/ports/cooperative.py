"""Iterates over many items without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

AT_A_TIME = 4
"""The items between two pauses. The largest entries take some 5 ms each."""


async def iterate_cooperatively(things: Iterable[T], at_a_time: int = AT_A_TIME) -> AsyncIterator[T]:
    """Yield the items in order, and let other tasks run after every few.

    There is no pause after the last item. The pauses depend on numbers of items, not on
    time, so the same run repeats the same way. State may change during a pause, and the
    caller must protect it where needed.
    """
    for number, thing in enumerate(things):
        if number and number % at_a_time == 0:
            await asyncio.sleep(0)
        yield thing
