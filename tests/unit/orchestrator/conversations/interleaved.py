"""Calls of several processes on one session, let go one store call at a time in an
order that a seed draws: before it is carried out, and before its answer arrives. Any of
them may die on the way. The short store is away all the time: no call on a session
needs it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from memory.adapters.in_memory import InMemoryStore
from memory.orchestrator.conversations.conversation import Conversation
from tests.unit.orchestrator.conversations.talking import begun, opened, user
from tests.unit.orchestrator.world import DURABLE, Flaky, World


class Gate:
    """Where calls wait until they are let go, while it is shut."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self.shut = False

    async def passed(self) -> None:
        if self.shut:
            turn = asyncio.get_running_loop().create_future()
            self.waiting.append(turn)
            await turn


class Gated(Flaky):
    gate: Gate

    async def on_call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        await self.gate.passed()
        answer = await getattr(InMemoryStore, method)(self, *args, **kwargs)
        await self.gate.passed()
        return answer


@dataclass
class Told:
    """What was acknowledged, as it was: who begins to read after that must see it."""

    appended: list[str] = field(default_factory=list)
    text: int = 0
    """How often the first message was edited: each text is a number."""


class Scene:
    """A session of a few messages, and processes that have it open."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - every run says its seed
        self.world = World()
        self.gate, mid = Gate(), Gated("mid", DURABLE, self.world.clock)
        mid.gate = self.gate
        self.world.mid = mid
        self.world.engine = self.world.another_engine()
        self.told = Told()
        self.wrong: list[str] = []

    async def played(self) -> list[str]:
        """What readers missed, whatever they saw instead."""
        async with self.world:
            self.world.short.down = True
            first = await begun(self.world.engine)
            await first.append([user("0", "edited"), user("so it begins", "start")])
            self.told.appended += ["edited", "start"]
            handles = [first, *[await opened(await self.world.another_process()) for _ in range(3)]]
            for handle in handles[: self.chance.randrange(5)]:
                await handle.context()
            calls: list[Callable[[Conversation], Awaitable[None]]] = [
                self._appends,
                self._appends,
                self._edits,
                self._reads,
                self._reads,
                self._reads,
            ]
            self.chance.shuffle(calls)
            self.gate.shut = True
            tasks = [
                asyncio.create_task(self._calls(handles[number % 4], call))
                for number, call in enumerate(calls)
            ]
            await self._let_go(tasks)
            self.gate.shut = False
            await asyncio.gather(*tasks, return_exceptions=True)
            for handle in (*handles, await opened(await self.world.another_process()), *handles):
                await self._reads(handle)
        return self.wrong

    async def _calls(self, handle: Conversation, call: Callable[[Conversation], Awaitable[None]]) -> None:
        await self.gate.passed()
        await call(handle)

    async def _let_go(self, tasks: list[asyncio.Task[None]]) -> None:
        while not all(task.done() for task in tasks):
            for _ in range(12):
                await asyncio.sleep(0)  # until all that can go on has come to the gate
            if self.chance.random() < 0.01:
                self.chance.choice(tasks).cancel()
            if self.gate.waiting:
                turn = self.gate.waiting.pop(self.chance.randrange(len(self.gate.waiting)))
                if not turn.done():
                    turn.set_result(None)

    async def _appends(self, handle: Conversation) -> None:
        for _ in range(self.chance.randint(1, 2)):
            name = f"m{self.chance.getrandbits(32)}"
            await handle.append([user("said", name)])
            self.told.appended.append(name)

    async def _edits(self, handle: Conversation) -> None:
        await handle.update("edited", {"content": "1"})
        self.told.text = 1

    async def _reads(self, handle: Conversation) -> None:
        for _ in range(self.chance.randint(1, 2)):
            must, text = list(self.told.appended), self.told.text
            messages = {str(message.id): message.text for message in (await handle.context()).messages}
            self.wrong += [f"{name} is missing" for name in must if name not in messages]
            if int(messages.get("edited", "9")) < text:
                self.wrong.append("an edit is missing")
