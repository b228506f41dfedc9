"""The blocking twin of every public call, made once from the async classes: for scripts, notebooks and frameworks without an event loop.

The calls run on an event loop in a thread of their own. What type checkers see of this module stands in `blocking.pyi`, which
`tools/blocking_stub.py` writes from the same classes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from memory.domain.errors import NotOpen
from memory.facade.memory import Memory
from memory.facade.view import ScopedMemory


class _Loop:
    """An event loop in a daemon thread, started at the first call."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        """The call's result; a KeyboardInterrupt while waiting cancels it."""
        loop = self._running()
        if threading.current_thread() is self._thread:
            call.close()
            raise RuntimeError("a blocking memory was called from inside one of its own callbacks; use the async Memory there")
        future = asyncio.run_coroutine_threadsafe(call, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread; the next call starts another."""
        with self._starting:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="blocking-memory", daemon=True)
                self._thread.start()
            return self._loop


def _twin(original: type, name: str) -> type:
    """A class with a blocking method for each public one of the original."""
    methods: dict[str, Any] = {}
    for method_name, method in inspect.getmembers(original, inspect.isfunction):
        if not method_name.startswith("_"):
            methods[method_name] = _blocking(method_name, method)
    return type(name, (_Twin,), {"__doc__": _doc(original), "__module__": __name__, **methods})


def _blocking(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = getattr(self._twin_of, name)(*args, **kwargs)
        if inspect.isasyncgen(made):
            return _iterate(self._loop, made)
        return self._wrapped(self._loop.run(made) if inspect.iscoroutine(made) else made)

    return call


def _iterate(loop: _Loop, items: AsyncIterator[Any]) -> Iterator[Any]:
    try:
        while True:
            try:
                yield loop.run(items.__anext__())  # type: ignore[arg-type]
            except StopAsyncIteration:
                return
    finally:
        loop.run(items.aclose())  # type: ignore[attr-defined]


def _doc(original: type) -> str:
    return (inspect.getdoc(original) or "").replace("async with", "with").replace("await ", "")


class _Twin:
    """What twins share: the async object they speak for, and the loop it runs on."""

    _twin_of: Any
    _loop: _Loop

    @classmethod
    def _around(cls, original: Any, loop: _Loop) -> Any:
        twin = cls.__new__(cls)
        twin._twin_of, twin._loop = original, loop
        return twin

    def _wrapped(self, value: Any) -> Any:
        if value is self._twin_of:
            return self
        if isinstance(value, Memory):
            return BlockingMemory._around(value, self._loop)
        return BlockingScopedMemory._around(value, self._loop) if isinstance(value, ScopedMemory) else value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._twin_of, name)

    def __repr__(self) -> str:
        return repr(self._twin_of).replace("<Memory", "<BlockingMemory")


BlockingScopedMemory: Any = _twin(ScopedMemory, "BlockingScopedMemory")
_BlockingMemory: Any = _twin(Memory, "_BlockingMemory")


class BlockingMemory(_BlockingMemory):  # type: ignore[misc]
    __doc__ = _doc(Memory)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._twin_of = Memory(*args, **kwargs)
        self._loop = _Loop()

    def __enter__(self) -> Any:
        return self.open()

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the stores and end the thread."""
        with contextlib.suppress(NotOpen):
            self._loop.run(self._twin_of.close())
        if self._twin_of._owns_life:
            self._loop.stop()
