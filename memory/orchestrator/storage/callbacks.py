"""Calling what is anybody's: a store's method, a model, a tool."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def invoke(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function returns; one that blocks runs in a thread. Raises `RuntimeError`
    where it ends as cancelled and nobody cancelled the caller: a function that cancels
    what it waits for has failed, as by any other error.
    """
    try:
        if is_async(function):
            return await function(*args, **kwargs)
        made = await asyncio.to_thread(_run_in_thread, function, *args, **kwargs)
        return await made if inspect.isawaitable(made) else made
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("it was cancelled from within") from error


def _run_in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What a function returns. No future takes a `StopIteration`: whoever waited would
    wait for ever.
    """
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("it raised StopIteration") from error


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives what is to be awaited: a coroutine function, or an
    object that is called as one.
    """
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
