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
    tasks = [asyncio.ensure_future(call) for call in calls]
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
            for task in tasks:
                task.cancel(*error.args)
    outcomes: list[T | BaseException] = list(map(_outcome_of, tasks))
    if cancelled is not None:
        raise cancelled
    return outcomes


def _outcome_of(task: asyncio.Future[T]) -> T | BaseException:
    try:
        error = task.exception()
    except asyncio.CancelledError as cancelled:
        return cancelled
    return task.result() if error is None else error


async def both_at_once(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Return the answers of two calls of different types. See `each_at_once`."""
    calls: list[Coroutine[Any, Any, A | B]] = [one, other]
    return cast("tuple[A, B]", tuple(await each_at_once(calls)))
