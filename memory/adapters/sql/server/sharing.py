"""Groups new records that wait to be put at the same time into one call.

A server takes many for little more than the cost of one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeGuard

from memory.adapters.sql.server.pool import PoolTimeout
from memory.ports.concurrency import each_at_once
from memory.ports.writes import Absent, Outcome, Put, Write

AT_ONCE = 2
"""The number of calls under way at once.

Two writers do not wait for each other, and one locked call does not stop everybody.
"""

Waiting: TypeAlias = tuple[Put, asyncio.Future[Outcome]]
CarryOut: TypeAlias = Callable[[Sequence[Put]], Awaitable[Sequence[Outcome]]]


def is_fresh(writes: Sequence[Write]) -> TypeGuard[Sequence[Put]]:
    """Whether a call may go with others: it is one put under a free key.

    It waits for no record that somebody else is changing.
    """
    return len(writes) == 1 and isinstance(writes[0], Put) and isinstance(writes[0].when, Absent)


class PutBatcher:
    """Puts the records of several callers in order, with a maximum number per call.

    A caller cancelled before its put is sent leaves nothing. A put cancelled later may
    land, as in any other call. The others' puts are whole.

    Where a call failed and `undone` says that nothing was kept, each is put by itself:
    so no put fails because of another. Where the server answers nobody for as long as a
    call may take, all waiting callers get that error too. So no caller waits for
    several such calls.
    """

    def __init__(self, carry_out: CarryOut, undone: Callable[[Exception], bool], most: int) -> None:
        self._carry_out, self._undone, self._most = carry_out, undone, most
        self._waiting: deque[Waiting] = deque()
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._answers = 0
        """The number of calls that the server answered."""

    async def put(self, put: Put) -> Outcome:
        """Put a record, and return the outcome."""
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((put, answer))
        if len(self._tasks) < AT_ONCE:
            self._tasks.add(asyncio.create_task(self._run()))
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._do(self._take_waiting(self._most))
        finally:
            self._tasks.discard(asyncio.current_task())

    def _take_waiting(self, most: int) -> list[Waiting]:
        """Return the first callers that still wait."""
        first = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        return [(put, answer) for put, answer in first if not answer.cancelled()]

    async def _do(self, some: Sequence[Waiting]) -> None:
        before = self._answers
        try:
            outcomes = await self._carry_out([put for put, _ in some]) if some else ()
        except Exception as error:  # noqa: BLE001 - it is raised to those who wait
            if len(some) > 1 and self._undone(error):
                await each_at_once([self._do([one]) for one in some if not one[1].cancelled()])
                return
            silent = isinstance(error, TimeoutError | PoolTimeout) and self._answers == before
            for _, answer in (*some, *(self._take_waiting(len(self._waiting)) if silent else ())):
                if not answer.cancelled():
                    answer.set_exception(error)
        except asyncio.CancelledError:  # the event loop ends
            for _, answer in (*some, *self._waiting):
                answer.cancel()
            raise
        else:
            self._answers += 1
            for (_, answer), outcome in zip(some, outcomes, strict=True):
                if not answer.cancelled():
                    answer.set_result(outcome)
