"""Calls of code that users supply: a store's method, a model, a tool."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from memory.ports.threads import CallerThreads

_threads = CallerThreads()


async def invoke(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function and return its result. A function that blocks runs in a thread.

    Raises:
        RuntimeError: The function raised `CancelledError`, but nobody cancelled its
            caller. This happens if a function cancels its own awaitables. It has then
            failed, as by any other error.
    """
    try:
        if is_async(function):
            return await function(*args, **kwargs)
        made = await _threads.run(_run_in_thread, function, *args, **kwargs)
        return await made if inspect.isawaitable(made) else made
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("the function raised CancelledError, but nobody cancelled its caller") from error


def _run_in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the function, and turn `StopIteration` into `RuntimeError`.

    A future does not accept `StopIteration`: the awaiting task would wait forever.
    """
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call of the function returns an awaitable.

    The result is true for a coroutine function, and for an object whose `__call__` is
    a coroutine function.
    """
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
