"""Concurrent calls that all end before the caller continues.

If one call fails, the others are still awaited. None continues in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, cast

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


async def each_at_once(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the answers in the order of the calls.

    Raises the error of the first call that failed.
    """
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return cast("list[T]", answers)


async def both_at_once(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Return the answers of two calls of different types. See `each_at_once`."""
    calls: list[Coroutine[Any, Any, A | B]] = [one, other]
    return cast("tuple[A, B]", tuple(await each_at_once(calls)))
