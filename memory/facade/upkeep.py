"""Maintenance in the background while a memory is open: a first sweep soon after opening, then one every `sweep_every`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta

from memory.orchestrator.maintenance import Maintenance

log = logging.getLogger(__name__)

FIRST_AFTER = timedelta(seconds=30)


class Upkeep:
    """Runs sweeps until stopped. A sweep that fails is logged and tried again at the next turn; of several processes one sweeps at a time."""

    def __init__(self, maintenance: Maintenance, every: timedelta) -> None:
        self._maintenance = maintenance
        self._every = every
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, unless `sweep_every` is zero: then maintenance runs only when asked for."""
        if self._every > timedelta(0) and self._task is None:
            self._task = asyncio.create_task(self._run(), name="memory-upkeep")

    async def stop(self) -> None:
        """End, interrupting a sweep under way: every step of it may be left in the middle."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        await asyncio.sleep(min(FIRST_AFTER, self._every).total_seconds())
        while True:
            try:
                report = await self._maintenance.sweep()
                log.debug("maintenance: %s", report)
            except Exception as error:  # noqa: BLE001 - the next turn tries again, whatever it was
                log.warning("maintenance failed and is tried again in %s: %s", self._every, error)
            await asyncio.sleep(self._every.total_seconds())
