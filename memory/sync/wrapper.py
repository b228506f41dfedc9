"""A blocking class made of an async one: the same methods for scripts, notebooks and
frameworks without an event loop.

The calls run on an event loop in a thread of their own, which is started at the first
of them. What an async class hands out of its kind (a view, a noun, a session) is handed
out as its blocking twin, on the same loop, and what is made of a twin (a provider of a
memory's) runs on its loop. So any class has its twin made by `blocking(TheClass)`,
once.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, ClassVar, Never, NoReturn

from memory.domain.errors import ForkedProcess
from memory.ports.fork_guard import ForkGuard


class LoopThread:
    """An event loop in a daemon thread, started at the first call. A forked child of
    that process cannot use it: its calls raise `ForkedProcess`.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._forks = ForkGuard(self)

    @property
    def is_inherited(self) -> bool:
        """Whether this process inherited the running loop through `fork`."""
        return self._forks.is_inherited

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        """The call's result; a KeyboardInterrupt while waiting cancels it."""
        try:
            loop = self._running_loop()
        except ForkedProcess:
            call.close()
            raise
        if threading.current_thread() is self._thread:
            call.close()
            raise RuntimeError(
                "a blocking memory was called from inside one of its own callbacks; use the async Memory there"
            )
        future = asyncio.run_coroutine_threadsafe(call, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread; the next call starts another."""
        self._forks.check()
        with self._starting:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
        self._forks.release()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        self._forks.check()
        with self._starting:
            if self._loop is None:
                self._forks.acquire()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="blocking-memory", daemon=True
                )
                self._thread.start()
            return self._loop


class SyncWrapper:
    """What twins share: the async object they speak for, and the loop it runs on. One
    that was made by calling its class ends the loop at `close`.
    """

    __wrapped__: ClassVar[type]
    _original: Any
    _loop: LoopThread
    _owns_loop: bool

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._handed_out(getattr(self._original, name))

    async def __aenter__(self) -> NoReturn:
        """Refuse `async with`.

        Raises:
            TypeError: Always; it says what to use instead.
        """
        raise TypeError(
            f"{type(self).__name__} blocks: use `with`, or {self.__wrapped__.__name__} in async code"
        )

    async def __aexit__(self, *_: object) -> None:
        """Is never reached. Python looks it up before it enters."""

    def __repr__(self) -> str:
        return repr(self._original).replace(type(self._original).__name__, type(self).__name__, 1)

    def _handed_out(self, value: Any) -> Any:
        """A value as a caller of this twin gets it."""
        if value is self._original:
            return self
        if type(value) is list:
            return [self._handed_out(item) for item in value]
        original: type = type(value)
        if not is_async(original):
            return value
        kind = blocking_class(original)
        twin = kind.__new__(kind)
        twin._original, twin._loop, twin._owns_loop = value, self._loop, False
        return twin


@functools.cache
def is_async(kind: type) -> bool:
    """Whether a class has public methods to be awaited or iterated over, or is an async
    context manager.
    """
    methods = [
        member for name, member in _members(kind).items() if not name.startswith("_") or name in CONTEXT
    ]
    return any(
        inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method) for method in methods
    )


@functools.cache
def blocking_class(original: type) -> type[SyncWrapper]:
    """The blocking twin of a class: its public methods and properties, and what else it
    has of public attributes.
    """
    members: dict[str, Any] = {
        "__doc__": _doc(original),
        "__module__": original.__module__,
        "__wrapped__": original,
        "__init__": _init(original),
    }
    for name, member in _members(original).items():
        if name in CONTEXT:
            members[CONTEXT[name]] = _method(name, member)
        elif name.startswith("_"):
            continue
        elif isinstance(member, property):
            members[name] = property(functools.partial(_property, name), doc=member.__doc__)
        else:
            members[name] = _method(name, member) if inspect.isfunction(member) else member
    return type(f"Blocking{original.__name__}", (SyncWrapper,), members)


def _members(kind: type) -> dict[str, Any]:
    return {name: member for base in reversed(kind.__mro__) for name, member in vars(base).items()}


CONTEXT = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__call__": "__call__"}
"""What of the names with underscores a twin has, and what it is called there."""


def _init(original: type) -> Callable[..., None]:
    @functools.wraps(original.__init__)  # type: ignore[misc]
    def init(self: SyncWrapper, *args: Any, **kwargs: Any) -> None:
        loops: list[LoopThread] = []
        own = [_own(value, loops) for value in args]
        self._original = original(*own, **{name: _own(value, loops) for name, value in kwargs.items()})
        self._loop, self._owns_loop = (loops[0], False) if loops else (LoopThread(), True)

    return init


def _own(value: Any, loops: list[LoopThread]) -> Any:
    """What an async class is made of: of twins, and lists of them, what they speak for.
    Learns of their loops.
    """
    if isinstance(value, list | tuple):
        return [_own(item, loops) for item in value]
    if not isinstance(value, SyncWrapper):
        return value
    loops.append(value._loop)
    return value._original


def _method(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    ends = name in ("close", "__aexit__")

    @functools.wraps(method)
    def call(self: SyncWrapper, *args: Any, **kwargs: Any) -> Any:
        if name == "__aexit__" and self._loop.is_inherited and args[0] is not None:
            return None  # a child that leaves the block by an error, such as SystemExit, ends by that error
        given = [_spoken_for(self, value) for value in args]
        made = getattr(self._original, name)(
            *given, **{name: _spoken_for(self, value) for name, value in kwargs.items()}
        )
        if inspect.isasyncgen(made):
            return _iterate(self, made)
        value = self._loop.run(made) if inspect.iscoroutine(made) else made
        if ends and self._owns_loop:
            self._loop.stop()
        return self._handed_out(value)

    call.__doc__ = _doc(method)
    return call


def _spoken_for(twin: SyncWrapper, value: Any) -> Any:
    """What a call is given: of another twin on the same loop, such as a session, what
    it speaks for.
    """
    return value._original if isinstance(value, SyncWrapper) and value._loop is twin._loop else value


def _property(name: str, self: SyncWrapper) -> Any:
    return self._handed_out(getattr(self._original, name))


def _iterate(twin: SyncWrapper, items: AsyncGenerator[Any, Never]) -> Iterator[Any]:
    try:
        while True:
            try:
                item = twin._loop.run(items.__anext__())
            except StopAsyncIteration:
                return
            yield twin._handed_out(item)
    finally:
        twin._loop.run(items.aclose())


def _doc(original: Any) -> str:
    return (
        (inspect.getdoc(original) or "")
        .replace("async with", "with")
        .replace("async for", "for")
        .replace("await ", "")
    )
