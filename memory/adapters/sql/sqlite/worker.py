"""A thread that owns a connection: each call is one hop there and one back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


class Job:
    """A piece of work and the future that waits for it."""

    __slots__ = ("_future", "_loop", "sharing", "work")

    def __init__(self, work: Callable[[], Any], sharing: bool = False) -> None:
        self.work = work
        self.sharing = sharing
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] = self._loop.create_future()

    async def outcome(self) -> Any:
        return await self._future

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits any more."""
        return self._future.cancelled()

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Pass the result to the waiting caller, from the worker's thread."""
        try:
            self._loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            return  # the loop is gone, and so are all that waited

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self._future.done():
            return
        if error is None:
            self._future.set_result(result)
        else:
            self._future.set_exception(error)


Shared: TypeAlias = Callable[[Sequence[Callable[[], Any]]], Sequence[tuple[Any, BaseException | None]]]
"""Does several pieces of work at once: a result or an error for each."""


class Worker:
    """Runs jobs one after the other in a thread of its own.

    It skips a job whose caller was cancelled before the job began. With `shared`, jobs
    that wait at the same time go to it together, at most `most`.
    """

    def __init__(self, name: str, shared: Shared | None = None, most: int = 1) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._shared, self._most = shared, most
        self.at_rest = threading.Lock()
        """Held during a job: its next holder finds the thread between two jobs."""
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], T], *, sharing: bool = False) -> T:
        """Do the work in the thread.

        Cancelling the wait does not stop work that has begun.
        """
        job = Job(work, sharing and self._shared is not None)
        self._jobs.put(job)
        result: T = await job.outcome()
        return result

    async def stop(self, last: Callable[[], None]) -> None:
        """Finish the accepted jobs, then `last`, then end the thread."""
        job = Job(last)
        self._jobs.put(job)
        self._jobs.put(None)
        await asyncio.shield(job.outcome())

    def _serve(self) -> None:
        job = self._jobs.get()
        while job is not None:
            group = [job]
            following: Job | NoJob | None = NOTHING
            while group[-1].sharing and len(group) < self._most and not self._jobs.empty():
                following = self._jobs.get()
                if following is None or not following.sharing:
                    break
                group.append(following)
                following = NOTHING
            with self.at_rest:
                self._do([j for j in group if not j.is_abandoned])
            del group, job
            job = self._jobs.get() if isinstance(following, NoJob) else following

    def _do(self, group: Sequence[Job]) -> None:
        if self._shared is not None and len(group) > 1:
            for job, (result, error) in zip(group, self._shared([j.work for j in group]), strict=True):
                job.finish(result, error)
            return
        for job in group:
            job.finish(*attempt(job.work))


def attempt(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return the result or the error of the work."""
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - whoever waits gets it
        return None, error


def run_synchronously(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, and return its result.

    Where it yields to others it goes on at once, for it has a thread of its own.
    """
    try:
        while work.send(None) is None:
            pass
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AssertionError("it waits for something, and there is no event loop in this thread")


class NoJob:
    """There is no job, not even the end."""


NOTHING = NoJob()
