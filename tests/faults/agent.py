"""An agent that works on a memory at random and notes what was acknowledged, and the
judge of what must be there afterwards.

Run as a program it is a worker that dies by SIGKILL in the middle of a step of some
protocol: `python -m tests.faults.agent CONFIG TENANT SEED`; what it does it prints, a
JSON list a line: `["?", …]` before a call, `["!", …]` once it was acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from memory import Memory
from memory.domain.errors import StoreError
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.placement import Placement
from tests.support.delivered import undelivered

KINDS = ("write", "write", "update", "update", "update", "move", "move", "delete", "promote", "end")
SESSION, USER = "session:s", "user:ada"
DEADLY = 0.03
"""How likely a write to a store is the one the worker dies at, before or after it."""


@dataclass
class Ledger:
    """What was acknowledged, and what a call of unknown end may have changed."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    """Of each living entry every text it was acknowledged to have, in order."""
    gone: set[str] = field(default_factory=set)
    maybe: dict[str, set[str | None]] = field(default_factory=dict)
    """Texts that an entry may have besides, None for being gone."""
    promoted: set[str] = field(default_factory=set)
    unnamed: int = 0
    """Entries that may be there though nobody was told their ids."""

    def asks(self, kind: str, entry_id: str = "", text: str = "") -> None:
        """A call begins: until it is acknowledged, it may or may not have taken effect."""
        if kind == "update":
            self.maybe.setdefault(entry_id, set()).add(text)
        elif kind in ("delete", "promote"):
            self.maybe.setdefault(entry_id, set()).add(None)
        self.unnamed += kind in ("write", "promote")

    def acknowledges(self, kind: str, entry_id: str = "", text: str = "", new_id: str = "") -> None:
        if kind == "write":
            self.texts[entry_id] = [text]
            self.unnamed -= 1
        elif kind == "update":
            self.texts[entry_id].append(text)
            self.maybe.pop(entry_id, None)
        elif kind == "delete":
            self.texts.pop(entry_id, None)
            self.gone.add(entry_id)
        elif kind == "promote":
            said = self.texts.pop(entry_id)[-1]
            self.texts[new_id] = [said]
            self.promoted.add(new_id)
            self.unnamed -= 1


class Agent:
    """Works on an open memory until `ends()` says so; errors of stores leave a call's
    end unknown.
    """

    def __init__(
        self, memory: Memory, ledger: Ledger, seed: int, say: Callable[[list[str]], None] = lambda _said: None
    ) -> None:
        self.memory = memory
        self.ledger = ledger
        self.random = random.Random(seed)  # noqa: S311
        self.say = say
        self.calls = 0
        self._changed = asyncio.Condition()

    async def work(self, ends: Callable[[], bool]) -> None:
        while not ends():
            self.calls += 1
            await self.one(f"x{self.calls} text")
            async with self._changed:
                self._changed.notify_all()

    async def reaches(self, calls: int) -> None:
        """Wait until it has made so many calls."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.calls >= calls)

    async def one(self, text: str) -> None:
        known = [i for i in self.ledger.texts if i not in self.ledger.maybe]
        kind = self.random.choice(KINDS) if known else "write"
        entry_id = self.random.choice(known) if known and kind != "write" else ""
        if kind == "promote" and entry_id in self.ledger.promoted:
            kind = "update"  # it is where promotions go
        asked = [kind, entry_id, text]
        self.ledger.asks(*asked)
        self.say(["?", *asked])
        try:
            new_id = await self._call(kind, entry_id, text)
        except StoreError:
            return
        told = [kind, new_id or entry_id, text] if kind == "write" else [kind, entry_id, text, new_id]
        self.ledger.acknowledges(*told)
        self.say(["!", *told])

    async def _call(self, kind: str, entry_id: str, text: str) -> str:
        memory = self.memory
        match kind:
            case "write":
                return (await memory.write(text, scope=SESSION)).id
            case "update":
                await memory.update(entry_id, content=text)
            case "move":
                await memory.admin.move([entry_id], self.random.choice(["mid", "long"]))
            case "delete":
                await memory.delete(entry_id)
            case "promote":
                return (await memory.promote(entry_id, USER, delete_original=self.random.random() < 0.5)).id
            case "end":
                await memory.sessions.end("s")
        return ""


async def judged(memory: Memory, ledger: Ledger, passes: Callable[[timedelta], None]) -> list[str]:
    """What of the ledger does not hold once maintenance has been there; empty when all
    does.
    """
    for _ in range(3):
        passes(timedelta(minutes=2))
        report = await memory.admin.sweep()
        assert report.ran
    wrong = [f"maintenance: {said}" for said in (*report.waiting, *report.stays)]
    for entry_id, texts in ledger.texts.items():
        wrong += await _wrong_of(memory, entry_id, texts, ledger.maybe.get(entry_id, set()))
    for entry_id in ledger.gone:
        if await memory.get(entry_id) is not None:
            wrong.append(f"{entry_id} is back")
    every = [entry.id async for entry in memory.entries.iterate()]
    if len(every) != len(set(every)):
        wrong.append("an entry is listed twice")
    unknown = set(every) - set(ledger.texts) - set(ledger.maybe) - _sources(ledger)
    if len(unknown) > ledger.unnamed:
        wrong.append(f"{len(unknown)} entries that nobody wrote")
    if owed := (await memory.admin.stats()).pending_steps:
        wrong.append(f"{owed} records still owe a step")
    return wrong + await undelivered(engine_of(memory))


async def _wrong_of(memory: Memory, entry_id: str, texts: list[str], maybe: set[str | None]) -> list[str]:
    entry = await memory.get(entry_id)
    if entry is None:
        return [] if None in maybe else [f"lost {entry_id}: {texts[-1]}"]
    wrong = []
    if entry.content != texts[-1] and entry.content not in maybe:
        wrong.append(f"{entry_id} says {entry.content!r}, not {texts[-1]!r}")
    history = [version.content for version in await memory.entries.history(entry_id)]
    if [text for text in history if text not in maybe or text in texts] != texts:
        wrong.append(f"history of {entry_id} is {history}, not {texts}")
    roles = [copy.role for copy in await memory.admin.where(entry_id)]
    if roles.count("home") != 1 or "arriving" in roles:
        wrong.append(f"{entry_id} stands as {roles}")
    return wrong


def _sources(ledger: Ledger) -> set[str]:
    """Originals of promotions, of which half are kept and none is looked at again."""
    return {entry_id for entry_id, texts in ledger.maybe.items() if None in texts}


async def _worker(config: dict[str, Any], tenant: str, seed: int) -> None:
    dies = random.Random(seed + 1)  # noqa: S311
    write = Placement.write

    async def deadly(self: Placement, *arguments: Any, **options: Any) -> Any:
        fate = dies.random()
        if fate < DEADLY / 2:
            os.kill(os.getpid(), signal.SIGKILL)
        outcomes = await write(self, *arguments, **options)
        if fate > 1 - DEADLY / 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return outcomes

    async with Memory(config, tenant=tenant) as memory:
        agent = Agent(memory, Ledger(), seed, lambda said: print(json.dumps(said), flush=True))
        for number in range(8):  # something to work on before anything may die
            agent.calls += 1
            await agent.one(f"x{number} born")
        Placement.write = deadly  # type: ignore[method-assign]
        await agent.work(lambda: False)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(_worker(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
