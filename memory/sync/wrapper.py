"""Make a blocking class from an async one, for code without an event loop.

Scripts and notebooks call the same methods. The calls run on an event loop in a
separate thread, which starts with the first call. If an async class returns another
async object (a view, a resource, a session), the caller gets a *twin*: a blocking
object that wraps the async one and runs its calls on the same loop. An object that is
made from a twin, such as a provider, runs on the twin's loop.
`blocking_class(TheClass)` makes the class of the twins of a class, once.
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
    """An event loop in a daemon thread, started at the first call.

    In a forked child of the process its calls raise `ForkedProcess`.
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
        """Run a call and return its result. A KeyboardInterrupt cancels it."""
        try:
            loop = self._running_loop()
        except ForkedProcess:
            call.close()
            raise
        if threading.current_thread() is self._thread:
            call.close()
            raise RuntimeError(
                "a blocking memory was called from inside one of its own callbacks; use the async Memory"
                " there"
            )
        future = asyncio.run_coroutine_threadsafe(call, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Stop the thread; the next call starts another."""
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
    """The base class of twins. A twin holds an async object and the loop of its calls.

    A twin that was made by calling its class stops the loop in `close`.
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
        """Do nothing. Python looks this method up before it enters the context."""

    def __repr__(self) -> str:
        return repr(self._original).replace(type(self._original).__name__, type(self).__name__, 1)

    def _handed_out(self, value: Any) -> Any:
        """Return the value for the caller, with twins in place of async objects."""
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
    """Return whether a class has public async methods or an async context."""
    methods = [
        member for name, member in _members(kind).items() if not name.startswith("_") or name in CONTEXT
    ]
    return any(
        inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method) for method in methods
    )


@functools.cache
def blocking_class(original: type) -> type[SyncWrapper]:
    """Return the class of a class's twins, with its public methods and attributes."""
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
"""Special methods of an async class, and the names of their blocking counterparts."""


def _init(original: type) -> Callable[..., None]:
    @functools.wraps(original.__init__)  # type: ignore[misc]
    def init(self: SyncWrapper, *args: Any, **kwargs: Any) -> None:
        loops: list[LoopThread] = []
        own = [_own(value, loops) for value in args]
        self._original = original(*own, **{name: _own(value, loops) for name, value in kwargs.items()})
        self._loop, self._owns_loop = (loops[0], False) if loops else (LoopThread(), True)

    return init


def _own(value: Any, loops: list[LoopThread]) -> Any:
    """Return an argument for the constructor of an async class.

    Twins are replaced by the async objects that they wrap, and their loops are added
    to `loops`.
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
            return None  # a child that leaves the block by an error, such as SystemExit, ends with it
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
    """Return an argument for a call to the async object of `twin`.

    An argument that is itself a twin on the loop of `twin` is replaced by the async
    object that it wraps.
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
