"""The blocking half of an adapter, from its async half.

The async half awaits nothing but calls of one memory. Where these calls block instead,
no await suspends, and no event loop is needed: a coroutine ends at its first step. That
holds in threads that run an event loop, too.

    class Notes:
        def __init__(self, memory: Memory) -> None:
            self._memory: Any = memory  # made with loop="own"

        async def aread(self, key: str) -> Any:
            return await self._memory.documents.get("user:ada", key)

        read = blocking(aread)
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from memory import BlockingMemory

T = TypeVar("T")


def blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the blocking counterpart of an async method or async generator.

    It runs the method on a copy of its object whose `_memory` blocks.
    """

    @functools.wraps(method, updated=())
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        half = copy.copy(self)
        half._memory = _Immediate(BlockingMemory(self._memory))
        work = method(half, *args, **kwargs)
        return iterate(work) if inspect.isasyncgen(work) else run(work)

    return call


def with_blocking_half(kind: type[T]) -> type[T]:
    """Give a class `name` for each async method `aname` that it defines itself."""
    for name, member in list(vars(kind).items()):
        if name[0] == "a" and (inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)):
            setattr(kind, name[1:], blocking(member))
    return kind


class _Immediate:
    """A blocking memory, or a resource of it, whose methods are awaited."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._original, name)
        if not callable(member):
            return _Immediate(member)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = member(*args, **kwargs)
            return _each(made) if isinstance(made, Iterator) else _result(made)

        return call


async def _result(value: T) -> T:
    return value


async def _each(items: Iterator[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("an async half may await calls of its memory only")


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an async generator that never suspends."""
    while True:
        try:
            item = run(_next(items))
        except StopAsyncIteration:
            return
        yield item


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)
