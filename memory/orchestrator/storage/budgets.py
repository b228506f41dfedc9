"""How much one round of maintenance may do: for how long, how fast, and until it is
asked to stop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from memory.orchestrator.storage.lease import LeaseCheck


class BudgetExhausted(Exception):
    """The round's time is over, or it was asked to stop. What it has begun is whole;
    the next round goes on where this one ended.
    """


@dataclass(frozen=True, slots=True)
class Allowance:
    """`budget`: how long a round begins anything new, beyond what it begins with; None
    for as long as there is something to do. `rate`: how many records a second it
    changes at most. `stop`: set from outside, it ends the round as an exhausted budget
    does.
    """

    budget: timedelta | None = None
    rate: float | None = None
    stop: asyncio.Event | None = None

    def over(self, hold: LeaseCheck) -> LeaseCheck:
        """The same `hold` for a round that begins now: it raises `BudgetExhausted` once that has
        had its time, and lets `rate` records a second pass.
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
                return  # looked at, and nothing to do: a round that does nothing else has done nothing
            await hold(count)
            begun = True
            free_at = max(free_at, loop.time()) + (count / self.rate if self.rate else 0.0)

        return hold_within_allowance

    async def _until(self, moment: float) -> None:
        """Wait until then, or until asked to stop."""
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
