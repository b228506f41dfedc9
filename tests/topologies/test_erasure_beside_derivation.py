"""Every kind of derivation is in flight while every kind of erasure runs, cut off at a drawn store call: the erased words are nowhere afterwards.

The deriving process stops at one of its store calls. There another process erases, or the same one where Edge lets only one in. Then the first goes
on, or dies at that call. The eraser may die at one of its calls too. Sweeps do what was left undone. Nothing that either process reads has the words.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from memory import EveryTurn, Extraction, Leaving, Memory, MemoryManager, NamedStore
from memory.domain.errors import MemoryTiersError, StoreUnavailable
from memory.ports.advisor import Prompt
from tests.support.backends import marks_of
from tests.support.depth import drawn
from tests.support.placings import MONTHS, STORIES, Placing, forget

CALLS = ("get", "query", "count", "apply", "search", "candidates", "delete_matching")
MESSAGE, LATER = "alphaword 555-0199", "betaword 555-0200"
FACT, LATER_FACT = f"fact {MESSAGE}", f"fact {LATER}"
SWEEPS = 3
DEAD = "is dead"


def learn(leaving: Leaving) -> list[dict[str, Any]]:
    return [{"content": f"fact {m.text}", "scope": f"session:{leaving.session_id}", "tags": ["fact"]} for m in leaving.messages if m.role == "user"]


def advise(prompt: Prompt) -> str:
    return "home" if "tags" in prompt.system else f"1\nIt said {FACT}."


def summarise(messages: Sequence[Any]) -> str:
    return "summary: " + " ".join(message.text for message in messages)


class Process:
    """A process whose stores can be made to run something at one of their calls, and to answer nothing from then on."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.calls = 0
        self._at: int | None = None
        self._run: Callable[[], Awaitable[object]] | None = None
        self._dies = self._is_dead = False
        for store in memory._engine.topology.stores:
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
    async def stops(self, at: int | None, run: Callable[[], Awaitable[object]] | None = None, *, dies: bool) -> AsyncIterator[None]:
        """What is done here stops at that call: there `run` runs, then this goes on, or no store answers any more."""
        self.calls, self._at, self._run, self._dies = 0, at, run, dies
        try:
            yield
        finally:
            missed, self._at, self._is_dead = self._at, None, False
            if missed is not None and run is not None:
                await run()


class Story:
    """What stands before: a message, its summary and the fact that was learnt of it, and a session of which nothing was made yet."""

    def __init__(self, deriver: Process, eraser: Process) -> None:
        self.deriver, self.eraser = deriver, eraser
        self.ours, self.theirs = deriver.memory, eraser.memory
        self.fact = ""

    async def begin(self) -> None:
        first, later = self.ours.session("s", user="ada"), self.ours.session("t", user="ada")
        await first.append([{"id": "m1", "role": "user", "content": MESSAGE}, {"role": "assistant", "content": "ok"}])
        await first.compact(summarise, keep_last=0)
        await later.append([{"id": "m2", "role": "user", "content": LATER}, {"role": "assistant", "content": "ok"}])
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
        await self.ours.write("Bob moved to Porto, no alphaword", scope="session:s", auto_supersede=True, auto_tag=True)
        await self.ours._engine.enriching.asked()

    async def extract(self) -> None:
        store = NamedStore("work", self.ours.scoped("workspace:w"), writable=True, extraction=Extraction(EveryTurn()))
        answer = json.dumps([{"content": LATER_FACT}])
        async with MemoryManager([store], memory=self.ours, model=lambda _: answer) as manager:
            recording = await manager.record(self.ours.session("t", user="ada"))
            await recording.flush()

    async def of_copy(self) -> None:
        copy = await self.ours.promote(self.fact, "user:ada")
        await self.ours.promote(copy.id, "org:o")

    async def erase_messages(self) -> list[str]:
        for session, message in (("s", "m1"), ("t", "m2")):
            await self.theirs.session(session, create=False).erase(message)
        return [MESSAGE, LATER]

    async def delete_sessions(self) -> list[str]:
        for session in ("s", "t"):
            await self.theirs.sessions.delete(session)
        return [MESSAGE]

    async def erase_user(self) -> list[str]:
        await self.theirs.admin.erase_user("ada")
        return [MESSAGE, LATER]

    async def erase_tenant(self) -> list[str]:
        await self.theirs.admin.erase_tenant()
        return [MESSAGE, LATER]

    async def erase_scope(self) -> list[str]:
        await self.theirs.admin.erase("session:s")
        return [FACT]

    async def delete_entry(self) -> list[str]:
        await self.theirs.delete(self.fact)
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
ERASURES = (Story.erase_messages, Story.delete_sessions, Story.erase_user, Story.erase_tenant, Story.erase_scope, Story.delete_entry)
STAYS = {Story.promote, Story.compact, Story.of_copy}
"""Made by a caller: what these have returned stays where the one entry is deleted that it was made of."""


async def said_in(memory: Memory) -> str:
    """Everything that can be read."""
    lines = [repr(line) async for line in memory.admin.export()]
    lines += [f"{entry.content} {entry.tags}" async for entry in memory.entries.all()]
    for word in ("alphaword", "betaword"):
        lines += [hit.message.text for hit in await memory.search_messages(word)]
        for scope in ("session:s", "session:t", "user:ada", "org:o", "workspace:w"):
            lines += [hit.entry.content for hit in await memory.search(word, scope=scope)]
    for session in (await memory.sessions.list()).sessions:
        lines.append(str(session.preview))
        handle = memory.session(session.id, create=False)
        lines += [message.text for message in (await handle.context()).messages]
        lines += [item.message.text for item in (await handle.history()).items]
    return "\n".join(lines)


@asynccontextmanager
async def story(config: Any, *, alone: bool) -> AsyncIterator[Story]:
    rules = [{"name": "known", "on": "session_end", "to_scope": "user", "when": {"tag": "fact"}}]
    wanted: dict[str, Any] = {"embedder": "none", "onward": learn, "promotion": rules, "advisor": advise}
    async with Memory(config, **wanted) as ours:
        process = Process(ours)
        if alone:
            yield Story(process, process)
            return
        async with Memory(config, **wanted) as theirs:
            yield Story(process, Process(theirs))


async def play(
    told: Story, derivation: Callable[[Story], Awaitable[None]], erasure: Callable[[Story], Awaitable[list[str]]], at: random.Random
) -> str:
    """One run; what is wrong with it, or nothing."""
    await told.begin()
    eraser_dies = at.choice([None, None, at.randrange(40)]) if told.eraser is not told.deriver else None
    gone: list[str] = []

    async def erases() -> None:
        if eraser_dies is not None:
            async with told.eraser.stops(eraser_dies, dies=True):
                with suppress(MemoryTiersError):
                    gone.extend(await erasure(told))
        if not gone:  # died or not: who asked asks again, as after any error
            gone.extend(await erasure(told))

    stops, dies, is_done = at.randrange(45), at.random() < 0.4, False
    async with told.deriver.stops(stops, erases, dies=dies):
        with suppress(MemoryTiersError):
            await derivation(told)
            is_done = True
    for _ in range(SWEEPS):
        for memory in (told.ours, told.theirs):
            await memory.admin.sweep()
            await memory._engine.enriching.asked()
    if erasure is Story.delete_entry and derivation in STAYS and (is_done or derivation is Story.of_copy):  # whose first copy may have been returned
        return ""
    for name, memory in (("ours", told.ours), ("theirs", told.theirs)):
        said = await said_in(memory)
        for words in gone:
            if words in said:
                lines = [line for line in said.splitlines() if words in line]
                return f"{derivation.__name__} beside {erasure.__name__}, at {stops}, dies {dies}, eraser {eraser_dies}: {name} has {lines[:2]}"
    return ""


PLAYED = (next(each for each in MONTHS if each.name == "default"), STORIES[0])


@pytest.mark.parametrize("placing", [pytest.param(each, id=each.name, marks=marks_of(*each.backends)) for each in PLAYED])
async def test_nothing_in_flight_outlives_an_erasure(placing: Placing, tmp_path: Path) -> None:
    pairs = [(derivation, erasure) for derivation in DERIVATIONS for erasure in ERASURES]
    many = drawn(24, 12, 540) if placing is PLAYED[0] else drawn(4, 2, 108)
    wrong: list[str] = []
    for number in range(many):
        at = random.Random(number)  # noqa: S311 - which case is drawn, and where it stops
        derivation, erasure = pairs[(number * 7) % len(pairs)]
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            async with story({**placing.config(folder), "durations": {"sweep_every": "0s"}}, alone=placing is not PLAYED[0]) as told:
                if problem := await play(told, derivation, erasure, at):
                    wrong.append(f"{number}: {problem}")
        finally:
            forget(folder)
    assert not wrong, "\n".join(wrong)
