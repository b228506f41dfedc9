"""Concurrent calls that all end before the caller continues.

If one call fails, the others are still awaited. None continues in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar, cast

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


async def each_at_once(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Return the answers in the order of the calls.

    Raises the error of the first call that failed.
    """
    outcomes = await outcomes_at_once(calls)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return cast("list[T]", outcomes)


async def outcomes_at_once(calls: Iterable[Awaitable[T]]) -> list[T | BaseException]:
    """Return the answers or errors in the order of the calls.

    A cancellation is raised with its message, which `asyncio.gather` may lose. By it
    anyio recognises the cancellations of its scopes.
    """
    every = list(calls)
    if not every:
        return []
    gathered: Any = asyncio.gather(*every, return_exceptions=True)
    messages: list[Any] = []
    cancel_all = gathered.cancel

    def cancel(msg: Any = None) -> bool:
        messages.append(msg)
        return bool(cancel_all(msg))

    gathered.cancel = cancel
    try:
        outcomes: list[T | BaseException] = await gathered
    except asyncio.CancelledError:
        raise asyncio.CancelledError(*filter(None, messages[:1])) from None
    finally:
        del gathered.cancel  # a cycle would keep the answers until the garbage is collected
    return outcomes


async def both_at_once(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Return the answers of two calls of different types. See `each_at_once`."""
    calls: list[Coroutine[Any, Any, A | B]] = [one, other]
    return cast("tuple[A, B]", tuple(await each_at_once(calls)))
