"""A memory belongs to the event loop it was opened on: another is told so, and closing
comes back from anywhere.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from memory.domain.errors import NotOpen, WrongEventLoop
from memory.facade.memory import Memory
from memory.sync.blocking import BlockingMemory
from tests.support.depth import beyond
from tests.support.places import ONE_FILE, on
from tests.support.placings import STORIES, forget

PLACES = [
    pytest.param(lambda _folder: "memory://", id="in-memory", marks=pytest.mark.backend("in_memory")),
    ONE_FILE,
    *(on(placing, *beyond(placing.name, {"redis-postgres-edge"}, ())) for placing in STORIES),
]
IN_TIME = 30.0
"""Seconds within which every close here comes back, three stores and a busy machine
allowed for.
"""


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A configuration on each kind of store in turn."""
    made = request.param(tmp_path)
    yield made
    forget(tmp_path)


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'one.db'}"


async def _opened(memory: Memory) -> None:
    await memory.open()
    await memory.write("the ferry runs on Sundays", scope="user:ada")


async def _said(memory: Memory) -> list[str]:
    return [entry.content for entry in await memory.retrieve("user:ada")]


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # of drivers whose loop ended under them, when they are collected
def test_a_memory_whose_loop_ended_says_so_and_is_let_go_of_on_another(place: Any) -> None:
    memory = Memory(place, embedder="none", tenant="loops")
    asyncio.run(_opened(memory))
    for call in (
        memory.retrieve("user:ada"),
        memory.write("again", scope="user:ada"),
        memory.admin.stats(),
        memory.open(),
    ):
        with pytest.raises(
            WrongEventLoop, match=r"has ended: await close\(\), then open it here.*BlockingMemory"
        ) as refused:
            asyncio.run(call)
        assert refused.value.ended
        del refused  # its traceback holds what is to be collected below
    asyncio.run(asyncio.wait_for(memory.close(), IN_TIME))
    with pytest.raises(NotOpen, match="is not open"):
        asyncio.run(_said(memory))
    asyncio.run(asyncio.wait_for(memory.close(), IN_TIME))

    async def once_more() -> list[str]:
        async with memory:
            return await _said(memory)

    assert asyncio.run(once_more()) == ["the ferry runs on Sundays"]
    gc.collect()


@asynccontextmanager
async def _opened_elsewhere(memory: Memory) -> AsyncIterator[asyncio.AbstractEventLoop]:
    """The memory, opened on a loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_opened(memory), loop))
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()


@pytest.mark.backend("sqlite")
async def test_while_its_loop_runs_another_loop_is_refused_and_may_close_it(sqlite: str) -> None:
    memory = Memory(sqlite, embedder="none")
    async with _opened_elsewhere(memory) as loop:
        for call in (_said(memory), memory.open()):
            with pytest.raises(WrongEventLoop, match="one Memory per event loop") as refused:
                await call
            assert not refused.value.ended
        assert await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_said(memory), loop)) == [
            "the ferry runs on Sundays"
        ]
        await asyncio.wait_for(memory.close(), IN_TIME)
        with pytest.raises(NotOpen):
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_said(memory), loop))
    async with memory:
        assert await _said(memory) == ["the ferry runs on Sundays"]


@pytest.mark.backend("sqlite")
async def test_closing_comes_back_while_the_loop_that_owns_it_is_held_up(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.facade.runtime.lifecycle.PATIENCE", 0.05)
    memory, released = Memory(sqlite, embedder="none"), threading.Event()
    async with _opened_elsewhere(memory) as loop:
        loop.call_soon_threadsafe(released.wait)
        await asyncio.wait_for(memory.close(), IN_TIME)
        released.set()
        with pytest.raises(NotOpen):
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_said(memory), loop))
        await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(memory.close(), loop)
        )  # it comes back once the first is through


@pytest.mark.backend("sqlite")
async def test_what_no_store_is_asked_may_be_asked_on_any_loop(sqlite: str) -> None:
    memory = Memory(sqlite, embedder="none")
    async with _opened_elsewhere(memory) as loop:
        assert memory.admin.route("user:ada").tier == "mid"
        assert "open" in repr(memory)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(memory.close(), loop))


@pytest.mark.backend("sqlite")
async def test_a_blocking_memory_may_be_used_in_a_thread_with_a_loop_of_its_own_and_reopened(
    sqlite: str,
) -> None:
    memory = BlockingMemory(sqlite, embedder="none")
    for _ in range(2):
        with memory:
            memory.write("the ferry runs on Sundays", scope="user:ada", key="once")
            assert memory.admin.route("user:ada").tier == "mid"
            assert len(memory.retrieve("user:ada")) == 1


def _upkeep() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "memory-upkeep"]


@pytest.mark.backend("sqlite")
async def test_a_tenants_view_opened_again_after_its_close_begins_no_second_upkeep(sqlite: str) -> None:
    memory = Memory(sqlite, embedder="none")
    async with memory:
        view = memory.for_tenant("b")
        await view.close()
        with pytest.raises(NotOpen):
            await view.retrieve("user:ada")
        assert "closed" in repr(view)
        await view.open()
        assert len(_upkeep()) == 1
        assert await view.retrieve("user:ada") == []
        await view.close()
        assert await memory.retrieve("user:ada") == []
    assert _upkeep() == []
    with pytest.raises(NotOpen, match="made from"):
        await view.open()


@pytest.mark.backend("sqlite")
async def test_a_tenants_view_sees_that_the_memory_was_closed_and_opened(sqlite: str) -> None:
    memory = await Memory(sqlite, embedder="none").open()
    view = memory.for_tenant("b")
    await memory.close()
    with pytest.raises(NotOpen):
        await view.retrieve("user:ada")
    await memory.open()
    assert await view.retrieve("user:ada") == []
    await memory.close()


@pytest.mark.backend("sqlite")
async def test_opening_and_closing_side_by_side_leave_it_open_or_closed_and_usable(sqlite: str) -> None:
    memory = Memory(sqlite, embedder="none")
    for _ in range(3):
        await asyncio.gather(memory.open(), memory.close(), memory.open(), memory.close(), memory.open())
        await memory.open()
        assert await memory.retrieve("user:ada") == []
        assert len(_upkeep()) == 1
    await memory.close()
    assert _upkeep() == []
