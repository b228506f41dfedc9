"""Going through many things without holding the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

AT_A_TIME = 4
"""Things between which nobody else has a turn: the largest entries take some 5 ms each."""


async def iterate_cooperatively(things: Iterable[T], at_a_time: int = AT_A_TIME) -> AsyncIterator[T]:
    """The things, in order; other tasks have a turn after every few, unless that was
    all. By number, not by time: the same run goes the same way again. What is asked for
    meanwhile may have changed in between: what must not is to be kept from changing.
    """
    for number, thing in enumerate(things):
        if number and number % at_a_time == 0:
            await asyncio.sleep(0)
        yield thing
