"""Threads for functions of callers, which may block for ever."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from typing import Any

MOST = min(32, (os.cpu_count() or 1) + 4)
"""The most functions that run at once; the others wait. As many as asyncio runs."""


class _Call:
    """A call of a function, and what becomes of it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.done: Future[Any] = Future()
        self.is_abandoned = False

    def __call__(self) -> Any:
        return self.function()


class CallerThreads(Executor):
    """Runs functions in daemon threads, and awaits their results.

    Python waits for the threads of `asyncio.to_thread` when a loop or the process ends.
    A function of a caller that never returns would keep the process alive. Here nothing
    waits for it, and once its caller has given it up, another thread takes its place.

    Its threads live as long as the process, so there should be few of these objects.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._calls = deque[_Call]()
        self._idle = 0
        """The threads that wait for a call."""
        self._count = 0
        """All threads, without those whose call was given up."""

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call the function in a thread, with the context of the caller.

        If the awaiting task is cancelled, a running function runs on, and its result is
        lost.
        """
        call = _Call(partial(copy_context().run, function, *args, **kwargs))
        try:
            return await asyncio.get_running_loop().run_in_executor(self, call)
        except asyncio.CancelledError:
            if not call.done.cancel():
                self._abandon(call)
            raise

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a call of the function; see `Executor`."""
        if self._process != os.getpid():
            self._begin()  # a fork has no threads of its parent
        call = function if isinstance(function, _Call) else _Call(partial(function, *args, **kwargs))
        with self._changed:
            self._calls.append(call)
            self._changed.notify()
            self._add_thread()
        return call.done

    def _add_thread(self) -> None:
        """Start a thread if more calls than threads wait. The caller has the lock."""
        if len(self._calls) > self._idle and self._count < self._most:
            self._count += 1
            threading.Thread(target=self._work, name="memory-caller", daemon=True).start()

    def _abandon(self, call: _Call) -> None:
        """Let another thread take the place of the one that runs this call."""
        with self._changed:
            if call.done.done():
                return
            call.is_abandoned = True
            self._count -= 1
            self._add_thread()

    def _work(self) -> None:
        while True:
            call = self._next_call()
            if call.done.set_running_or_notify_cancel():
                try:
                    call.done.set_result(call())
                except BaseException as error:  # noqa: BLE001 - the awaiting task gets it
                    call.done.set_exception(error)
            with self._changed:
                if call.is_abandoned:
                    return
            del call  # an idle thread keeps nothing alive

    def _next_call(self) -> _Call:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._calls)
            self._idle -= 1
            return self._calls.popleft()
