"""A seeded event loop on virtual time: what is ready runs in a random but repeatable
order, and waiting costs nothing.

One seed is one interleaving. Time moves by a little with every callback and jumps to
the next timer when nothing is ready. Owners (the simulated worker processes) can be
frozen: nothing of theirs runs before they thaw, their timers included, like a process
in a long pause.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, ContextVar
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
"""What the clocks show when a run begins."""

TICK = 0.0005
"""The virtual seconds that pass with each callback, at most."""

OWNER: ContextVar[object | None] = ContextVar("owner", default=None)
"""Whose code is running: inherited by tasks, and what `freeze` goes by."""


def mixed(*parts: int) -> int:
    """64 well mixed bits that follow from these numbers."""
    bits = 0x9E3779B97F4A7C15
    for part in parts:
        bits = ((bits ^ (part + 0x632BE59BD9B4E019)) * 0xD1342543DE82EF95 + (bits >> 29)) & 0xFFFFFFFFFFFFFFFF
    return bits ^ bits >> 32


def seeded(*parts: int) -> Random:
    """A generator of its own for whatever these numbers name: drawing from one changes
    nothing for another.
    """
    return Random(mixed(*parts))  # noqa: S311


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set, but the run has not ended."""


class Endless(RuntimeError):
    """The run took more callbacks than any honest one."""


class SimulatedTask(asyncio.Task[T]):
    """A task whose hash is its number, so that sets of tasks are walked in the same
    order in every run.
    """

    def __init__(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], number: int, **options: Any
    ) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module. `most` bounds the callbacks of one run."""

    def __init__(self, seed: int, most: int = 2_000_000) -> None:
        super().__init__()
        self._random = seeded(seed).random
        self._now = 0.0
        self._left = most
        self._numbers = 0
        self._queue: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.Handle]] = []
        self._frozen: dict[object, float] = {}

    def time(self) -> float:
        return self._now

    def freeze(self, owner: object, seconds: float) -> None:
        """Nothing of this owner's runs for so long."""
        self._frozen[owner] = max(self._frozen.get(owner, 0.0), self._now + seconds)

    # -- what asyncio asks of a loop ---------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_task(
        self, coro: Any, *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        self._numbers += 1
        return SimulatedTask(
            coro, self._numbers, loop=self, name=None if name is None else str(name), context=context
        )

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> NoReturn:
        raise RuntimeError("a simulated run has one thread")

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """A simulated run has one thread, which does it at once."""
        future = self.create_future()
        future.set_result(func(*args))
        return future

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """A generator that nobody finished is closed by a task of its own, as in any
        loop; but by this thread, the only one.
        """
        self._asyncgens.discard(agen)  # type: ignore[attr-defined]
        if not self.is_closed():
            self.call_soon(self.create_task, agen.aclose(), context=Context())

    def end(self) -> None:
        """Cancel every task that is left, let it go, and close."""
        self._frozen.clear()
        self._left = 100_000
        left = sorted((t for t in asyncio.all_tasks(self) if not t.done()), key=hash)
        for task in left:
            task.cancel()
        with suppress(Deadlock, Endless):
            if left:
                self.run_until_complete(_ended(left))
        self._queue.clear()
        self._timers.clear()
        self.close()

    def _run_once(self) -> None:
        queue, timers = self._queue, self._timers
        if not queue:
            self._now = max(self._now, self._next_timer())
        while timers and timers[0][0] <= self._now:
            queue.append(heapq.heappop(timers)[2])
        at = int(self._random() * len(queue))
        queue[at], queue[-1] = queue[-1], queue[at]
        handle = queue.pop()
        self._now += self._random() * TICK
        if handle.cancelled() or (self._frozen and self._postponed(handle)):
            return
        self._left -= 1
        if self._left < 0:
            raise Endless("the run does not end")
        handle._run()

    def _next_timer(self) -> float:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise Deadlock("nothing is ready and no timer is set")
        return self._timers[0][0]

    def _postponed(self, handle: asyncio.Handle) -> bool:
        owner = handle._context.get(OWNER)  # type: ignore[attr-defined]
        until = self._frozen.get(owner)
        if until is None:
            return False
        if until <= self._now:
            del self._frozen[owner]
            return False
        self._numbers += 1
        heapq.heappush(self._timers, (until, self._numbers, handle))
        return True


def run(loop: SimulatedLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end, then end every task that is left, and close the loop."""
    try:
        return loop.run_until_complete(main)
    finally:
        loop.end()


async def _ended(tasks: list[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


class SimulatedClock:
    """A worker's clock: virtual time plus its own error, which jumps change. Never
    wrong by more than `most` seconds.

    It remembers the earliest and the latest moment it has shown since `watch`.
    """

    def __init__(self, loop: SimulatedLoop, error: float = 0.0, most: float = float("inf")) -> None:
        self._loop = loop
        self._most = most
        self.error = 0.0
        self.widest = 0.0
        """The largest error it ever had."""
        self.jump(error)
        self._shown: list[datetime] = []

    def __call__(self) -> datetime:
        moment = START + timedelta(seconds=self._loop.time() + self.error)
        self._shown.append(moment)
        return moment

    def watch(self) -> None:
        self._shown.clear()

    def shown(self) -> tuple[datetime, datetime] | None:
        """The earliest and the latest moment since `watch`; None where nobody looked."""
        return (min(self._shown), max(self._shown)) if self._shown else None

    def jump(self, seconds: float) -> None:
        self.error = max(-self._most, min(self._most, self.error + seconds))
        self.widest = max(self.widest, abs(self.error))
