"""Limits of one round of maintenance: its duration, its rate, and a stop event."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from memory.orchestrator.storage.lease import LeaseCheck


class BudgetExhausted(Exception):
    """The round's time is over, or its stop event was set.

    Work that has begun is complete. The next round continues where this one ended.
    """


@dataclass(frozen=True, slots=True)
class Allowance:
    """How long and how fast one round of maintenance may work.

    `budget` is the time in which a round may begin new work; every round does its first
    piece of work even if the time is over. None means no limit. `rate` is the maximum
    number of records that the round changes per second. `stop` ends the round from
    outside, as an exhausted budget does.
    """

    budget: timedelta | None = None
    rate: float | None = None
    stop: asyncio.Event | None = None

    def over(self, hold: LeaseCheck) -> LeaseCheck:
        """Wrap `hold` for a round that begins now.

        The result raises `BudgetExhausted` once the round's time is over, and lets
        `rate` records a second pass.
        """
        loop = asyncio.get_running_loop()
        ends = None if self.budget is None else loop.time() + self.budget.total_seconds()
        free_at, begun = loop.time(), False

        async def hold_within_allowance(count: int = 1) -> None:
            nonlocal free_at, begun
            await self._until(free_at if count else 0.0)
            over = (
                begun and ends is not None and loop.time() >= ends
            )  # each round does something, however slow the stores are
            if over or (self.stop is not None and self.stop.is_set()):
                raise BudgetExhausted
            if not count:
                return  # only looked at: a round that changes nothing has not begun
            await hold(count)
            begun = True
            free_at = max(free_at, loop.time()) + (count / self.rate if self.rate else 0.0)

        return hold_within_allowance

    async def _until(self, moment: float) -> None:
        """Wait until that moment, or until the stop event is set."""
        if (wait := moment - asyncio.get_running_loop().time()) <= 0:
            return
        if self.stop is None:
            await asyncio.sleep(wait)
            return
        try:
            async with asyncio.timeout(wait):
                await self.stop.wait()
        except TimeoutError:
            pass


UNLIMITED = Allowance()
