"""A worker that runs maintenance in rounds until it is stopped.

It runs in its own process, or in yours.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import timedelta

from memory.domain.errors import ForkedProcess
from memory.domain.maintenance_reports import SweepReport
from memory.facade.memory import Memory
from memory.facade.runtime.access import access_of, engine_of
from memory.orchestrator.storage.budgets import Allowance
from memory.orchestrator.storage.lease import LOOKS

log = logging.getLogger(__name__)

FIRST_PAUSE = timedelta(seconds=1)


class Worker:
    """Runs maintenance in rounds.

    Any number of workers may run, on any number of machines. Only one works at a time,
    under a lease. If it dies, another takes over when the lease ends.

    If a round fails or a store does not answer, the pause before the next one doubles,
    from one second up to `every`.

    Args:
        memory: An open memory. Set its `durations.sweep_every` to zero, so that it does
            not run maintenance itself.
        every: The time between rounds. A round that leaves work is followed by another
            at once.
        budget: The longest time of a round.
        rate: The maximum number of records per second.
        told: Called with the report of each round.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        every: timedelta,
        budget: timedelta,
        rate: float | None = None,
        told: Callable[[SweepReport], object] | None = None,
    ) -> None:
        self._memory = memory
        self._every = every
        self._stop = asyncio.Event()
        self._allowance = Allowance(budget, rate, self._stop)
        self._told = told

    def stop(self) -> None:
        """Stop after the current records, and release the lease.

        Call it on the worker's event loop.
        """
        self._stop.set()

    async def run(self) -> None:
        """Run until `stop` is called."""
        access_of(self._memory).check_process()
        rebuilding = asyncio.create_task(self._rebuild_words(), name="memory-words")
        try:
            await self._rounds()
        finally:
            rebuilding.cancel()
            await asyncio.wait([rebuilding])

    async def _rounds(self) -> None:
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            report = await self._round()
            if report is None or report.waiting:
                await self._rest(min(pause, self._every))
                pause = min(2 * pause, self._every)
            else:
                await self._rest(self._until_next(report))
                pause = FIRST_PAUSE

    async def _rebuild_words(self) -> None:
        try:
            await engine_of(self._memory).word_indexes.rebuild_outdated()
        except Exception as error:  # noqa: BLE001 - the next start tries again after any error
            log.warning("word indexes were not rebuilt: %s", error)

    async def _round(self) -> SweepReport | None:
        try:
            report = await engine_of(self._memory).maintain(self._allowance)
        except ForkedProcess:
            raise
        except Exception as error:  # noqa: BLE001 - the next round tries again after any error
            log.warning("maintenance failed and is tried again: %s", error)
            return None
        if self._told is not None:
            self._told(report)
        return report

    def _until_next(self, report: SweepReport) -> timedelta:
        if report.more:
            return timedelta(0)
        if (
            not report.ran
        ):  # another worker is active; if it dies, this one takes over within the length of a lease
            return min(self._memory.config.durations.lease / LOOKS, self._every)
        return self._every

    async def _rest(self, wait: timedelta) -> None:
        """Wait, with a random variation, so that workers do not run in step."""
        seconds = wait.total_seconds() * random.uniform(0.9, 1.1)  # noqa: S311
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass
