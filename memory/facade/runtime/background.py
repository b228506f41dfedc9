"""Background tasks of an open memory.

They run sweeps and the rules for writes, rebuild word indexes, and embed new messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from datetime import timedelta

from memory.orchestrator.conversations.log.passages import Passages
from memory.orchestrator.maintenance.sweeps import Maintenance
from memory.orchestrator.storage.word_indexes import WordIndexes
from memory.orchestrator.tiering.after_writes import AfterWrites

log = logging.getLogger(__name__)

FIRST_AFTER = timedelta(seconds=30)
LINGER = timedelta(milliseconds=100)
"""The delay before rules are evaluated for a write, together with later writes."""
QUIET, AT_LATEST = timedelta(seconds=1), timedelta(seconds=5)
"""The quiet time before new messages are embedded, and the longest delay."""


class BackgroundTask(ABC):
    """A task that runs until it is stopped."""

    def __init__(self, name: str, every: timedelta) -> None:
        self._name = name
        self._every = every
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, unless `sweep_every` is zero.

        With zero, maintenance only runs on request.
        """
        if self._every > timedelta(0) and self._task is None:
            self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Stop the task at once. Each of its steps may be interrupted."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @abstractmethod
    async def _run(self) -> None: ...


class SweepTask(BackgroundTask):
    """Runs a sweep soon after opening, then one every `sweep_every`.

    A failed sweep is logged, and the next one tries again. Of several processes, only
    one sweeps at a time.
    """

    def __init__(self, maintenance: Maintenance, every: timedelta) -> None:
        super().__init__("memory-upkeep", every)
        self._maintenance = maintenance

    async def _run(self) -> None:
        await asyncio.sleep(min(FIRST_AFTER, self._every).total_seconds())
        while True:
            try:
                report = await self._maintenance.sweep()
                log.debug("maintenance: %s", report)
            except Exception as error:  # noqa: BLE001 - the next turn tries again after any error
                log.warning("maintenance failed and is tried again in %s: %s", self._every, error)
            await asyncio.sleep(self._every.total_seconds())


class WordIndexTask(BackgroundTask):
    """Rebuilds word indexes of an earlier version, once, soon after opening."""

    def __init__(self, word_indexes: WordIndexes, every: timedelta) -> None:
        super().__init__("memory-words", every)
        self._word_indexes = word_indexes

    async def _run(self) -> None:
        await asyncio.sleep(min(FIRST_AFTER, self._every).total_seconds())
        try:
            await self._word_indexes.rebuild_outdated()
        except Exception as error:  # noqa: BLE001 - the next opening tries again after any error
            log.warning("word indexes were not rebuilt: %s", error)


class PassageTask(BackgroundTask):
    """Embeds new messages of this process after a quiet time; see `Passages`.

    After a failure, the next turn or a sweep tries again.
    """

    def __init__(self, passages: Passages, every: timedelta) -> None:
        super().__init__("memory-passages", every)
        self._passages = passages

    async def _run(self) -> None:
        said = asyncio.Event()
        self._passages.on_waiting = said.set
        while True:
            await said.wait()
            for _ in range(AT_LATEST // QUIET):
                said.clear()
                await asyncio.sleep(QUIET.total_seconds())
                if not said.is_set():
                    break
            said.clear()
            try:
                await self._passages.catch_up()
            except Exception as error:  # noqa: BLE001 - the next turn tries again after any error
                log.warning("the latest messages are not found by meaning yet: %s", error)


class RuleTask(BackgroundTask):
    """Evaluates the rules for writes; see `AfterWrites`."""

    def __init__(self, after_writes: AfterWrites, every: timedelta) -> None:
        super().__init__("memory-rules", every)
        self._after_writes = after_writes
        self._written = asyncio.Event()

    def start(self) -> None:
        super().start()
        self._after_writes.on_waiting = None if self._task is None else self._written.set

    async def stop(self) -> None:
        self._after_writes.on_waiting = None
        await super().stop()

    async def _run(self) -> None:
        while True:
            await self._written.wait()
            await asyncio.sleep(LINGER.total_seconds())
            self._written.clear()
            try:
                await self._after_writes.catch_up()
            except Exception as error:  # noqa: BLE001 - a sweep evaluates the rules after any error
                log.warning("rules for writes wait for the next sweep: %s", error)
