"""Calls that a scope of anyio cancels: servers and agent frameworks use such scopes.

A scope recognises its cancellation by the message of the error. If the message is lost,
the error leaves the scope and ends the task, or a whole server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from memory import CompositeProvider, Memory, SemanticProvider, SlidingWindowProvider
from memory.adapters.in_memory import InMemoryStore
from memory.ports.collections import Collection
from memory.ports.concurrency import each_at_once
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import id_of
from memory.ports.record import Key, Stored

STEPS = 16
"""A call is cancelled after 0 to 15 steps of the event loop."""

CALLS: dict[str, Callable[[Memory], Awaitable[Any]]] = {
    "write": lambda memory: memory.write("Ada drinks tea", scope="user:ada"),
    "write_many": lambda memory: memory.write_many([{"content": "tea", "scope": "user:ada"}] * 3),
    "search": lambda memory: memory.search("tea", scope="user:ada"),
    "retrieve": lambda memory: memory.retrieve("user:ada"),
    "append": lambda memory: memory.session("monday").append({"role": "user", "content": "hello"}),
    "context": lambda memory: memory.session("monday").context(1_000),
    "search_messages": lambda memory: memory.search_messages("hello"),
    "put": lambda memory: memory.documents.put("user:ada", "state", b"x" * 300_000),
    "get": lambda memory: memory.documents.get("user:ada", "state"),
    "stats": lambda memory: memory.admin.stats(),
    "provider": lambda memory: CompositeProvider(
        [SlidingWindowProvider(memory), SemanticProvider(memory)]
    ).read("monday"),
}


async def call_within(scope: anyio.CancelScope, call: Awaitable[Any]) -> str:
    with scope:
        await call
    return "ended"


@pytest.mark.parametrize("loop", [None, "own"])
@pytest.mark.parametrize("url", ["memory://", "sqlite:///a.db"])
async def test_a_cancelled_call_ends_within_its_scope(
    url: str, loop: Literal["own"] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    escaped: list[tuple[str, int]] = []
    async with Memory(url, embedder="none", loop=loop) as memory:
        await memory.session("monday").append({"role": "user", "content": "hello"})
        for name, call in CALLS.items():
            for steps in range(STEPS):
                scope = anyio.CancelScope()
                calling = asyncio.create_task(call_within(scope, call(memory)))
                for _ in range(steps):
                    await asyncio.sleep(0)
                scope.cancel()
                (answer,) = await asyncio.gather(calling, return_exceptions=True)
                if answer != "ended":
                    escaped.append((name, steps))
        assert await memory.session("monday").context()
    assert escaped == []


class Losing(InMemoryStore):
    """A store whose driver loses cancellations: it answers, or fails otherwise."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.fails, self.waits = fails, asyncio.Event()

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        self.waits.set()
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            if self.fails:
                raise TimeoutError from None
        return await super()._get(collection, keys)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancellation_that_a_driver_loses_ends_the_call_within_its_scope(fails: bool) -> None:
    store = Losing(fails=fails)
    await store.open(DECLARED)
    scope = anyio.CancelScope()
    calling = asyncio.create_task(call_within(scope, store.get(SAMPLES, [Key("t", id_of(1))])))
    await store.waits.wait()
    scope.cancel()
    assert await calling == "ended"
    assert scope.cancelled_caught
    store.waits.clear()
    plain = asyncio.create_task(store.get(SAMPLES, [Key("t", id_of(1))]))
    await store.waits.wait()
    plain.cancel()
    with pytest.raises(asyncio.CancelledError):
        await plain


async def test_concurrent_calls_are_cancelled_with_the_message_of_their_caller() -> None:
    ended: list[str] = []

    async def work(name: str, *, swallows: bool) -> str:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            if not swallows:
                raise
        finally:
            ended.append(name)
        return name

    calls = [work("a", swallows=False), work("b", swallows=True)]
    calling = asyncio.create_task(each_at_once(calls))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    calling.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await calling
    assert sorted(ended) == ["a", "b"]
    assert await each_at_once([]) == []
