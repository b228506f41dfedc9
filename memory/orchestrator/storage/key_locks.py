"""Locks and retries for several writers of one record.

Writers of one process take turns, first come first served. A writer that loses to
another process tries again until its deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from memory.domain.errors import TooMuchContention
from memory.orchestrator.storage.placement import Placement
from memory.ports.collections import Collection
from memory.ports.record import Key

Place: TypeAlias = tuple[asyncio.AbstractEventLoop, str, Key]


class RetryDeadline:
    """The deadline of one call that retries because other writers were faster.

    Each wait is random. Its maximum doubles from attempt to attempt, up to `LONGEST`.
    """

    SHORTEST, LONGEST = timedelta(milliseconds=2), timedelta(milliseconds=250)

    def __init__(self, placement: Placement, entry_id: str) -> None:
        self._placement = placement
        self._entry_id = entry_id
        self._tried = 0
        self.until = asyncio.get_running_loop().time() + placement.settings.deadline.total_seconds()

    async def wait(self) -> None:
        """Wait before the next attempt.

        Raises:
            TooMuchContention: No time is left for another attempt.
        """
        if asyncio.get_running_loop().time() >= self.until:
            raise self.over()
        most = min(self.LONGEST, self.SHORTEST * 2 ** min(self._tried, 10))
        self._tried += 1
        await asyncio.sleep(most.total_seconds() * self._placement.random_bits(16) / 2**16)

    def over(self) -> TooMuchContention:
        """Return the error for a call whose time is over."""
        return TooMuchContention(self._entry_id, self._placement.settings.deadline)


@dataclass(slots=True)
class _KeyLock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class KeyLocks:
    """A lock for each record that this process is changing, first come first served.

    Event loops never wait for each other.
    """

    def __init__(self) -> None:
        self._key_locks: dict[Place, _KeyLock] = {}

    @asynccontextmanager
    async def take(self, collection: Collection, key: Key, patience: RetryDeadline) -> AsyncIterator[None]:
        """Wait for the record's turn, and hold the lock in the context.

        Raises:
            TooMuchContention: The deadline ended before the lock was free.
        """
        place = (asyncio.get_running_loop(), collection.name, key)
        turn = self._key_locks.setdefault(place, _KeyLock())
        turn.users += 1
        try:
            try:
                async with asyncio.timeout_at(patience.until):
                    await turn.lock.acquire()
            except TimeoutError:
                raise patience.over() from None
            try:
                yield
            finally:
                turn.lock.release()
        finally:
            turn.users -= 1
            if not turn.users:
                del self._key_locks[place]

    def __len__(self) -> int:
        """Return how many records have a holder or a waiter."""
        return len(self._key_locks)


class CallOrder:
    """Runs writes of the same thing one after the other, in the order of the calls.

    The order covers the calls of this process.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def take(self, placement: Placement, names: Iterable[Hashable]) -> AsyncIterator[None]:
        """Wait until all earlier calls for these names have ended.

        All places in the queues are taken before the first wait, so calls that name
        several things cannot wait for each other.

        Raises:
            TooMuchContention: An earlier call did not end before the engine's deadline.
        """
        loop = asyncio.get_running_loop()
        keys = [(loop, name) for name in dict.fromkeys(names)]
        before = {self._last[key] for key in keys if key in self._last}
        mine: asyncio.Future[None] = loop.create_future()
        self._last |= dict.fromkeys(keys, mine)
        try:
            if before:
                patience = RetryDeadline(placement, ", ".join(str(name) for _, name in keys[:3]))
                _, late = await asyncio.wait(before, timeout=patience.until - loop.time())
                if late:
                    raise patience.over()
            yield
        finally:
            self._end(keys, mine, {one for one in before if not one.done()})

    def _end(
        self,
        keys: list[tuple[asyncio.AbstractEventLoop, Hashable]],
        mine: asyncio.Future[None],
        before: set[asyncio.Future[None]],
    ) -> None:
        """Let the next call begin once all earlier calls have ended.

        This call may have stopped waiting for some of them.
        """
        if before:
            one = before.pop()
            one.add_done_callback(
                lambda _: self._end(keys, mine, {other for other in before if not other.done()})
            )
            return
        mine.set_result(None)
        for key in keys:
            if self._last.get(key) is mine:
                del self._last[key]
