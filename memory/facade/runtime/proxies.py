"""Proxies: objects whose calls run on the event loop of another thread.

`Memory(loop="own")` returns a proxy, and so does everything that such a memory returns
or that is made from it: resources, sessions, streams, views, providers, managers. The
class of a proxy is a subclass of the class it stands for, so types are the same. The
original objects live on the private loop and know nothing of their proxies.

The blocking classes of `memory.sync` are proxies too, without an event loop at the
caller's side.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, ClassVar, Never, Self

from memory.facade.runtime.loop_thread import LoopThread

OWN = "own"
"""The value of `Memory(loop=)` that starts a private event loop."""
READ_AHEAD = 0.001
"""Seconds for which an iteration reads ahead on the private loop."""
MOST_AHEAD = 64
"""Items that one call to the private loop returns at most."""
CONTEXT = ("__aenter__", "__aexit__", "__call__")
"""The special methods that a proxy has."""


class Proxy:
    """The base class of proxies. A proxy holds the original and the loop of its calls.

    A proxy that owns the loop stops it in `close`.
    """

    __wrapped__: ClassVar[type]
    _original: Any
    _loop: LoopThread
    _owns_loop: bool

    @classmethod
    def _class_for(cls, kind: type) -> type[Proxy]:
        """Return the class of the proxies of a class, of the same sort as this one."""
        raise NotImplementedError

    @classmethod
    def _stand_for(cls, original: Any, loop: LoopThread) -> Self:
        proxy: Self = object.__new__(cls)
        proxy._bind(original, loop, owns_loop=False)
        return proxy

    def _bind(self, original: Any, loop: LoopThread, *, owns_loop: bool) -> None:
        for name, value in (("_original", original), ("_loop", loop), ("_owns_loop", owns_loop)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._handed_out(getattr(self._original, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._original, name, value)

    def __repr__(self) -> str:
        return repr(self._original).replace(type(self._original).__name__, type(self).__name__, 1)

    def _handed_out(self, value: Any) -> Any:
        """Return the value for the caller, with proxies in place of async objects."""
        if value is self._original:
            return self
        if type(value) is list:
            return [self._handed_out(item) for item in value]
        original: type = type(value)
        return self._class_for(original)._stand_for(value, self._loop) if is_async(original) else value

    def _argument(self, value: Any) -> Any:
        """Return an argument for a call of the original.

        An argument that is a proxy on the same loop is replaced by its original.
        """
        return value._original if isinstance(value, Proxy) and value._loop is self._loop else value

    def _leaves_inherited(self, name: str, args: Sequence[Any]) -> bool:
        """Return whether this is the end of a block in a forked child, by an error.

        The child, such as one that leaves by SystemExit, must end with that error.
        """
        return name == "__aexit__" and self._loop.is_inherited and args[0] is not None


class OwnLoopProxy(Proxy):
    """The base class of the objects of a memory that was made with `loop="own"`.

    They may be called from any thread and any event loop.
    """

    @classmethod
    def _class_for(cls, kind: type) -> type[Proxy]:
        return own_loop_class(kind)

    def __getattr__(self, name: str) -> Any:
        # Private names too: a composite provider may have parts on two private loops.
        if name.startswith("__") or name in Proxy.__annotations__:
            raise AttributeError(name)
        return self._handed_out(getattr(self._original, name))


class LoopBound:
    """The base class of classes whose objects a caller makes.

    With `loop="own"`, or with arguments that belong to a private loop, the new object
    is a proxy on that loop.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Choose between a plain object and a proxy."""
        made: Any = cls
        if not issubclass(cls, Proxy) and (kwargs.get("loop") == OWN or _own_loops(args, kwargs)):
            made = own_loop_class(made)
        new: Self = object.__new__(made)
        return new


@functools.cache
def is_async(kind: type) -> bool:
    """Return whether a class has public async methods or an async context."""
    methods = [
        member for name, member in members_of(kind).items() if not name.startswith("_") or name in CONTEXT
    ]
    return any(
        inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method) for method in methods
    )


@functools.cache
def own_loop_class(original: type) -> type[Proxy]:
    """Return the class of the proxies on a private loop of a class."""
    members: dict[str, Any] = {
        "__doc__": original.__doc__,
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__wrapped__": original,
        "__init__": _init(original),
    }
    members |= {
        name: _method(name, member) if inspect.isfunction(member) else attribute(name, member)
        for name, member in members_of(original).items()
        if name in CONTEXT or not (name.startswith("__") or hasattr(OwnLoopProxy, name))
    }
    return type(original.__name__, (OwnLoopProxy, original), members)


def members_of(kind: type) -> dict[str, Any]:
    """Return the members of a class and of its bases, by name."""
    return {name: member for base in reversed(kind.__mro__) for name, member in vars(base).items()}


def attribute(name: str, member: Any) -> Any:
    """Return the proxy's counterpart of a property, a field or a class attribute."""
    return (
        property(functools.partial(_attribute_of, name), doc=member.__doc__)
        if isinstance(member, property)
        else _Attribute(name, member)
    )


class _Attribute:
    """A class attribute, or a field of that name where an original has one."""

    def __init__(self, name: str, member: Any) -> None:
        self._name = name
        self._member = member

    def __get__(self, proxy: Proxy | None, owner: type[Proxy]) -> Any:
        return getattr(owner.__wrapped__, self._name) if proxy is None else _attribute_of(self._name, proxy)


def _attribute_of(name: str, proxy: Proxy) -> Any:
    return proxy._handed_out(getattr(proxy._original, name))


def unwrap(value: Any, loops: list[LoopThread], kind: type[Proxy]) -> Any:
    """Return an argument for the constructor of an original, and note its loop.

    Proxies of this kind on the first loop of `loops` are replaced by their originals,
    also in lists and in fields of dataclasses. Proxies on another loop stay: they may
    be called from any loop.
    """
    if isinstance(value, kind):
        if value._loop not in loops:
            loops.append(value._loop)
        return value._original if value._loop is loops[0] else value
    if isinstance(value, list | tuple):
        return [unwrap(item, loops, kind) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.init}
        changed = {name: unwrap(held[name], loops, kind) for name in held if isinstance(held[name], kind)}
        return dataclasses.replace(value, **changed) if changed else value
    return value


def make_original(
    kind: type[Proxy], original: type, args: Sequence[Any], kwargs: Mapping[str, Any], name: str
) -> tuple[Any, LoopThread, bool]:
    """Make the original of a new proxy, from arguments that may be proxies.

    Returns:
        The original, the loop of its calls, and whether the proxy owns that loop: that
        of the arguments, or a new one with this name. The loop of a memory ends with
        the last call after the memory was closed.
    """
    loops: list[LoopThread] = []
    own = [unwrap(value, loops, kind) for value in args]
    named = {key: unwrap(value, loops, kind) for key, value in kwargs.items()}
    made: Any = object.__new__(original)
    made.__init__(*own, **named)
    if loops:
        return made, loops[0], False
    access = getattr(made, "_access", None)
    return made, LoopThread(name, None if access is None else lambda: bool(access.is_open)), True


def _own_loops(args: Sequence[Any], kwargs: dict[str, Any]) -> list[LoopThread]:
    loops: list[LoopThread] = []
    for value in (*args, *kwargs.values()):
        unwrap(value, loops, OwnLoopProxy)
    return loops


def _init(original: type) -> Callable[..., None]:
    @functools.wraps(original.__init__)  # type: ignore[misc]
    def init(self: OwnLoopProxy, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("loop", None)
        made, loop, owns = make_original(OwnLoopProxy, original, args, kwargs, "memory-loop")
        self._bind(made, loop, owns_loop=owns)

    return init


def _method(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def begin(self: OwnLoopProxy, *args: Any, **kwargs: Any) -> Any:
        lent = list[_CallersItems]()
        made = getattr(self._original, name)(
            *[_lend(self, value, lent) for value in args],
            **{key: _lend(self, value, lent) for key, value in kwargs.items()},
        )
        if inspect.isasyncgen(made):
            return _iterate(self, made)
        if not inspect.iscoroutine(made):
            return self._handed_out(made)
        work = _Unstarted(made)
        call: Any
        if name == "__aenter__":
            call = _enter(self, work)
        elif name in ("close", "__aexit__"):
            call = _leave(self, work, is_over=self._leaves_inherited(name, args))
        else:
            call = _call(self, work, lent)
        call.__name__, call.__qualname__ = made.__name__, made.__qualname__
        return call

    return _as_coroutine_function(begin, method)


def _as_coroutine_function(call: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """Make `inspect.iscoroutinefunction` answer for a call as for the method."""
    if not inspect.iscoroutinefunction(method):
        return call
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(call)

    @functools.wraps(method)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    return awaited


class _Unstarted:
    """A coroutine of an original, which the private loop will run.

    If the caller's coroutine ends before its first step, this one is closed, so that
    Python does not warn that it was never awaited.
    """

    __slots__ = ("_work",)

    def __init__(self, work: Any) -> None:
        self._work = work

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the coroutine, unless it was taken."""
        if (work := self.take()) is not None:
            work.close()

    def take(self) -> Any:
        """Return the coroutine, for the one who runs and closes it."""
        work, self._work = self._work, None
        return work


async def _call(proxy: Proxy, work: _Unstarted, lent: Sequence[_CallersItems]) -> Any:
    for items in lent:
        items.loop = asyncio.get_running_loop()
    return proxy._handed_out(await proxy._loop.call(work.take()))


async def _enter(proxy: Proxy, work: _Unstarted) -> Any:
    """Enter a context. If a cancellation comes too late to prevent that, leave it."""
    entered: list[Any] = []

    async def enter() -> None:
        entered.append(await work.take())

    try:
        await proxy._loop.call(enter())
    except asyncio.CancelledError as error:
        if entered:
            await getattr(proxy, "__aexit__")(type(error), error, error.__traceback__)  # noqa: B009
        raise
    finally:
        work.close()
    return proxy._handed_out(entered[0])


async def _leave(proxy: Proxy, work: _Unstarted, *, is_over: bool) -> Any:
    """Close, or leave a context. The owner of the loop stops it."""
    if is_over:
        return None
    try:
        return proxy._handed_out(await proxy._loop.call(work.take()))
    finally:
        if proxy._owns_loop:
            await proxy._loop.stop()


async def _iterate(proxy: Proxy, items: AsyncGenerator[Any, Never]) -> AsyncIterator[Any]:
    try:
        is_over = False
        while not is_over:
            found, is_over, error = await proxy._loop.call(read_ahead(items))
            for item in found:
                yield proxy._handed_out(item)
            if error is not None:
                raise error
    finally:
        await proxy._loop.call(items.aclose())


async def read_ahead(items: AsyncIterator[Any]) -> tuple[list[Any], bool, Exception | None]:
    """Read at least one item, and those that follow within a millisecond.

    Returns:
        The items, whether no more will come, and the error that came after them.
    """
    found = list[Any]()
    clock = asyncio.get_running_loop().time
    until = clock() + READ_AHEAD
    try:
        while len(found) < MOST_AHEAD and (not found or clock() < until):
            found.append(await anext(items))
    except StopAsyncIteration:
        return found, True, None
    except Exception as error:
        if not found:
            raise
        return found, True, error
    return found, False, None


# -- items of the caller ---------------------------------------------------------------


def _lend(proxy: Proxy, value: Any, lent: list[_CallersItems]) -> Any:
    """Return an argument for the private loop. Async iterables stay with the caller."""
    value = proxy._argument(value)
    if not isinstance(value, AsyncIterable):
        return value
    lent.append(_CallersItems(value))
    return lent[-1]


class _CallersItems:
    """An async iterable of the caller. The private loop gets its items one by one.

    It may use what belongs to the caller's loop, such as a request of a server.
    """

    loop: asyncio.AbstractEventLoop
    """The loop that awaits the call."""

    def __init__(self, items: AsyncIterable[Any]) -> None:
        self._items = items

    async def __aiter__(self) -> AsyncIterator[Any]:
        iterator = aiter(self._items)
        try:
            while found := await self._run(_next_of(iterator)):
                yield found[0]
        finally:
            if isinstance(iterator, AsyncGenerator):
                await self._run(_close(iterator))

    async def _run(self, work: Any) -> Any:
        try:
            answer = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:  # the caller's loop is closed
            work.close()
            raise
        return await asyncio.wrap_future(answer)


async def _next_of(iterator: AsyncIterator[Any]) -> list[Any]:
    """Return a list of the next item, empty at the end."""
    try:
        return [await anext(iterator)]
    except StopAsyncIteration:
        return []


async def _close(items: AsyncGenerator[Any, Any]) -> None:
    await items.aclose()
