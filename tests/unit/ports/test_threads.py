"""Threads for functions of callers: what they return, and what one that hangs costs."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from memory.ports.threads import CallerThreads

asked: ContextVar[str] = ContextVar("asked", default="")


async def test_a_function_runs_with_the_context_of_its_caller_and_its_error_is_raised() -> None:
    threads = CallerThreads(2)
    asked.set("tea")
    assert await threads.run(lambda more: (asked.get(), more), more="milk") == ("tea", "milk")
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    assert await asyncio.gather(*(threads.run(lambda n=n: n * n) for n in range(20))) == [
        n * n for n in range(20)
    ]


async def test_no_more_functions_run_at_once_than_there_are_threads() -> None:
    threads, both, running = CallerThreads(2), threading.Barrier(2), set[int]()

    def work() -> None:
        running.add(threading.get_ident())
        both.wait(30)

    await asyncio.gather(*(threads.run(work) for _ in range(8)))
    assert len(running) == 2


async def test_functions_that_hang_take_no_thread_from_others_once_they_are_given_up() -> None:
    threads, never, begun = CallerThreads(2), threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        never.wait()

    hanging = [asyncio.create_task(threads.run(hang)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(threads.run(lambda: "tea"))
    for _ in hanging:
        await asyncio.to_thread(begun.acquire)
    assert not waiting.done()
    for task in hanging:
        task.cancel()
    assert await waiting == "tea"
    given_up = asyncio.create_task(threads.run(lambda: "never asked for"))
    given_up.cancel()
    assert await threads.run(lambda: "milk") == "milk"
    never.set()


async def test_a_function_finds_a_thread_after_many_that_waited_and_some_that_hung() -> None:
    threads, never = CallerThreads(2), threading.Event()
    await asyncio.gather(*(threads.run(lambda n=n: n) for n in range(50)))
    for _ in range(4):
        begun = threading.Event()
        hanging = asyncio.create_task(threads.run(lambda begun=begun: (begun.set(), never.wait())))
        await asyncio.to_thread(begun.wait)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
    assert await asyncio.wait_for(threads.run(lambda: "tea"), 60) == "tea"
    never.set()
