"""Make a blocking class from an async one, for code without an event loop.

Scripts and notebooks call the same methods. The calls run on an event loop in a
separate thread, which starts with the first call. If an async class returns another
async object (a view, a resource, a session), the caller gets a blocking object. It
wraps the async one and runs its calls on the same loop. An object that is made from a
blocking one, such as a provider, runs on that loop too. `BlockingMemory(memory)` wraps
a memory that was made with `loop="own"`, on the same loop. `blocking_class(TheClass)`
makes the blocking class of a class, once.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, Never, NoReturn

from memory.domain.errors import ConfigError
from memory.facade.runtime.own_loop import OwnLoopProxy
from memory.facade.runtime.proxies import (
    Proxy,
    attribute,
    is_async,
    make_original,
    members_of,
    read_ahead,
)

__all__ = ["CONTEXT", "SyncWrapper", "blocking_class", "is_async"]


class SyncWrapper(Proxy):
    """The base of blocking classes. It holds an async object and the loop of its calls.

    An object that was made by calling its class stops the loop in `close`.
    """

    @classmethod
    def _class_for(cls, kind: type) -> type[Proxy]:
        return blocking_class(kind)

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


@functools.cache
def blocking_class(original: type) -> type[SyncWrapper]:
    """Return the blocking version of a class, with its public attributes."""
    members: dict[str, Any] = {
        "__doc__": _doc(original),
        "__module__": original.__module__,
        "__wrapped__": original,
        "__init__": _init(original),
    }
    for name, member in members_of(original).items():
        if name in CONTEXT:
            members[CONTEXT[name]] = _method(name, member)
        elif not name.startswith("_"):
            members[name] = _method(name, member) if inspect.isfunction(member) else attribute(name, member)
    return type(f"Blocking{original.__name__}", (SyncWrapper,), members)


CONTEXT = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__call__": "__call__"}
"""Special methods of an async class, and the names of their blocking counterparts."""


def _init(original: type) -> Callable[..., None]:
    @functools.wraps(original.__init__)  # type: ignore[misc]
    def init(self: SyncWrapper, *args: Any, **kwargs: Any) -> None:
        if "loop" in kwargs:
            raise ConfigError(
                "loop: a blocking memory always has an event loop of its own. Omit loop=, or pass a memory"
                " that has one: BlockingMemory(memory)"
            )
        shared = args[0] if args else None
        if isinstance(shared, OwnLoopProxy) and isinstance(shared, original):
            if args[1:] or kwargs:
                raise ConfigError("config: is a memory, which has its settings. Omit the other arguments")
            self._bind(shared._original, shared._loop, owns_loop=False)
            return
        made, loop, owns = make_original(Proxy, original, args, kwargs, "blocking-memory")
        self._bind(made, loop, owns_loop=owns)

    return init


def _method(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    ends = name in ("close", "__aexit__")

    @functools.wraps(method, updated=())  # from Python 3.12 on its dict marks it as async
    def call(self: SyncWrapper, *args: Any, **kwargs: Any) -> Any:
        if self._leaves_inherited(name, args):
            return None
        given = [self._argument(value) for value in args]
        made = getattr(self._original, name)(
            *given, **{key: self._argument(value) for key, value in kwargs.items()}
        )
        if inspect.isasyncgen(made):
            return _iterate(self, made)
        if not inspect.iscoroutine(made):
            return self._handed_out(made)
        if not (ends and self._owns_loop):
            return self._handed_out(self._loop.run(made))
        value = self._loop.close_and_wait(made)
        self._loop.stop_and_wait()
        return self._handed_out(value)

    call.__doc__ = _doc(method)
    return call


def _iterate(twin: SyncWrapper, items: AsyncGenerator[Any, Never]) -> Iterator[Any]:
    try:
        is_over = False
        while not is_over:
            found, is_over, error = twin._loop.run(read_ahead(items))
            for item in found:
                yield twin._handed_out(item)
            if error is not None:
                raise error
    finally:
        twin._loop.finish(items.aclose())


def _doc(original: Any) -> str:
    doc = (
        (inspect.getdoc(original) or "")
        .replace("async with", "with")
        .replace("async for", "for")
        .replace("await ", "")
    )
    if not isinstance(original, type):
        return doc
    return re.sub(rf"\b{original.__name__}\(", f"Blocking{original.__name__}(", doc)
