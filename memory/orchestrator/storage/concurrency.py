"""Calls made side by side. Where one fails the others are waited for: none goes on
behind the caller's back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, cast

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


async def each_at_once(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers of the calls, in order. What the first of them raised is raised."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return cast("list[T]", answers)


async def both_at_once(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """The answers of two calls of different kinds; see `each_at_once`."""
    calls: list[Coroutine[Any, Any, A | B]] = [one, other]
    return cast("tuple[A, B]", tuple(await each_at_once(calls)))
