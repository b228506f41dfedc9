"""Turns: calls of this process that met each other wait for one another instead of meeting again.

Nobody waits as long as nobody collides: MongoDB carries out side by side what touches different documents. A call that collided asks for the turn of
the places it writes in, and while somebody has that, whoever comes there asks first. So of many calls about the same records one is under way at a
time, in the order they came, and each is sent about once. Processes know nothing of each other's turns: between them it is a matter of trying again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType

from memory.ports.writes import RaiseGeneration, Write

_ID_LENGTH = 36


class Turns:
    """The turns of one store. Once it is `closing` nobody gets one any more."""

    def __init__(self, places: int) -> None:
        self.locks = [asyncio.Lock() for _ in range(places)]
        self.closing = False

    def of(self, writes: Iterable[Write], patience: float) -> Turn:
        """The turn of what these writes are about, to be waited for so many seconds in all."""
        return Turn(
            self,
            sorted({_place(w.key.id) % len(self.locks) for w in writes if not isinstance(w, RaiseGeneration)}),
            asyncio.get_running_loop().time() + patience,
        )


class Turn:
    """One call's: taken when it has to be, and given back when the call ends, however it does."""

    def __init__(self, turns: Turns, places: Sequence[int], until: float) -> None:
        self._turns, self._until = turns, until
        self._wanted = [turns.locks[place] for place in places]
        self._held: list[asyncio.Lock] = []

    @property
    def is_late(self) -> bool:
        """Whether the call has taken as long as it may."""
        return self._turns.closing or asyncio.get_running_loop().time() >= self._until

    async def __aenter__(self) -> Turn:
        if any(lock.locked() for lock in self._wanted):
            await self.take()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._held:
            self._held.pop().release()

    async def take(self) -> None:
        """Wait until nobody else has it, or the call is late. Locks are taken in one order by all, so nobody waits for who waits for him."""
        if self._held:
            return
        try:
            async with asyncio.timeout_at(self._until):
                for lock in self._wanted:
                    await lock.acquire()
                    self._held.append(lock)
                    if self._turns.closing:
                        return
        except TimeoutError:
            return


def _place(record_id: str) -> int:
    """Where a write belongs: ids of one partition carry the same digest."""
    try:
        return int(record_id[19:23], 16) if len(record_id) == _ID_LENGTH else hash(record_id)
    except ValueError:
        return hash(record_id)
