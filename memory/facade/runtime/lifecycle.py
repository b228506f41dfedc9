"""The life of an engine: it is opened and closed on one event loop.

Background tasks maintain it while it is open. The memories of several tenants share it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta

from memory.domain.errors import NotOpen, WrongEventLoop
from memory.facade.runtime.background import BackgroundTask, PassageTask, RuleTask, SweepTask, WordIndexTask
from memory.orchestrator.engine import Engine
from memory.ports.fork_guard import ForkGuard

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds that a close from another event loop waits for a store or for its loop."""

_opened_here: ContextVar[object] = ContextVar("_opened_here", default=None)
"""The life that this context is opening."""


class EngineLifecycle:
    """The life of one engine, which is built at the first opening.

    Connections to servers belong to the event loop that made them. Therefore an open
    engine belongs to the loop that opened it. Use on another loop raises
    `WrongEventLoop`. Closing works from any loop and always returns. In a forked child
    of the process that opened it, every call raises `ForkedProcess`.
    """

    def __init__(self, build: Callable[[], Engine], sweep_every: timedelta, *, is_part: bool = False) -> None:
        self._build = build
        self._is_part = is_part
        """Stores of the memory are left out, so what is missing there says nothing."""
        self._sweep_every = sweep_every
        self._built: Engine | None = None
        self._open: Engine | None = None
        self._behind: list[BackgroundTask] = []
        """The tasks that run in the background while it is open."""
        self._owner: asyncio.AbstractEventLoop | None = None
        self._forks = ForkGuard(self)
        self._turning = asyncio.Lock()
        self._turns_on: asyncio.AbstractEventLoop | None = None
        self._openings = 0
        """The calls of `open` that have not ended."""
        self.open_on_use: Callable[[], Awaitable[object]] | None = None
        """Opens the memory for the first call that needs a store; None if nothing does.

        So a call with a wrong argument is refused before any store is touched.
        """

    @property
    def is_opening(self) -> bool:
        """Whether an `open` is under way, and nothing is open yet."""
        return self._openings > 0 and self._open is None

    @property
    def is_open(self) -> bool:
        """Whether the engine is open."""
        return self._open is not None

    @property
    def engine(self) -> Engine:
        """The open engine, for questions that need no store."""
        self._forks.check()
        if self._open is None:
            raise NotOpen("this memory")
        return self._open

    @property
    def working_engine(self) -> Engine:
        """The open engine, for calls on the loop that opened it."""
        engine = self.engine
        if self._owner is not asyncio.get_running_loop():
            raise self._elsewhere()
        return engine

    async def open(self, *, reindex: bool = False) -> None:
        """Connect, and start background maintenance.

        Opening twice does nothing. A failed opening may be repeated on any loop. For
        `reindex` see `Engine.open`.
        """
        self._forks.check()
        turn, token = self._own(), _opened_here.set(self)
        self._openings += 1
        try:
            async with turn:
                self._own()  # a close on this loop may have released it during the wait
                if self._open is None:
                    await self._open_engine(reindex=reindex)
        finally:
            self._openings -= 1
            _opened_here.reset(token)

    async def wait_for_opening(self) -> None:
        """Return once an `open` that is under way on this loop has ended.

        It does not wait in functions of the caller that the opening itself calls, such
        as embedders. They would wait for their own end.
        """
        if not self.is_opening or _opened_here.get() is self:
            return
        self._forks.check()
        if self._turns_on is asyncio.get_running_loop():
            async with self._turning:
                pass

    async def close(self) -> None:
        """Release the stores. Closing twice does nothing.

        From another loop, the owning loop is asked to close if it runs. If it has
        ended, each store is closed as far as its connections allow.
        """
        self._forks.check()
        owner = self._owner
        if owner is None:
            return
        if owner is asyncio.get_running_loop():
            await self._close()
        elif owner.is_running():
            await self._closed_by(owner)
        else:
            await self._abandon()

    # -- opening and closing -----------------------------------------------------------

    async def _open_engine(self, *, reindex: bool) -> None:
        try:
            self._built = self._built or self._build()
            await self._built.open(reindex=reindex)
            if not self._is_part:
                await self._built.store_notes.on_open()
                await self._built.documents.relocation.on_open()
        except BaseException:
            self._disown()
            raise
        self._open = self._built
        engine, every = self._built, self._sweep_every
        self._behind = [
            SweepTask(engine.maintenance, every),
            PassageTask(engine.conversations.passages, every),
            RuleTask(engine.after_writes, every),
            WordIndexTask(engine.word_indexes, every),
        ]
        for task in self._behind:
            task.start()

    def _own(self) -> asyncio.Lock:
        """Make the running loop the owner, and return the lock for opening and closing.

        Raises:
            WrongEventLoop: If another loop owns the engine.
        """
        running = asyncio.get_running_loop()
        if self._owner not in (None, running):
            raise self._elsewhere()
        self._owner = running
        self._forks.acquire()
        if self._turns_on is not running:
            self._turning, self._turns_on = asyncio.Lock(), running
        return self._turning

    def _disown(self) -> None:
        self._owner = None
        self._forks.release()

    def check_process(self) -> None:
        """Raise `ForkedProcess` in a forked child of the process that opened it."""
        self._forks.check()

    async def _close(self) -> None:
        async with self._turning:
            engine, self._open = self._open, None
            behind, self._behind = self._behind, []
            try:
                for task in behind:
                    await task.stop()
                if engine is not None:
                    try:
                        async with asyncio.timeout(PATIENCE):
                            if not self._is_part:
                                await engine.store_notes.on_close()
                    except Exception as error:  # noqa: BLE001 - a failed note must not prevent closing
                        log.info("the note of which stores hold data was not written: %s", error)
                    await engine.close()
            finally:
                self._disown()

    async def _closed_by(self, owner: asyncio.AbstractEventLoop) -> None:
        closing = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(), owner))
        done, _ = await asyncio.wait([closing], timeout=PATIENCE)
        if done:
            await closing
        else:
            log.warning(
                "the event loop that opened this memory is busy; it closes the memory once it is free"
            )

    async def _abandon(self) -> None:
        """Release stores whose loop has ended.

        If one cannot be closed, the next opening builds the engine again.
        """
        engine, self._open, self._behind = self._open, None, []
        self._disown()
        for store in engine.topology.stores if engine is not None else ():
            try:
                async with asyncio.timeout(PATIENCE):
                    await store.close()
            except Exception as error:  # noqa: BLE001 - drivers may raise anything if their loop has ended
                said = str(
                    error
                )  # the text only: log handlers may keep the error, its frames and dead sockets
                log.warning(
                    "store '%s' could not be closed in full: the event loop it was opened on has ended (%s)",
                    store.name,
                    said,
                )
                self._built = None

    def _elsewhere(self) -> WrongEventLoop:
        return WrongEventLoop(ended=self._owner is not None and self._owner.is_closed())
