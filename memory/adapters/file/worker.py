"""Threads of the store, which run one job at a time, off the event loop.

Writes that wait at the same time share a commit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from memory.ports.writes import Outcome, Write

T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """A waiting call of `apply`, with its deadline for the lock and its future."""

    writes: Sequence[Write]
    together: bool
    deadline: float
    answer: Future[list[Outcome]] = field(default_factory=Future)


class Worker:
    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"memory-{name}")

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work in the thread. Cancelling does not stop running work."""
        return await asyncio.wrap_future(self._pool.submit(work))

    async def stop(self) -> None:
        """Finish earlier jobs and end the thread."""
        await asyncio.to_thread(self._pool.shutdown)


class WritingWorker(Worker):
    def __init__(self, name: str, write: Callable[[list[Call]], None], most: int) -> None:
        """Create a worker; `write` answers every call that it gets, at most `most`."""
        super().__init__(name)
        self._write, self._most = write, most
        self._waiting: deque[Call] = deque()

    async def apply(self, call: Call) -> list[Outcome]:
        self._waiting.append(call)
        self._pool.submit(self._some)
        return await asyncio.wrap_future(call.answer)

    def _some(self) -> None:
        calls: list[Call] = []
        while self._waiting and len(calls) < self._most:
            call = self._waiting.popleft()
            if call.answer.set_running_or_notify_cancel():
                calls.append(call)
        if calls:
            self._write(calls)
