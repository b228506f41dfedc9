"""Every kind of derivation is in flight while every kind of erasure runs, cut off at a
drawn store call: the erased words are nowhere afterwards.

The deriving process stops at one of its store calls. There another memory erases: of
another process, or the same one where Edge lets only one in. Then the first goes on, or
dies at that call. The eraser may die at one of its calls too. Sweeps do what was left
undone. Afterwards nothing that either reads has the words, and no file has them once
the stores gave room back.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from memory import EveryTurn, ExitedMessages, Extraction, Memory, MemoryManager, NamedStore
from memory.domain.errors import MemoryTiersError, StoreUnavailable
from memory.facade.runtime.access import engine_of
from memory.ports.advisor import Prompt
from memory.ports.record import Record
from tests.support.backends import marks_of
from tests.support.depth import drawn
from tests.support.placings import ORDINARY, STORIES, Placing, forget

CALLS = ("get", "query", "count", "apply", "search", "candidates", "delete_matching")
MESSAGE, LATER = "alphaword onyxfish", "betaword opalbird"
FACT, LATER_FACT = f"fact {MESSAGE}", f"fact {LATER}"
SWEEPS = 3
DEAD = "is dead"


def learn(leaving: ExitedMessages) -> list[dict[str, Any]]:
    return [
        {"content": f"fact {m.text}", "scope": f"session:{leaving.session_id}", "tags": ["fact"]}
        for m in leaving.messages
        if m.role == "user"
    ]


def advise(prompt: Prompt) -> str:
    return "home" if "tags" in prompt.system else f"1\nIt said {FACT}."


def summarise(messages: Sequence[Any]) -> str:
    return "summary: " + " ".join(message.text for message in messages)


class Process:
    """A process whose stores can be made to run something at one of their calls, and to
    answer nothing from then on.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.calls = 0
        self._at: int | None = None
        self._run: Callable[[], Awaitable[object]] | None = None
        self._dies = self._is_dead = False
        for store in engine_of(memory).topology.stores:
            for name in CALLS:
                if (call := getattr(store, name, None)) is not None:
                    setattr(store, name, self._wrapped(store.name, call))

    def _wrapped(self, store: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self._at is not None and self.calls > self._at:
                self._at = None
                if self._run is not None:
                    await self._run()
                self._is_dead = self._dies
            if self._is_dead:
                raise StoreUnavailable(store, DEAD)
            return await call(*args, **kwargs)

        return wrapped

    @asynccontextmanager
    async def stops(
        self, at: int | None, run: Callable[[], Awaitable[object]] | None = None, *, dies: bool
    ) -> AsyncIterator[None]:
        """What is done here stops at that call: there `run` runs, then this goes on, or
        no store answers any more.
        """
        self.calls, self._at, self._run, self._dies = 0, at, run, dies
        try:
            yield
        finally:
            missed, self._at, self._is_dead = self._at, None, False
            if missed is not None and run is not None:
                await run()

    async def erases(self, erasure: str, fact: str, dies_at: int | None) -> list[str]:
        """The words that are to be nowhere now; none where it died at one of its calls."""
        if dies_at is None:
            return await ERASURES[erasure](self.memory, fact)
        async with self.stops(dies_at, dies=True):
            with suppress(MemoryTiersError):
                return await ERASURES[erasure](self.memory, fact)
        return []

    async def sweeps(self) -> None:
        await self.memory.admin.sweep()
        await engine_of(self.memory).enricher.drain()

    async def said(self) -> str:
        return await said_in(self.memory)


class OtherProcess:
    """The same in another process, which goes from story to story."""

    def __init__(self) -> None:
        spawned = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawned.Pipe()
        self._process = spawned.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()

    async def ask(self, call: str, *args: Any) -> Any:
        self._pipe.send((call, args))
        came = await asyncio.to_thread(self._pipe.recv)
        if isinstance(came, BaseException):
            raise came
        return came

    async def erases(self, erasure: str, fact: str, dies_at: int | None) -> list[str]:
        return list(await self.ask("erases", erasure, fact, dies_at))

    async def sweeps(self) -> None:
        await self.ask("sweeps")

    async def said(self) -> str:
        return str(await self.ask("said"))

    def ends(self) -> None:
        self._pipe.send(None)
        self._process.join()


def serve(pipe: Connection) -> None:
    asyncio.run(_served(pipe))


async def _served(pipe: Connection) -> None:
    while (asked := await asyncio.to_thread(pipe.recv)) is not None:
        _, (config,) = asked
        async with Memory(config, **WANTED) as memory:
            process = Process(memory)
            pipe.send(None)
            while (asked := await asyncio.to_thread(pipe.recv))[0] != "closes":
                try:
                    pipe.send(await getattr(process, asked[0])(*asked[1]))
                except MemoryTiersError as error:
                    pipe.send(RuntimeError(repr(error)))
        pipe.send(None)


class Story:
    """What stands before: a message, its summary and the fact that was learnt of it,
    and a session of which nothing was made yet.
    """

    def __init__(self, deriver: Process, eraser: Process | OtherProcess) -> None:
        self.deriver, self.eraser = deriver, eraser
        self.ours = deriver.memory
        self.fact = ""
        self.fork_stands = False
        """Whether a fork has seen what it copied: what is erased then is erased later
        than the fork was made.
        """
        sessions = engine_of(self.ours).conversations.sessions
        settle_fork = sessions.settle_fork

        async def settles(fork: Record) -> None:
            self.fork_stands = True
            await settle_fork(fork)

        sessions.settle_fork = settles  # type: ignore[method-assign]

    async def begin(self) -> None:
        first, later = self.ours.session("s", user="ada"), self.ours.session("t", user="ada")
        await first.append(
            [{"id": "m1", "role": "user", "content": MESSAGE}, {"role": "assistant", "content": "ok"}]
        )
        await first.compact(summarise, keep_last=0)
        await later.append(
            [{"id": "m2", "role": "user", "content": LATER}, {"role": "assistant", "content": "ok"}]
        )
        await self.ours.admin.sweep()
        [fact] = [entry for entry in await self.ours.retrieve("session:s") if entry.content == FACT]
        self.fact = fact.id

    async def promote(self) -> None:
        await self.ours.promote(self.fact, "org:o")

    async def rule(self) -> None:
        await self.ours.session("s", user="ada").end()

    async def compact(self) -> None:
        await self.ours.compact([self.fact], lambda entries: "compacted " + entries[0].content)

    async def fork(self) -> None:
        await self.ours.session("t", user="ada").fork(session_id="f")

    async def summary(self) -> None:
        await self.ours.session("t", user="ada").compact(summarise, keep_last=0)
        await self.ours.admin.sweep()

    async def preview(self) -> None:
        await self.ours.session("t", user="ada").append({"role": "assistant", "content": "more"})
        await self.ours.sessions.list()

    async def enrich(self) -> None:
        await self.ours.write(
            "Bob moved to Porto, no alphaword", scope="session:s", auto_supersede=True, auto_tag=True
        )
        await engine_of(self.ours).enricher.drain()

    async def extract(self) -> None:
        store = NamedStore(
            "work", self.ours.scoped("workspace:w"), writable=True, extraction=Extraction(EveryTurn())
        )
        answer = json.dumps([{"content": LATER_FACT}])
        async with MemoryManager([store], memory=self.ours, model=lambda _: answer) as manager:
            recording = await manager.record(self.ours.session("t", user="ada"))
            await recording.flush()

    async def of_copy(self) -> None:
        copy = await self.ours.promote(self.fact, "user:ada")
        await self.ours.promote(copy.id, "org:o")


async def erase_messages(memory: Memory, fact: str) -> list[str]:
    for session, message in (("s", "m1"), ("t", "m2")):
        await memory.session(session, create=False).erase(message)
    return [MESSAGE, LATER]


async def delete_sessions(memory: Memory, fact: str) -> list[str]:
    for session in ("s", "t"):
        await memory.sessions.delete(session)
    return [MESSAGE]


async def erase_user(memory: Memory, fact: str) -> list[str]:
    await memory.admin.erase_user("ada")
    return [MESSAGE, LATER]


async def erase_tenant(memory: Memory, fact: str) -> list[str]:
    await memory.admin.erase_tenant()
    return [MESSAGE, LATER]


async def erase_scope(memory: Memory, fact: str) -> list[str]:
    await memory.admin.erase("session:s")
    return [FACT]


async def delete_entry(memory: Memory, fact: str) -> list[str]:
    await memory.delete(fact)
    return [FACT]


DERIVATIONS = (
    Story.promote,
    Story.rule,
    Story.compact,
    Story.fork,
    Story.summary,
    Story.preview,
    Story.enrich,
    Story.extract,
    Story.of_copy,
)
ERASURES: dict[str, Callable[[Memory, str], Awaitable[list[str]]]] = {
    each.__name__: each
    for each in (erase_messages, delete_sessions, erase_user, erase_tenant, erase_scope, delete_entry)
}
STAYS = {Story.promote, Story.compact, Story.of_copy}
"""Made by a caller: what these have returned stays where the one entry is deleted that
it was made of.
"""


async def said_in(memory: Memory) -> str:
    """Everything that can be read; what is in quarantine is counted in the statistics,
    and read with the files.
    """
    lines = [repr(line) async for line in memory.admin.export()]
    lines += [f"{entry.content} {entry.tags}" async for entry in memory.entries.iterate()]
    for word in ("alphaword", "betaword"):
        lines += [hit.message.text for hit in await memory.search_messages(word)]
        for scope in ("session:s", "session:t", "user:ada", "org:o", "workspace:w"):
            lines += [hit.entry.content for hit in await memory.search(word, scope=scope)]
    for session in (await memory.sessions.list()).sessions:
        lines.append(str(session.preview))
        handle = memory.session(session.id, create=False)
        lines += [message.text for message in (await handle.context()).messages]
        lines += [item.message.text for item in (await handle.history()).items]
    lines.append(repr(await memory.admin.stats()))
    return "\n".join(lines)


RULES = [{"name": "known", "on": "session_end", "to_scope": "user", "when": {"tag": "fact"}}]
WANTED: dict[str, Any] = {"embedder": "none", "on_window_exit": learn, "promotion": RULES, "advisor": advise}


@asynccontextmanager
async def story(config: Any, other: OtherProcess | None, *, alone: bool) -> AsyncIterator[Story]:
    async with Memory(config, **WANTED) as ours:
        process = Process(ours)
        if alone:
            yield Story(process, process)
        elif other is not None:
            await other.ask("opens", config)
            try:
                yield Story(process, other)
            finally:
                await other.ask("closes")
        else:
            async with Memory(config, **WANTED) as theirs:
                yield Story(process, Process(theirs))


async def play(
    told: Story, derivation: Callable[[Story], Awaitable[None]], erasure: str, at: random.Random
) -> tuple[list[str], str]:
    """One run; the words that are nowhere, and what is wrong with it."""
    await told.begin()
    eraser_dies = at.choice([None, None, at.randrange(40)]) if told.eraser is not told.deriver else None
    gone: list[str] = []
    is_later = False

    async def erases() -> None:
        nonlocal is_later
        is_later = told.fork_stands
        if eraser_dies is not None:
            gone.extend(await told.eraser.erases(erasure, told.fact, eraser_dies))
        if not gone:  # died or not: who asked asks again, as after any error
            gone.extend(await told.eraser.erases(erasure, told.fact, None))

    stops, dies, is_done = at.randrange(45), at.random() < 0.4, False
    async with told.deriver.stops(stops, erases, dies=dies):
        with suppress(MemoryTiersError):
            await derivation(told)
            is_done = True
    for _ in range(SWEEPS):
        for process in (told.deriver, told.eraser):
            await process.sweeps()
    if (
        erasure == "delete_entry" and derivation in STAYS and (is_done or derivation is Story.of_copy)
    ):  # whose first copy may have been returned
        return [], ""
    if erasure == "erase_messages" and is_later:
        gone.remove(LATER)
    for name, process in (("ours", told.deriver), ("theirs", told.eraser)):
        said = await process.said()
        for words in gone:
            if words in said:
                lines = [line for line in said.splitlines() if words in line]
                return (
                    gone,
                    (
                        f"{derivation.__name__} beside {erasure}, at {stops}, dies {dies}, eraser"
                        f" {eraser_dies}: {name} has {lines[:2]}"
                    ),
                )
    for store in engine_of(told.ours).topology.leaves:
        await store.vacuum()
    return gone, ""


def files_with(folder: Path, gone: Sequence[str]) -> list[str]:
    """Files that have words that are to be nowhere: the phrase, or its last word where
    nothing else may hold that.
    """
    words = [text if text == FACT else text.split()[-1] for text in gone]
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [
        f"{file.name} has {word}" for file in files for word in words if word.encode() in file.read_bytes()
    ]


DEFAULT, SERVERS = next(each for each in ORDINARY if each.name == "default"), STORIES[0]


@pytest.mark.parametrize(
    ("placing", "apart"),
    [
        pytest.param(DEFAULT, False, id="default"),
        pytest.param(DEFAULT, True, id="default, two processes"),
        pytest.param(SERVERS, False, id=SERVERS.name, marks=marks_of(*SERVERS.backends)),
    ],
)
@pytest.mark.drawn
async def test_nothing_in_flight_outlives_an_erasure(placing: Placing, apart: bool, tmp_path: Path) -> None:
    pairs = [(derivation, erasure) for derivation in DERIVATIONS for erasure in ERASURES]
    many = drawn(24, 2, 540) if apart else drawn(24, 12, 540) if placing is DEFAULT else drawn(4, 2, 108)
    other = OtherProcess() if apart else None
    wrong: list[str] = []
    for number in range(many):
        at = random.Random(number)  # noqa: S311 - which case is drawn, and where it stops
        derivation, erasure = pairs[(number * 7) % len(pairs)]
        folder = tmp_path / str(number)
        folder.mkdir()
        config = {**placing.config(folder), "durations": {"sweep_every": "0s"}}
        try:
            async with story(config, other, alone=placing is not DEFAULT) as told:
                gone, problem = await play(told, derivation, erasure, at)
            problem = problem or "; ".join(files_with(folder, gone))
            wrong += [f"{number}: {problem}"] if problem else []
        finally:
            forget(folder)
    if other is not None:
        other.ends()
    assert not wrong, "\n".join(wrong)
