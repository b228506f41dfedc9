"""One memory with `loop="own"` under eight threads and four event loops, whose calls are
cancelled at random: each call ends, and nothing that was acknowledged is lost.

CI makes a fixed number of calls, `make nightly` calls for ten seconds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import faulthandler
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import BufferProvider, Memory, MemoryManager, NamedStore
from tests.support.depth import FIRST_SEED, NIGHTLY, beyond
from tests.support.places import ONE_FILE, on
from tests.support.placings import STORIES, forget

LOOPS = 4
TASKS = 6
"""Tasks of each loop that call at once."""
CALLS = 40
"""Calls of each task and each thread, where no time is given."""
SECONDS = 10.0 if NIGHTLY else 0.0
HANGS = 120.0
"""Seconds after the last call began, after which one is taken to hang."""
SCOPES = [f"user:{name}" for name in ("ada", "bob", "cyd")]
PLACES = [
    ONE_FILE,
    *(on(placing, *beyond(placing.name, (), {"redis-postgres-edge"})) for placing in STORIES),
]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    yield request.param(tmp_path)
    forget(tmp_path)


class Caller:
    """Calls of one task or thread, and their outcomes."""

    def __init__(self, memory: Memory, name: str, seed: int) -> None:
        self.memory = memory
        self.name = name
        self.draw = random.Random(seed)  # noqa: S311 - draws, no secrets
        self.begun = 0
        self.outcomes = Counter[str]()
        self.written: dict[str, str] = {}
        """The ids of acknowledged entries, by key."""
        self.unknown: dict[str, dict[str, Any]] = {}
        """The arguments of cancelled writes, by key."""
        self.appended: list[str] = []
        """The ids of acknowledged messages."""
        self.tasks: list[str] = []
        """The ids of acknowledged tasks of session `s1`."""
        self.files: dict[str, bytes] = {}
        """The bytes of acknowledged files of session `s1`, by path."""
        self.provider = BufferProvider(memory, namespace="runs")
        self.turns: list[str] = []
        """The texts of acknowledged turns."""
        self.errors: list[BaseException] = []
        self._until = time.monotonic() + SECONDS

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self._until if SECONDS else self.begun < CALLS

    def call(self) -> tuple[Any, float | None]:
        """The next call, and the seconds after which it is cancelled; None if never."""
        self.begun += 1
        kinds = [
            *(self._write, self._write, self._write_elsewhere, self._append, self._stream, self._read),
            *(self._iterate, self._save_task, self._put_file, self._run_turn, self._ask_manager),
        ]
        return self.draw.choice(kinds)(f"{self.name}-{self.begun}"), self.draw.choice(
            [None, None, 0.0, self.draw.random() * 0.005, self.draw.random() * 0.05]
        )

    def note(self, error: BaseException | None) -> None:
        ended = isinstance(error, asyncio.CancelledError | concurrent.futures.CancelledError | TimeoutError)
        self.outcomes["done" if error is None else "cancelled" if ended else "failed"] += 1
        if error is not None and not ended:
            self.errors.append(error)

    async def _write(self, key: str) -> None:
        given: dict[str, Any] = {"content": f"fact {key}", "scope": self.draw.choice(SCOPES), "key": key}
        self.unknown[key] = given
        entry = await self.memory.write(**given)
        del self.unknown[key]
        self.written[key] = entry.id

    async def _write_elsewhere(self, key: str) -> None:
        other = self.memory.for_tenant("other").scoped(self.draw.choice(SCOPES))
        entry = await other.write(f"theirs {key}", key=key)
        assert entry.id in [found.id for found in (await other.browse(limit=1_000))]

    async def _save_task(self, key: str) -> None:
        await self.memory.session("s1").tasks.save(key, title=f"task {key}")
        self.tasks.append(key)

    async def _put_file(self, key: str) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for number in range(3):
                await asyncio.sleep(0)
                yield f"{key} {number} ".encode()

        stored = await self.memory.artifacts.put("s1", f"{key}.txt", pieces())
        self.files[key] = b"".join([piece async for piece in self.memory.artifacts.stream(stored.id)])

    async def _run_turn(self, key: str) -> None:
        async with self.provider.turn(f"turn {key}", "r1", limit=4) as turn:
            turn.add({"role": "assistant", "content": f"answer {key}"})
        self.turns.append(f"turn {key}")

    async def _ask_manager(self, key: str) -> None:
        ada = NamedStore("ada", self.memory.scoped("user:ada"))
        async with MemoryManager([ada]) as manager:
            await manager.dispatch("search_memory", {"query": "fact"})

    async def _append(self, key: str) -> None:
        session = self.memory.session(self.draw.choice(["s1", "s2"]))
        await session.append({"role": "user", "content": f"message {key}", "id": key})
        self.appended.append(key)

    async def _stream(self, key: str) -> None:
        session = self.memory.session(self.draw.choice(["s1", "s2"]))
        async with session.stream(message_id=key) as out:
            await out.write("begun ")
            await out.write("and ended")
        self.appended.append(key)

    async def _read(self, key: str) -> None:
        scope = self.draw.choice(SCOPES)
        await self.memory.search("fact", scope=scope, limit=3)
        await self.memory.session("s1").context(500)
        for known in self.draw.sample(sorted(self.written.values()), min(2, len(self.written))):
            assert await self.memory.get(known) is not None

    async def _iterate(self, key: str) -> None:
        items = self.memory.entries.iterate(self.draw.choice(SCOPES))
        async for _ in items:
            if self.draw.random() < 0.2:
                break


async def call_on_a_loop(caller: Caller) -> None:
    """A task of one of the loops: its calls are cancelled by itself, or by a timeout."""
    while caller.goes_on:
        work, cancelled_after = caller.call()
        task = asyncio.ensure_future(work)
        try:
            if cancelled_after is None:
                await task
            elif caller.draw.random() < 0.5:
                async with asyncio.timeout(cancelled_after):
                    await task
            else:
                await asyncio.wait([task], timeout=cancelled_after)
                is_cancelled = task.cancel()
                await task
                assert not is_cancelled, "a cancellation was lost"
        except BaseException as error:  # noqa: BLE001 - noted
            caller.note(error)
        else:
            caller.note(None)


def call_from_a_thread(caller: Caller, loops: list[asyncio.AbstractEventLoop]) -> None:
    """A thread of its own, which hands each call to one of the loops or to a new one."""
    while caller.goes_on:
        work, cancelled_after = caller.call()
        try:
            if caller.draw.random() < 0.3:
                asyncio.run(asyncio.wait_for(work, cancelled_after))
                caller.note(None)
                continue
            running = asyncio.run_coroutine_threadsafe(work, caller.draw.choice(loops))
            try:
                running.result(cancelled_after)
            finally:
                running.cancel()
        except BaseException as error:  # noqa: BLE001 - noted
            caller.note(error)
        else:
            caller.note(None)


def run_all(begin: list[Callable[[], None]]) -> None:
    """Run functions in threads, and fail if one does not come back."""
    threads = [threading.Thread(target=one, daemon=True) for one in begin]
    for thread in threads:
        thread.start()
    until = time.monotonic() + SECONDS + HANGS
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0))
    if any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback(all_threads=True)
        pytest.fail("a call hangs")


@pytest.mark.drawn
def test_no_call_hangs_and_none_is_lost_however_loops_call_and_cancel(place: Any) -> None:
    memory = Memory(place, embedder="none", tenant="loops", loop="own")
    asyncio.run(begin(memory))
    draw = random.Random(FIRST_SEED)  # noqa: S311 - draws, no secrets
    callers = [Caller(memory, f"c{n}", draw.randrange(2**32)) for n in range(LOOPS * TASKS + LOOPS)]
    on_loops, in_threads = callers[:-LOOPS], callers[-LOOPS:]
    loops: list[asyncio.AbstractEventLoop] = [asyncio.new_event_loop() for _ in range(LOOPS)]
    busy = threading.Barrier(LOOPS * 2)

    def run_loop(number: int) -> None:
        async def call() -> None:
            await asyncio.gather(*map(call_on_a_loop, on_loops[number::LOOPS]))
            await asyncio.to_thread(busy.wait)  # the threads may need this loop longer

        with asyncio.Runner(loop_factory=lambda: loops[number]) as runner:
            runner.run(call())

    def run_thread(number: int) -> None:
        call_from_a_thread(in_threads[number], loops)
        busy.wait()

    run_all(
        [
            *(lambda n=n: run_loop(n) for n in range(LOOPS)),
            *(lambda n=n: run_thread(n) for n in range(LOOPS)),
        ]
    )
    assert [error for caller in callers for error in caller.errors] == []
    assert all(caller.outcomes.total() == caller.begun for caller in callers)
    outcomes = sum((caller.outcomes for caller in callers), Counter[str]())
    assert outcomes["cancelled"]
    assert outcomes["done"]
    asyncio.run(check(memory, callers))
    asyncio.run(memory.close())
    assert not [one for one in threading.enumerate() if one.name == "memory-loop"]


async def begin(memory: Memory) -> None:
    await memory.open()
    await memory.sessions.create("s1")


async def check(memory: Memory, callers: list[Caller]) -> None:
    """Everything acknowledged is there once, and a cancelled write can be repeated."""
    for caller in callers:
        for key, given in caller.unknown.items():
            caller.written[key] = (await memory.write(**given)).id
    written = {entry_id for caller in callers for entry_id in caller.written.values()}
    found = [entry.id for scope in SCOPES async for entry in memory.entries.iterate(scope)]
    assert Counter(found) == Counter(written)
    said = Counter[str]()
    for name in ("s1", "s2"):
        history = await every(memory.session(name).history, "items")
        said.update(str(item.message.id) for item in history)
    tasks = {task.id for task in await every(memory.session("s1").tasks.list, "tasks")}
    assert tasks >= {task_id for caller in callers for task_id in caller.tasks}
    for caller in callers:
        assert all(
            data == "".join(f"{key} {number} " for number in range(3)).encode()
            for key, data in caller.files.items()
        )
    runs = await every(memory.session("runs/r1", create=False).history, "items")
    turns = Counter(item.message.text for item in runs)
    assert {turns[text] for caller in callers for text in caller.turns} <= {1}
    appended = {message_id for caller in callers for message_id in caller.appended}
    assert appended <= said.keys()
    assert set(said.values()) == {1}


async def every(listing: Callable[..., Any], name: str) -> list[Any]:
    """The items of all pages of a list."""
    found, cursor = list[Any](), None
    while True:
        page = await listing(limit=1_000, cursor=cursor)
        found += getattr(page, name)
        if (cursor := page.cursor) is None:
            return found
