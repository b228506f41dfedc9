"""A thread that owns a connection: each call is one hop there and one back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Job:
    """A piece of work and the future that waits for it."""

    __slots__ = ("_future", "_loop", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] = self._loop.create_future()

    async def outcome(self) -> Any:
        return await self._future

    @property
    def abandoned(self) -> bool:
        """Nobody waits any more."""
        return self._future.cancelled()

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Tell the one who waits, from the worker's thread."""
        try:
            self._loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            return  # the loop is gone, and with it everyone who waited

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self._future.done():
            return
        if error is None:
            self._future.set_result(result)
        else:
            self._future.set_exception(error)


class Worker:
    """Runs jobs one after the other in a thread of its own. A job whose caller was cancelled before it began is left out."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work in the thread. Cancelling the wait does not stop work that has begun."""
        job = Job(work)
        self._jobs.put(job)
        result: T = await job.outcome()
        return result

    async def stop(self, last: Callable[[], None]) -> None:
        """Finish what was asked before, then `last`, then end the thread."""
        job = Job(last)
        self._jobs.put(job)
        self._jobs.put(None)
        await asyncio.shield(job.outcome())

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.abandoned:
                continue
            result, error = None, None
            try:
                result = job.work()
            except BaseException as caught:  # noqa: BLE001 - whoever waits gets it
                error = caught
            job.finish(result, error)
            del job, result, error
