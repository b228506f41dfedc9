"""A worker: maintenance round after round, in a process of its own or in yours, until
it is asked to stop.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import timedelta

from memory.domain.errors import ForkedProcess
from memory.facade.memory import Memory
from memory.orchestrator.maintenance.sweeps import SweepReport
from memory.orchestrator.storage.budgets import Allowance
from memory.orchestrator.storage.lease import LOOKS

log = logging.getLogger(__name__)

FIRST_PAUSE = timedelta(seconds=1)


class Worker:
    """Does maintenance in rounds of at most `budget`, one every `every`, and at once
    again where a round left something to do; at most `rate` records a second.

    As many workers as wanted may run, on as many machines: of those that have something
    to do one does it, under a lease, and the others try again when the lease of one
    that died has run out. Where a round fails or a store does not answer, the pause
    before the next doubles, from a second up to `every`. The memory is an open one,
    best with `durations.sweep_every` of zero, so that it does not do maintenance
    beside.
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
        """Ask it to end: what it has begun with some records it ends, and gives the
        lease back. To be called on its event loop.
        """
        self._stop.set()

    async def run(self) -> None:
        """Until stopped."""
        self._memory._access.check_process()
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
            await self._memory._engine.word_indexes.rebuild_outdated()
        except Exception as error:  # noqa: BLE001 - the next start tries again, whatever it was
            log.warning("word indexes were not rebuilt: %s", error)

    async def _round(self) -> SweepReport | None:
        try:
            report = await self._memory._engine.maintain(self._allowance)
        except ForkedProcess:
            raise
        except Exception as error:  # noqa: BLE001 - the next round tries again, whatever it was
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
        ):  # another worker is at it: should it die, this one takes over within the length of a lease
            return min(self._memory.config.durations.lease / LOOKS, self._every)
        return self._every

    async def _rest(self, wait: timedelta) -> None:
        """Workers that were started together do not go on together."""
        seconds = wait.total_seconds() * random.uniform(0.9, 1.1)  # noqa: S311
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass
