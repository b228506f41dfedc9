"""Many writers of one record: those of one process take turns, first come first served; who loses to another process tries again, in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from memory.domain.errors import Contended
from memory.orchestrator.placement import Placement
from memory.ports.collections import Collection
from memory.ports.record import Key

Place: TypeAlias = tuple[asyncio.AbstractEventLoop, str, Key]


class Patience:
    """How long one call goes on trying where others are faster: until the engine's deadline, waiting longer and less evenly each time."""

    SHORTEST, LONGEST = timedelta(milliseconds=2), timedelta(milliseconds=250)

    def __init__(self, placement: Placement, entry_id: str) -> None:
        self._placement = placement
        self._entry_id = entry_id
        self._tried = 0
        self.until = asyncio.get_running_loop().time() + placement.settings.deadline.total_seconds()

    async def wait(self) -> None:
        """Before the next attempt; raises `Contended` where there is no time for one."""
        if asyncio.get_running_loop().time() >= self.until:
            raise self.over()
        most = min(self.LONGEST, self.SHORTEST * 2 ** min(self._tried, 10))
        self._tried += 1
        await asyncio.sleep(most.total_seconds() * self._placement.random_bits(16) / 2**16)

    def over(self) -> Contended:
        """The error for a call whose time is over."""
        return Contended(self._entry_id, self._placement.settings.deadline)


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Turns:
    """A queue for each record that somebody of this process is changing, and none for any other. Event loops never wait for each other."""

    def __init__(self) -> None:
        self._turns: dict[Place, _Turn] = {}

    @asynccontextmanager
    async def take(self, collection: Collection, key: Key, patience: Patience) -> AsyncIterator[None]:
        """Wait for the record's turn and hold it; raises `Contended` where patience ends first."""
        place = (asyncio.get_running_loop(), collection.name, key)
        turn = self._turns.setdefault(place, _Turn())
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
                del self._turns[place]

    def __len__(self) -> int:
        """Of how many records somebody is changing one or waits to."""
        return len(self._turns)
