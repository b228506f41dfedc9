"""`Memory(loop="own")`: one memory for any event loop and any thread."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import json
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from memory import (
    BlockingBufferProvider,
    BlockingMemory,
    BufferProvider,
    CompositeProvider,
    ConfigError,
    InvalidInput,
    Memory,
    MemoryManager,
    NamedStore,
    NotOpen,
    SemanticProvider,
    SlidingWindowProvider,
    SummarizingProvider,
    WrongEventLoop,
)
from memory.facade.memory import NOUNS
from memory.facade.resources.session import Session
from memory.facade.runtime.own_loop import own_loop_class
from memory.facade.runtime.proxies import MOST_AHEAD
from memory.facade.scoped import ScopedMemory
from memory.ports.base import BaseStore
from memory.ports.contract.cells import cells
from memory.sync.wrapper import blocking_class
from tests.support.backends import marks_of
from tests.support.depth import beyond
from tests.support.placings import STORIES, forget
from tests.unit.facade.test_surface import methods_of
from tools.blocking_stub import TWINS

T = TypeVar("T")
IN_TIME = 60.0
"""Seconds after which a call is taken to hang."""
PROVIDERS: dict[str, Callable[[Memory], Any]] = {
    "buffer": BufferProvider,
    "sliding window": SlidingWindowProvider,
    "summarizing": lambda memory: SummarizingProvider(memory, lambda asked: "so far"),
    "semantic": SemanticProvider,
    "composite": lambda memory: CompositeProvider([BufferProvider(memory)]),
}


def own(config: Any = "memory://", **given: Any) -> Memory:
    loss = {"accept_loss": True} if config == "memory://" else {}
    return Memory(config, **{"embedder": "none", "loop": "own", **loss, **given})


def elsewhere(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What a coroutine returns on a new event loop in a new thread."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(asyncio.run(work()))
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer.result(IN_TIME)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "memory-loop"]


def wait_for_threads() -> None:
    """Wait until every thread of a private loop has ended."""
    for thread in threading.enumerate():
        if thread.name == "memory-loop":
            thread.join(IN_TIME)
    assert threads() == []


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    async with own() as opened:
        yield opened


# -- types -----------------------------------------------------------------------------


@cells("kind", TWINS.values(), ids=lambda kind: str(kind.__name__), shared=True)
def test_its_classes_have_the_names_the_methods_and_the_signatures_of_the_plain_ones(kind: type) -> None:
    proxy = own_loop_class(kind)
    assert issubclass(proxy, kind)
    assert (proxy.__name__, proxy.__module__, proxy.__doc__) == (
        kind.__name__,
        kind.__module__,
        kind.__doc__,
    )
    assert inspect.signature(proxy) == inspect.signature(kind)
    for name, method in methods_of(kind).items():
        found = getattr(proxy, name)
        assert found is not method
        assert inspect.signature(found) == inspect.signature(method)
        assert inspect.iscoroutinefunction(found) == inspect.iscoroutinefunction(method), name


async def test_everything_that_it_returns_is_of_the_same_type_as_of_any_memory(memory: Memory) -> None:
    assert isinstance(memory, Memory)
    assert repr(memory) == "<Memory tenant='default' open>"
    for name, kind in NOUNS.items():
        assert isinstance(getattr(memory, name), kind)
    assert isinstance(memory.session("s"), Session)
    assert isinstance(memory.scoped("user:ada"), ScopedMemory)
    assert isinstance(memory.for_tenant("other"), Memory)
    assert all(isinstance(make(memory), type(make(memory)).__mro__[2]) for make in PROVIDERS.values())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [("other", r"loop: must be 'own', or omitted"), (True, r"loop: must be 'own', or omitted")],
)
def test_another_value_of_the_argument_is_refused(wrong: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Memory("memory://", accept_loss=True, loop=wrong)


def test_a_blocking_memory_has_its_loop_already() -> None:
    with pytest.raises(ConfigError, match="loop: a blocking memory always has"):
        BlockingMemory("memory://", accept_loss=True, loop="own")


def test_a_class_of_the_caller_may_be_made_with_it_but_cannot_ask_for_it_itself() -> None:
    class Mine(Memory):
        async def count(self, scope: str) -> int:
            return len(await self.retrieve(scope))

    class Hidden(Memory):
        def __init__(self) -> None:
            super().__init__("memory://", accept_loss=True, loop="own")

    with pytest.raises(ConfigError, match="loop: must be passed to the class itself"):
        Hidden()

    async def story() -> int:
        async with Mine("memory://", accept_loss=True, embedder="none", loop="own") as mine:
            await mine.write("Ada prefers tea", scope="user:ada")
            return await mine.count("user:ada")

    assert elsewhere(story) == 1


# -- every resource, from any loop -----------------------------------------------------


@pytest.mark.backend("sqlite")
async def test_every_resource_works_from_another_loop_than_the_one_that_opened_it(tmp_path: Path) -> None:
    async with own(f"sqlite:///{tmp_path / 'one.db'}") as memory:
        session, stream = memory.session("s", user="ada"), memory.session("t").stream()

        async def story() -> None:
            tea = await memory.write("Ada prefers tea", scope="user:ada")
            coffee, mate = await memory.write_many(
                [{"content": text, "scope": "user:ada"} for text in ("Ada likes coffee", "Ada tried mate")]
            )
            assert [hit.entry.id for hit in await memory.search("tea", scope="user:ada")] == [tea.id]
            assert [entry.id async for entry in memory.entries.iterate("user:ada")] == [
                tea.id,
                coffee.id,
                mate.id,
            ]
            link = await memory.relations.relate(tea.id, "supersedes", coffee.id)
            assert [one async for one in memory.relations.all()] == [link]
            assert (await memory.short_ids.of([tea.id])).keys() == {tea.id}
            await memory.scratchpads.append("a note")
            assert "a note" in (await memory.scratchpads.read()).content
            assert len(await memory.commands.run("/mem search tea", scope="user:ada")) == 1
            assert memory.admin.route("user:ada").tier == "mid"
            assert await memory.scoped("user:ada").search("mate")
            assert await memory.for_tenant("other").retrieve("user:ada") == []
            await session.append({"role": "user", "content": "hello"})
            await session.tasks.save("t1", title="greet")
            await session.runs.save("r1", child_id="c")
            async with stream as out:
                for piece in ("begun", " and ended"):
                    await out.write(piece)
            assert [m.text for m in (await memory.session("t").context()).messages] == ["begun and ended"]
            assert [one.id for one in (await memory.sessions.list()).sessions] == ["t", "s"]
            assert await memory.admin.legal_holds.list() == []

        elsewhere(story)
        assert [task.id for task in (await session.tasks.list()).tasks] == ["t1"]
        assert len(await memory.retrieve("user:ada")) == 3
        assert await memory.scoped("user:ada").erase() == 3


async def _said(queue: asyncio.Queue[Any]) -> AsyncIterator[Any]:
    """Items that arrive on the loop of the caller only."""
    while (item := await queue.get()) is not None:
        yield item


async def test_async_iterables_of_the_caller_are_read_on_the_caller_s_loop(memory: Memory) -> None:
    await memory.session("s").append({"role": "user", "content": "see the file"})
    for n in range(3):
        await memory.write(f"fact {n}", scope="user:ada")

    async def story() -> bytes:
        queue: asyncio.Queue[Any] = asyncio.Queue(1)

        async def arrive(items: Sequence[Any]) -> None:
            for item in [*items, None]:
                await queue.put(item)

        arriving = asyncio.create_task(arrive([b"one ", b"two ", b"three"]))
        stored = await memory.artifacts.put("s", "notes.txt", _said(queue))
        await arriving
        return b"".join([piece async for piece in memory.artifacts.stream(stored.id)])

    assert elsewhere(story) == b"one two three"
    async with own() as copy:
        await copy.admin.import_(memory.admin.export())
        assert len(await copy.retrieve("user:ada")) == 3


@pytest.mark.parametrize("make", PROVIDERS.values(), ids=PROVIDERS)
async def test_a_provider_that_is_made_from_it_works_from_any_loop(
    memory: Memory, make: Callable[[Memory], Any]
) -> None:
    provider = make(memory)

    async def story() -> list[str]:
        async with provider.turn("my name is Ada", "s1") as turn:
            turn.add({"role": "assistant", "content": "hello Ada"})
        with pytest.raises(LookupError):
            async with provider.turn("lost", "s1"):
                raise LookupError
        return [message.text for message in await provider.read("s1")]

    assert elsewhere(story) == ["my name is Ada", "hello Ada"]
    assert [message.text for message in await provider.read("s1")] == ["my name is Ada", "hello Ada"]
    await provider.clear("s1")
    assert await provider.read("s1") == []


async def test_a_manager_over_its_views_works_from_any_loop(memory: Memory) -> None:
    ada = NamedStore("ada", memory.scoped("user:ada"), writable=True)
    async with MemoryManager([ada], add_tool=True, memory=memory) as manager:

        async def story() -> None:
            await manager.dispatch("add_memory", {"entries": ["Ada prefers tea"]})
            (tool,) = [tool for tool in manager.tools if tool.name == "search_memory"]
            assert await tool(query="tea") == await manager.dispatch("search_memory", {"query": "tea"})
            injected = await manager.inject([{"role": "user", "content": "which tea?"}])
            assert "Ada prefers tea" in str(injected)

        elsewhere(story)
        assert [hit["content"] for hit in await manager.dispatch("search_memory", {"query": "tea"})] == [
            "Ada prefers tea"
        ]


async def test_providers_of_two_such_memories_go_together(memory: Memory) -> None:
    async with own() as second:
        both = CompositeProvider(
            [BufferProvider(memory, namespace="one"), BufferProvider(second, namespace="two")]
        )

        async def story() -> None:
            await both.write([{"role": "user", "content": "hello"}], "s1")

        elsewhere(story)
        for one, namespace in ((memory, "one"), (second, "two")):
            kept = await BufferProvider(one, namespace=namespace).read("s1")
            assert [message.text for message in kept] == ["hello"]


async def test_objects_of_a_memory_on_another_loop_are_refused_beside_it(memory: Memory) -> None:
    async with Memory("memory://", embedder="none", accept_loss=True) as plain:
        stores = [NamedStore("own", memory.scoped("user:ada")), NamedStore("other", plain.scoped("user:ada"))]
        with pytest.raises(InvalidInput, match="ScopedMemory belongs to a memory without loop='own'"):
            MemoryManager(stores)
        providers = [BufferProvider(memory, namespace="one"), BufferProvider(plain, namespace="two")]
        with pytest.raises(InvalidInput, match="BufferProvider belongs to a memory without loop='own'"):
            CompositeProvider(providers)


async def test_a_blocking_provider_of_it_shares_its_loop(memory: Memory) -> None:
    def story() -> list[str]:
        provider: Any = BlockingBufferProvider(memory)  # type: ignore[arg-type]
        provider.write([{"role": "user", "content": "hello"}], "s1")
        return [message.text for message in provider.read("s1")]

    assert await asyncio.to_thread(story) == ["hello"]
    assert [message.text for message in await BufferProvider(memory).read("s1")] == ["hello"]


# -- callbacks, context and errors -----------------------------------------------------

REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")


async def test_callbacks_run_on_the_private_loop_with_the_context_of_their_caller() -> None:
    seen: list[tuple[str, str]] = []

    async def gate(draft: Any, provenance: Any) -> bool:
        seen.append((threading.current_thread().name, REQUEST.get()))
        REQUEST.set("changed by the gate")
        return True

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        seen.append((threading.current_thread().name, REQUEST.get()))
        return [[1.0, float(len(text))] for text in texts]

    async with own(write_gate=gate, embedder=embed) as memory:
        seen.clear()  # opening asks the embedder too
        REQUEST.set("first")
        await memory.write("Ada prefers tea", scope="user:ada")
        assert REQUEST.get() == "first"

        async def story() -> None:
            REQUEST.set("second")
            await memory.write("Bob prefers coffee", scope="user:bob")

        seen_before = list(seen)
        elsewhere(story)
    assert {thread for thread, _ in seen} == {"memory-loop"}
    assert seen_before[0] == ("memory-loop", "first")
    assert seen[len(seen_before)] == ("memory-loop", "second")


class OfTheCallerError(Exception):
    """Of a callback."""


async def test_errors_keep_their_type_and_name_the_callback_that_raised_them(memory: Memory) -> None:
    raised: list[BaseException] = []

    def summarise(entries: Any) -> str:
        raised.append(OfTheCallerError("no idea"))
        raise raised[0]

    entry = await memory.write("Ada prefers tea", scope="user:ada")
    with pytest.raises(Exception, match="no idea") as told:
        await memory.compact([entry.id], summarise)
    cause = told.value.__cause__ or told.value
    assert cause is raised[0]
    assert "summarise" in "".join(traceback.format_exception(told.value))
    with pytest.raises(TypeError, match="scope"):
        await memory.write("without one")  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match=r"did you mean memory\.admin\.stats"):
        _ = memory.stats  # type: ignore[attr-defined]


async def test_a_callback_that_exits_ends_its_caller_and_not_the_loop(memory: Memory) -> None:
    async def leave(entries: Any) -> str:
        raise SystemExit(3)

    entry = await memory.write("Ada prefers tea", scope="user:ada")
    outcome: list[BaseException] = []

    def story() -> None:
        try:
            asyncio.run(memory.compact([entry.id], leave))
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            outcome.append(error)

    thread = threading.Thread(target=story)
    thread.start()
    await asyncio.to_thread(thread.join, IN_TIME)
    assert [type(error) for error in outcome] == [SystemExit]
    assert await memory.get(entry.id) is not None


async def test_a_call_from_one_of_its_callbacks_says_what_to_do() -> None:
    told: list[BaseException] = []

    async def gate(draft: Any, provenance: Any) -> bool:
        try:
            await called.retrieve("user:ada")
        except WrongEventLoop as error:
            told.append(error)
        return True

    async with own(write_gate=gate) as called:
        await called.write("Ada prefers tea", scope="user:ada")
    assert len(told) == 1
    assert "Call it after the callback has returned, or from another thread" in str(told[0])


async def test_a_callback_that_blocks_may_call_it_from_its_thread() -> None:
    found: list[int] = []

    def gate(draft: Any, provenance: Any) -> bool:
        found.append(len(asyncio.run(called.retrieve("user:ada"))))
        found.append(len(BlockingMemory(called).retrieve("user:ada")))
        return True

    async with own(write_gate=gate) as called:
        await called.write("Ada prefers tea", scope="user:ada")
        await called.write("Ada likes coffee", scope="user:ada")
    assert found == [0, 0, 1, 1]


# -- what a task has read --------------------------------------------------------------


async def _reading_and_writing(memory: Memory, run: Callable[[Any], Any]) -> list[list[str]]:
    """The windows of a session after writes of tasks that have read different things.
    `run` awaits a coroutine as a task of an agent.
    """
    session = memory.session("s")
    seen: list[list[str]] = []

    async def note() -> None:
        seen.append([message.text for message in (await memory.session("s").context()).messages])

    async def agent() -> None:
        await session.append([{"role": "user", "content": text} for text in ("one", "two")])
        read = (await session.context()).messages
        await run(_append(memory, "three"))
        await session.replace(read[:1])  # "three" was not seen
        await run(note())
        read = (await session.context()).messages
        async with session.stream() as out:
            await out.write("four")
        await run(_append(memory, "five"))
        await session.replace(read[:1])  # "three" was seen, "four" was written, "five" is unknown
        await run(note())
        await asyncio.wait_for(session.context(), IN_TIME)  # a read in a task of its own
        await session.replace(read[:1])
        await run(note())
        old = (await session.context()).messages
        await run(_append(memory, "six"))
        await session.context()
        await session.replace(old)
        await run(note())

    await run(agent())
    return seen


async def _append(memory: Memory, text: str) -> None:
    await memory.session("s").append({"role": "user", "content": text})


async def test_a_read_of_a_task_counts_for_its_later_write_as_on_one_loop() -> None:
    async def run(work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.create_task(work, context=contextvars.Context())

    async def run_apart(work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.to_thread(contextvars.Context().run, asyncio.run, work)

    async with Memory("memory://", embedder="none", accept_loss=True) as plain:
        expected = await _reading_and_writing(plain, run)
    async with own() as memory:
        assert await _reading_and_writing(memory, run) == expected
    async with own() as memory:
        assert await _reading_and_writing(memory, run_apart) == expected
    assert expected[0] == ["one", "three"]


# -- cancellation ----------------------------------------------------------------------


class Gate:
    """A write gate that waits, and notes that it was cancelled."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.ended: list[str] = []

    async def __call__(self, draft: Any, provenance: Any) -> bool:
        if draft.content != "wait":
            return True
        try:
            self.reached.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)  # what it has to clean up
            self.ended.append("cancelled")
            raise
        return True


async def test_a_cancellation_reaches_the_call_and_comes_back_once_it_has_ended() -> None:
    gate = Gate()
    async with own(write_gate=gate, durations={"deadline": 2 * IN_TIME}) as memory:

        async def expire(limit: asyncio.Timeout) -> None:
            await asyncio.to_thread(gate.reached.wait, IN_TIME)
            limit.reschedule(asyncio.get_running_loop().time())

        async def write_until_it_waits() -> None:
            async with asyncio.timeout(IN_TIME) as limit, asyncio.TaskGroup() as group:
                group.create_task(expire(limit))
                await memory.write("wait", scope="user:ada")

        async def story() -> None:
            writing = asyncio.create_task(memory.write("wait", scope="user:ada"))
            await asyncio.to_thread(gate.reached.wait, IN_TIME)
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            assert gate.ended == ["cancelled"]
            gate.reached.clear()
            with pytest.raises(TimeoutError):
                await write_until_it_waits()
            assert gate.ended == ["cancelled"] * 2

        elsewhere(story)
        assert await memory.retrieve("user:ada") == []


async def test_no_cancellation_is_lost_however_late_it_comes(memory: Memory) -> None:
    """A loop that writes until it is cancelled ends, also if the write is complete."""

    async def forever() -> None:
        while True:
            await memory.retrieve("user:ada")

    for n in range(200):
        task = asyncio.create_task(forever())
        for _ in range(n % 7):
            await asyncio.sleep(0)
        if n % 3 == 0:
            await asyncio.sleep(0.0001 * (n % 11))
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=IN_TIME)
        assert done
        assert task.cancelled()


async def test_an_opening_that_is_cancelled_leaves_nothing_open() -> None:
    for n in range(40):
        memory = own()

        async def enter(memory: Memory = memory) -> None:
            async with memory:
                await asyncio.Event().wait()

        task = asyncio.create_task(enter())
        for _ in range(n % 5):
            await asyncio.sleep(0)
        await asyncio.sleep(0.0005 * (n % 13))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, IN_TIME)
        assert repr(memory) == "<Memory tenant='default' closed>"
    await asyncio.to_thread(wait_for_threads)


async def test_a_call_that_was_cancelled_before_its_first_step_warns_of_nothing(memory: Memory) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for work in (
            memory.retrieve("user:ada"),
            memory.session("s").append({"role": "user", "content": "hello"}),
            memory.__aexit__(None, None, None),
        ):
            task = asyncio.ensure_future(work)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            del work, task
            gc.collect()
        with pytest.warns(RuntimeWarning, match="coroutine 'Memory.retrieve' was never awaited") as told:
            forget_to_await(memory)
        assert len(told) == 1


def forget_to_await(memory: Any) -> None:
    memory.retrieve("user:ada")
    gc.collect()


class Numbers(Memory):
    """A memory with an iteration whose length and error are known."""

    async def count(self, size: int, *, fails: bool) -> AsyncIterator[int]:
        for number in range(size):
            if number % 10 == 0:
                await self.retrieve("user:ada")
            yield number
        if fails:
            raise OfTheCallerError("at the end")


async def numbers_of(items: AsyncIterator[int]) -> list[Any]:
    """The numbers, and the error that ends them."""
    found: list[Any] = []
    try:
        async for number in items:
            found.append(number)
    except OfTheCallerError as error:
        found.append(str(error))
    return found


@pytest.mark.parametrize("size", [0, 1, 64, 65, 200])
async def test_an_iteration_yields_everything_in_order_and_its_error_last(size: int) -> None:
    async with Numbers("memory://", accept_loss=True, embedder="none", loop="own") as numbers:
        assert await numbers_of(numbers.count(size, fails=False)) == list(range(size))
        assert await numbers_of(numbers.count(size, fails=True)) == [*range(size), "at the end"]


async def test_an_iteration_over_a_memory_that_was_closed_does_not_look_complete() -> None:
    numbers = await Numbers("memory://", accept_loss=True, embedder="none", loop="own").open()
    items = numbers.count(1_000, fails=False)
    assert await anext(items) == 0
    await numbers.close()
    with pytest.raises(NotOpen):
        await numbers_of(items)


async def test_an_iteration_left_half_way_ends_on_the_private_loop(memory: Memory) -> None:
    await memory.write_many([{"content": f"fact {n}", "scope": "user:ada"} for n in range(5)])
    items = memory.entries.iterate("user:ada")
    async for entry in items:
        assert entry.content == "fact 0"
        break
    await items.aclose()  # type: ignore[attr-defined]
    assert len([entry async for entry in memory.entries.iterate("user:ada")]) == 5


# -- opening and closing ---------------------------------------------------------------


@pytest.mark.backend("sqlite")
async def test_it_is_opened_and_closed_from_any_loop_again_and_again(tmp_path: Path) -> None:
    memory = own(f"sqlite:///{tmp_path / 'one.db'}")
    for number in range(3):

        async def begin(number: int = number) -> None:
            await memory.open()
            await memory.write(f"fact {number}", scope="user:ada")

        elsewhere(begin)
        assert threads() == ["memory-loop"]
        assert len(await memory.retrieve("user:ada")) == number + 1
        elsewhere(memory.close)
        assert threads() == []
        with pytest.raises(NotOpen):
            await memory.retrieve("user:ada")
        await memory.close()
        await asyncio.to_thread(wait_for_threads)


async def test_a_memory_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "one.db").write_bytes(b"this is no database" * 100)
    memory = own(f"sqlite:///{tmp_path / 'one.db'}")
    with pytest.raises(ConfigError, match="is not a SQLite database"):
        await asyncio.wait_for(memory.open(), IN_TIME)
    await memory.close()
    await asyncio.to_thread(wait_for_threads)


async def test_closing_ends_the_calls_under_way_and_none_hangs() -> None:
    gate = Gate()
    memory = own(write_gate=gate, durations={"deadline": 2 * IN_TIME})
    await memory.open()
    writing = asyncio.create_task(memory.write("wait", scope="user:ada"))
    apart = asyncio.create_task(
        asyncio.to_thread(asyncio.run, _outcome(memory.write("wait", scope="user:bob")))
    )
    await asyncio.to_thread(gate.reached.wait, IN_TIME)
    await asyncio.wait_for(memory.close(), IN_TIME)
    with pytest.raises(NotOpen):
        await asyncio.wait_for(writing, IN_TIME)
    assert isinstance(await asyncio.wait_for(apart, IN_TIME), NotOpen)
    assert threads() == []


@pytest.mark.parametrize("kind", ["own loop", "blocking"])
async def test_closing_lets_the_calls_under_way_finish(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, begun = BaseStore.apply, threading.Semaphore(0)

    async def slow_apply(self: BaseStore, *args: Any, **options: Any) -> Any:
        begun.release()
        await asyncio.sleep(0.3)
        return await apply(self, *args, **options)

    memory: Any = own(f"sqlite:///{tmp_path / 'one.db'}")
    if kind == "blocking":
        memory = BlockingMemory(tmp_path / "one.db", embedder="none")

    async def run(method: Any, *args: Any, **options: Any) -> Any:
        if kind == "blocking":
            return await asyncio.to_thread(method, *args, **options)
        return await method(*args, **options)

    await run(memory.open)
    monkeypatch.setattr(BaseStore, "apply", slow_apply)
    running = [
        asyncio.create_task(run(memory.write, str(n), scope="user:ada", key=str(n), if_exists="replace"))
        for n in range(3)
    ]
    for _ in running:
        await asyncio.to_thread(begun.acquire, timeout=IN_TIME)
    await asyncio.wait_for(run(memory.close), IN_TIME)
    written = [(await asyncio.wait_for(one, IN_TIME)).content for one in running]
    assert written == ["0", "1", "2"]
    await asyncio.to_thread(wait_for_threads)


async def _outcome(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error


async def test_opening_and_closing_side_by_side_leave_it_open_or_closed_and_usable() -> None:
    memory = own()

    async def open_and_close(number: int) -> None:
        for _ in range(5):
            await memory.open()
            await _outcome(memory.write(f"fact {number}", scope="user:ada"))
            await memory.close()

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(lambda n: asyncio.run(open_and_close(n)), number) for number in range(4)]
        for done in running:
            done.result(IN_TIME)
    async with memory:
        await memory.write("usable", scope="user:bob")
    await asyncio.to_thread(wait_for_threads)


EXITS = [
    *(
        pytest.param(
            lambda folder: f"sqlite:///{folder / 'one.db'}",
            way,
            id=f"one-file-{way}",
            marks=pytest.mark.backend("sqlite"),
        )
        for way in ("idle", "busy", "task")
    ),
    *(
        pytest.param(
            placing.config,
            "busy",
            id=f"{placing.name}-busy",
            marks=[*marks_of(*placing.backends), *beyond(placing.name, (), {"redis-postgres-edge"})],
        )
        for placing in STORIES
    ),
]


@pytest.mark.parametrize(("config", "way"), EXITS)
def test_an_interpreter_that_ends_without_a_close_does_not_hang(
    config: Callable[[Path], Any], way: str, tmp_path: Path
) -> None:
    program = """
        import asyncio, json, sys, threading
        from memory import Memory

        async def forever(memory):
            while True:
                await memory.write("again", scope="user:bob")

        async def main():
            memory = Memory(json.loads(sys.argv[1]), embedder="none", loop="own")
            await memory.open()
            await memory.write("Ada prefers tea", scope="user:ada")
            if sys.argv[2] == "busy":
                threading.Thread(target=lambda: asyncio.run(forever(memory)), daemon=True).start()
                await asyncio.sleep(0.05)
            if sys.argv[2] == "task":
                asyncio.create_task(forever(memory))
                await asyncio.sleep(0.05)
            print(len(await memory.retrieve("user:ada")))
            return memory

        kept = asyncio.run(main())
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), json.dumps(config(tmp_path)), way],
        capture_output=True,
        text=True,
        timeout=2 * IN_TIME,
        check=False,
    )
    forget(tmp_path)
    assert (ended.returncode, ended.stdout.strip()) == (0, "1"), ended.stderr


# -- blocking memories -----------------------------------------------------------------


async def test_a_blocking_memory_of_it_is_the_same_memory(memory: Memory) -> None:
    def story() -> list[str]:
        blocking = BlockingMemory(memory)
        blocking.write("Ada prefers tea", scope="user:ada")
        provider = BlockingBufferProvider(blocking)
        provider.write([{"role": "user", "content": "hello"}], "s1")
        return [entry.content for entry in blocking.retrieve("user:ada")]

    assert await asyncio.to_thread(story) == ["Ada prefers tea"]
    assert [entry.content for entry in await memory.retrieve("user:ada")] == ["Ada prefers tea"]
    assert [message.text for message in await BufferProvider(memory).read("s1")] == ["hello"]
    assert threads() == ["memory-loop"]
    with pytest.raises(ConfigError, match="Omit the other arguments"):
        BlockingMemory(memory, tenant="other")


def test_a_blocking_memory_of_it_opens_and_closes_it() -> None:
    memory = own()
    with BlockingMemory(memory) as blocking:
        blocking.write("Ada prefers tea", scope="user:ada")
        assert len(asyncio.run(memory.retrieve("user:ada"))) == 1
    with pytest.raises(NotOpen):
        asyncio.run(memory.retrieve("user:ada"))
    wait_for_threads()


def test_closing_a_blocking_memory_ends_the_calls_of_other_threads() -> None:
    gate = Gate()
    memory = BlockingMemory("memory://", embedder="none", accept_loss=True, write_gate=gate)
    memory.open()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(memory.write, "wait", scope="user:ada")
        assert gate.reached.wait(IN_TIME)
        memory.close()
        with pytest.raises(NotOpen, match="closed while the call was under way"):
            writing.result(IN_TIME)
    with memory:
        assert memory.retrieve("user:ada") == []


def test_a_blocking_call_from_a_callback_says_what_to_do() -> None:
    told: list[BaseException] = []

    async def gate(draft: Any, provenance: Any) -> bool:
        try:
            called.retrieve("user:ada")
        except WrongEventLoop as error:
            told.append(error)
        return True

    with BlockingMemory("memory://", embedder="none", accept_loss=True, write_gate=gate) as called:
        called.write("Ada prefers tea", scope="user:ada")
    assert "Call it after the callback has returned, or from another thread" in str(told[0])


def test_a_blocking_callback_that_exits_ends_its_caller_and_not_the_loop() -> None:
    async def leave(entries: Any) -> str:
        raise SystemExit(3)

    with BlockingMemory("memory://", embedder="none", accept_loss=True) as memory:
        entry = memory.write("Ada prefers tea", scope="user:ada")
        with ThreadPoolExecutor(1) as pool, pytest.raises(SystemExit):
            pool.submit(memory.compact, [entry.id], leave).result(IN_TIME)
        assert memory.get(entry.id) is not None


def test_blocking_memories_are_opened_and_closed_by_many_threads() -> None:
    memory = BlockingMemory("memory://", embedder="none", accept_loss=True)

    def open_and_close(number: int) -> None:
        for _ in range(5):
            memory.open()
            with suppress(NotOpen):
                memory.write(f"fact {number}", scope="user:ada")
            memory.close()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(open_and_close, number) for number in range(4)]:
            done.result(IN_TIME)
    with memory:
        memory.write("usable", scope="user:bob")


def test_an_iteration_that_is_collected_on_the_private_loop_is_ended_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, ignored = list[str](), list[Any]()
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)

    class Counted(Memory):
        async def count(self) -> AsyncIterator[int]:
            try:
                for number in range(2 * MOST_AHEAD):
                    yield number
            finally:
                await asyncio.sleep(0)
                ended.append(threading.current_thread().name)

    async def gate(draft: Any, provenance: Any) -> bool:
        gc.collect()
        return True

    blocking: Any = blocking_class(Counted)
    with blocking("memory://", embedder="none", accept_loss=True, write_gate=gate) as memory:
        gc.disable()
        try:
            cycle: list[Any] = [memory.count()]
            assert next(cycle[0]) == 0
            cycle.append(cycle)
            del cycle
            memory.write("Ada prefers tea", scope="user:ada")
        finally:
            gc.enable()
        memory.retrieve("user:ada")
    assert ended == ["blocking-memory"]
    assert ignored == []


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own answer to SIGINT, also where the tests run in the background: a
    shell lets those ignore it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_of_a_blocking_call_cancels_it() -> None:
    gate, main = Gate(), threading.main_thread().ident or 0

    def interrupt() -> None:
        assert gate.reached.wait(IN_TIME)
        signal.pthread_kill(main, signal.SIGINT)

    if threading.get_ident() != main:
        pytest.skip("signals reach the main thread only")
    with BlockingMemory(
        "memory://", embedder="none", accept_loss=True, write_gate=gate, durations={"deadline": 2 * IN_TIME}
    ) as memory:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            memory.write("wait", scope="user:ada")
        assert memory.retrieve("user:ada") == []
    assert gate.ended == ["cancelled"]
