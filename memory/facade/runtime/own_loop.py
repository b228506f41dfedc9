"""`Memory(loop="own")`: proxies that any event loop and any thread may call.

Such a memory is a proxy, and so is everything that it returns or that is made from it:
resources, sessions, streams, views, providers, managers. The class of a proxy is a
subclass of the class it stands for, so types are the same.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Never, Self

from memory.domain.corrections import as_coroutine_function
from memory.domain.errors import InvalidInput
from memory.facade.runtime.access import Access
from memory.facade.runtime.loop_thread import LoopThread
from memory.facade.runtime.proxies import (
    CONTEXT,
    Proxy,
    attribute,
    make_original,
    members_of,
    read_ahead,
    unwrap,
)
from memory.facade.runtime.shared_handle import SharedHandle

OWN = "own"
"""The value of `Memory(loop=)` that starts a private event loop."""


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


class LoopBound(SharedHandle):
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


def _own_loops(args: Sequence[Any], kwargs: dict[str, Any]) -> list[LoopThread]:
    loops: list[LoopThread] = []
    for value in (*args, *kwargs.values()):
        unwrap(value, loops, OwnLoopProxy)
    return loops


def _refuse_other_loops(values: Iterable[Any]) -> None:
    """Raise `InvalidInput` for objects of a memory that has no private loop."""
    for value in values:
        if isinstance(value, list | tuple):
            _refuse_other_loops(value)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            _refuse_other_loops(getattr(value, one.name) for one in dataclasses.fields(value) if one.init)
        elif not isinstance(value, Proxy):
            holder = getattr(value, "_memory", value)  # of a provider or a manager
            if isinstance(getattr(holder, "_access", None), Access):
                raise InvalidInput(
                    "memory",
                    f"{type(value).__name__} belongs to a memory without loop='own', and others given here to"
                    " one with it. Make both memories with loop='own'",
                )


def _init(original: type) -> Callable[..., None]:
    @functools.wraps(original.__init__)  # type: ignore[misc]
    def init(self: OwnLoopProxy, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("loop", None)
        _refuse_other_loops([*args, *kwargs.values()])
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

    return as_coroutine_function(begin, method)


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
    if not proxy._owns_loop:
        return proxy._handed_out(await proxy._loop.call(work.take()))
    try:
        return proxy._handed_out(await proxy._loop.close(work.take()))
    finally:
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
