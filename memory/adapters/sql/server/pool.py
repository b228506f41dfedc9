"""A pool of a few open connections, each lent to one call at a time.

Outside a transaction each statement is one round trip that commits itself. So taking or
giving back a connection sends nothing, and no state stays on one. Any failure other
than a refusal by the server leaves a connection in doubt: the pool drops it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from memory.ports.concurrency import each_at_once


class PoolTimeout(Exception):
    """No connection became free in time."""


class PoolClosed(Exception):
    """The pool was closed before a connection became free."""


class Link(Protocol):
    """The methods of a connection that the pool needs."""

    def is_closed(self) -> bool: ...

    def is_in_transaction(self) -> bool: ...

    def terminate(self) -> None:
        """Close the connection at once."""
        ...


C = TypeVar("C", bound=Link)


_UNWANTED: set[asyncio.Future[Any]] = set()


async def connect_shielded(connecting: Coroutine[Any, Any, C]) -> C:
    """Return a connection as the driver makes it.

    A caller that is cancelled meanwhile does not wait for it; the connection is closed
    once it is there. A driver that is cancelled itself may lose an existing connection.
    """
    made = asyncio.ensure_future(connecting)
    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        _UNWANTED.add(made)
        made.add_done_callback(_let_go)
        raise


def _let_go(made: asyncio.Future[Any]) -> None:
    _UNWANTED.discard(made)
    if not made.cancelled() and made.exception() is None:
        made.result().terminate()


@dataclass(frozen=True, slots=True)
class PoolOptions(Generic[C]):
    """The size, the callbacks and the timeouts in seconds of a pool.

    `greet` runs on each new connection. `still_good` says whether an error leaves the
    connection as good as before. `moved` says whether an error means that all
    connections lead to the wrong server. `no_room` says whether the server refused a
    new connection because it has too many.
    """

    size: int
    patience: float
    connect_patience: float
    call_patience: float
    connect: Callable[[], Awaitable[C]]
    greet: Callable[[C], Awaitable[None]]
    goodbye: Callable[[C], Awaitable[None]]
    still_good: Callable[[BaseException], bool]
    moved: Callable[[BaseException], bool] = lambda _: False
    no_room: Callable[[BaseException], bool] = lambda _: False


class Pool(Generic[C]):
    """Up to `size` connections."""

    def __init__(self, lending: PoolOptions[C]) -> None:
        self._lending = lending
        self._idle: list[C] = []
        self._made = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closing = False
        self._generation = 0
        """Raised to drop idle connections now, and lent ones on their return."""
        self._empty = asyncio.Event()
        self._empty.set()

    def is_moved(self, error: BaseException) -> bool:
        """Whether the error says that the connections lead to the wrong server.

        New connections may lead to the right one.
        """
        return self._lending.moved(error)

    @property
    def lent_count(self) -> int:
        return self._made - len(self._idle)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[C]:
        """Lend one connection for one call."""
        connection, generation = await self._take(), self._generation
        try:
            yield connection
        except BaseException as error:
            if self._lending.moved(error):
                self._drop_idle()
            sound = self._lending.still_good(error) and not connection.is_in_transaction()
            self._give_back(connection, sound=sound and generation == self._generation)
            raise
        else:
            self._give_back(connection, sound=generation == self._generation)

    def end_waiting(self) -> None:
        """Lend no more: calls that still wait for a connection get `PoolClosed`."""
        self._closing = True
        while self._waiting:
            self._wake()

    async def close(self) -> None:
        """Wait for the calls under way, then close every connection."""
        self.end_waiting()
        try:
            async with asyncio.timeout(self._lending.call_patience):
                await self._empty.wait()
        finally:
            idle, self._idle = self._idle, []
            self._made -= len(idle)
            await each_at_once(self._lending.goodbye(c) for c in idle)

    # -- lending -----------------------------------------------------------------------

    async def _take(self) -> C:
        """Take the most recently used idle connection, or make a new one.

        It waits where the pool may make no more. Where the server takes no more
        connections, it waits for one that this pool has lent.
        """
        until = asyncio.get_running_loop().time() + self._lending.patience
        most = self._lending.size
        while True:
            if not self._idle and self._made >= most:
                await self._wait(most, until)
            if self._closing:
                raise PoolClosed
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():  # the server has gone away since
                    self._empty.clear()
                    return connection
                self._made -= 1
            self._made += 1
            self._empty.clear()
            try:
                return await self._new()
            except BaseException as error:
                self._note_removal()
                if not self._lending.no_room(error) or not self._made:
                    raise
                most = self._made

    async def _wait(self, most: int, until: float) -> None:
        """Wait for an idle connection, or for room for a new one below `most`."""
        try:
            async with asyncio.timeout_at(until):
                while not self._closing and not self._idle and self._made >= most:
                    await self._turn()
        except TimeoutError:
            raise PoolTimeout from None

    def _drop_idle(self) -> None:
        """Close every idle connection, and each lent one once it is given back."""
        self._generation += 1
        idle, self._idle = self._idle, []
        self._made -= len(idle)
        for connection in idle:
            connection.terminate()
        for _ in idle:
            self._wake()

    async def _new(self) -> C:
        connection = await self._lending.connect()
        try:
            async with asyncio.timeout(self._lending.connect_patience):
                await self._lending.greet(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _turn(self) -> None:
        """Wait until a connection is given back or gone."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it was assigned already: the next waiter takes it
                self._wake()
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _give_back(self, connection: C, *, sound: bool) -> None:
        if sound and not self._closing and not connection.is_closed():
            self._idle.append(connection)
            self._wake()
        else:
            connection.terminate()
            self._note_removal()
        if self.lent_count == 0:
            self._empty.set()

    def _note_removal(self) -> None:
        self._made -= 1
        self._wake()
        if self.lent_count == 0:
            self._empty.set()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
