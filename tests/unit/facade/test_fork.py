"""A memory that a process inherits through `fork` refuses every call at once; the
parent's goes on.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory import (
    BlockingBufferProvider,
    BlockingCompositeProvider,
    BlockingMemory,
    BlockingMemoryManager,
    BufferProvider,
    CompositeProvider,
    ForkedProcess,
    Memory,
    MemoryManager,
    NamedStore,
)
from memory.facade.worker import Worker
from memory.ports.fork_guard import ForkGuard
from tests.support.places import ONE_FILE, on
from tests.support.placings import PLACINGS, forget

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
PLACES = [ONE_FILE, on(PLACINGS[0])]
HANGS = 60.0
"""Seconds after which a child is taken to hang."""


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    yield request.param(tmp_path)
    forget(tmp_path)


def in_child(work: Callable[[], object]) -> Any:
    """What `work` returns in a forked child, or the name of what it raises."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            told = work()
        except BaseException as error:  # noqa: BLE001 - the parent asserts on it
            told = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps(told).encode())
        os._exit(0)
    os.close(writing)
    deadline = time.monotonic() + HANGS
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    with os.fdopen(reading, "rb") as answer:
        return json.loads(answer.read() or b"null")


def refusals(calls: Mapping[str, Callable[[], Any]]) -> dict[str, str]:
    """The calls that do not raise `ForkedProcess`, with what they do instead."""
    wrong = {}
    for name, call in calls.items():
        try:
            wrong[name] = f"returned {call()!r}"
        except ForkedProcess as error:
            if str(os.getppid()) not in str(error) or error.process != os.getppid():
                wrong[name] = str(error)
        except BaseException as error:  # noqa: BLE001 - it is the wrong one
            wrong[name] = f"{type(error).__name__}: {error}"
    return wrong


def test_every_call_of_an_inherited_blocking_memory_is_refused_and_the_parent_goes_on(place: Any) -> None:
    with BlockingMemory(place, embedder="none") as memory:
        memory.write("before the fork", scope="user:ada")
        session, view, other = (
            memory.session("s", user="ada"),
            memory.scoped("user:ada"),
            memory.for_tenant("other"),
        )
        provider, entries = BlockingBufferProvider(memory), memory.entries
        provider.write([{"role": "user", "content": "hello"}], "p")
        composite = BlockingCompositeProvider([provider])
        manager = BlockingMemoryManager(
            [NamedStore("ada", view, writable=True)], add_tool=True, memory=memory
        )
        manager.open()
        recording = manager.record(session)
        stream = session.stream()
        stream.__enter__()
        stream.write("begun")
        said = [{"role": "user", "content": "from the child"}]
        calls: dict[str, Callable[[], Any]] = {
            "write": lambda: memory.write("child", scope="user:ada"),
            "search": lambda: memory.search("fork", scope="user:ada"),
            "open": memory.open,
            "close": memory.close,
            "for_tenant": lambda: memory.for_tenant("third"),
            "other tenant": lambda: other.retrieve("user:ada"),
            "other close": other.close,
            "noun": lambda: list(entries.iterate()),
            "admin": lambda: memory.admin.check(),
            "session": lambda: session.append(said[0]),
            "new session": lambda: memory.session("t").info(),
            "stream": lambda: stream.write("more"),
            "stream's end": stream.finish,
            "view": lambda: view.search("fork"),
            "provider": lambda: provider.read("p"),
            "composite read": lambda: composite.read("p"),
            "composite write": lambda: composite.write(said, "p"),
            "manager search": lambda: manager.search("fork"),
            "manager add": lambda: manager.add("child"),
            "manager tool": lambda: manager.dispatch("search_memory", {"query": "fork"}),
            "manager inject": lambda: manager.inject(said),
            "manager close": manager.close,
            "recording": lambda: recording.add(said),
            "recording flush": recording.flush,
        }
        assert in_child(lambda: refusals(calls)) == {}
        stream.write(" and ended")
        finished = stream.finish()
        assert finished is not None
        assert finished.content == "begun and ended"
        memory.write("after", scope="user:ada")
        assert [entry.content for entry in memory.retrieve("user:ada", order="oldest")] == [
            "before the fork",
            "after",
        ]


@pytest.mark.parametrize("loop", [None, "own"])
def test_every_call_of_an_inherited_async_memory_is_refused_on_any_loop(place: Any, loop: Any) -> None:
    async def stories() -> None:
        async with Memory(place, embedder="none", loop=loop) as memory:
            await memory.write("before the fork", scope="user:ada")
            session, view = memory.session("s", user="ada"), memory.scoped("user:ada")
            await session.append({"role": "user", "content": "hello"})
            provider = BufferProvider(memory)
            manager = MemoryManager([NamedStore("ada", view, writable=True)], add_tool=True)
            await manager.open()
            stream = session.stream()
            await stream.__aenter__()
            said = [{"role": "user", "content": "from the child"}]
            makers: dict[str, Callable[[], Any]] = {
                "write": lambda: memory.write("child", scope="user:ada"),
                "open": memory.open,
                "close": memory.close,
                "session": session.context,
                "stream": lambda: stream.write("from the child"),
                "iteration": lambda: anext(memory.entries.iterate()),
                "command": lambda: memory.commands.run("/mem search tea", scope="user:ada"),
                "worker": Worker(memory, every=timedelta(seconds=1), budget=timedelta(seconds=1)).run,
                "provider": lambda: provider.write(said, "p"),
                "composite": lambda: CompositeProvider([provider]).read("p"),
                "manager search": lambda: manager.search("fork"),
                "manager add": lambda: manager.add("child"),
                "manager inject": lambda: manager.inject(said),
                "manager tool": lambda: manager.dispatch("add_memory", {"entries": ["child"]}),
            }
            calls = {f"{name} on a new loop": partial(_run_apart, make) for name, make in makers.items()}
            calls |= {f"{name} on the inherited loop": partial(_step, make) for name, make in makers.items()}
            assert in_child(lambda: refusals(calls)) == {}
            await memory.write("after", scope="user:ada")
            assert [entry.content for entry in await memory.retrieve("user:ada", order="oldest")] == [
                "before the fork",
                "after",
            ]

    asyncio.run(stories())


def _run_apart(make: Any) -> Any:
    asyncio.events._set_running_loop(None)
    return asyncio.run(make())


def _step(make: Any) -> Any:
    """The first step of a call: it is refused before it waits for anything."""
    call = make()
    try:
        call.send(None)
    finally:
        call.close()


def _child_of_multiprocessing(memory: Any, place: Any, answers: Any) -> None:
    refused = refusals({"write": lambda: memory.write("child", scope="user:ada")})
    with BlockingMemory(place, embedder="none") as own:
        own.write("the child's own memory", scope="user:ada")
    answers.put(refused)


def test_a_forked_worker_opens_a_memory_of_its_own(tmp_path: Path) -> None:
    place, prefork = f"sqlite:///{tmp_path / 'one.db'}", multiprocessing.get_context("fork")
    unopened, answers = BlockingMemory(place, embedder="none"), prefork.SimpleQueue()
    with BlockingMemory(place, embedder="none") as memory:
        worker = prefork.Process(target=_child_of_multiprocessing, args=(memory, place, answers))
        worker.start()
        worker.join(HANGS)
        assert worker.exitcode == 0
        assert answers.get() == {}

        def opened_in_the_worker() -> str:
            with unopened:
                return unopened.write("opened after the fork", scope="user:ada").content

        assert in_child(opened_in_the_worker) == "opened after the fork"
        closed = BlockingMemory(place, embedder="none").open()
        closed.close()
        assert in_child(lambda: len(closed.open().retrieve("user:ada"))) == 2


def test_a_child_that_leaves_the_block_by_an_error_ends_by_that_error(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path / 'one.db'}"

    def leaves(error: BaseException | None) -> None:
        memory.__exit__(None if error is None else type(error), error, None)

    with BlockingMemory(place, embedder="none") as memory:
        assert in_child(lambda: leaves(SystemExit(3))) is None
        assert in_child(lambda: leaves(None)).startswith("ForkedProcess")


def test_no_destructor_of_what_was_inherited_runs_in_the_child() -> None:
    class Connection:
        """Its destructor would take its socket out of the parent's epoll."""

        def __init__(self) -> None:
            self.forks = ForkGuard(self)

        def __del__(self) -> None:
            destroyed.append(os.getpid())

    destroyed: list[int] = []
    inherited, closed = [Connection()], [Connection()]
    inherited[0].forks.acquire()
    closed[0].forks.acquire()
    closed[0].forks.release()

    def collect() -> list[int]:
        counts = []
        for one in (inherited, closed):
            one.clear()
            gc.collect()
            counts.append(len(destroyed))
        return counts

    assert in_child(collect) == [0, 1]
    assert collect() == [1, 2], "in the parent both are collected"


def test_the_folder_of_qdrant_edge_is_free_when_its_opener_closes_it_beside_a_forked_child(
    tmp_path: Path,
) -> None:
    pytest.importorskip("fcntl")
    from memory.adapters.qdrant.edge_folder import Folder

    assert sys.platform != "win32"
    folder = Folder("edge", tmp_path / "edge", 0)
    folder.take()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)  # until the parent has finished
        os._exit(0)
    try:
        folder.give_back()
        Folder("edge", tmp_path / "edge", 0).take()
    finally:
        os.close(writing)
        os.waitpid(child, 0)
