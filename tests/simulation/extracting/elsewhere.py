"""Stores that learn from what is said, as all processes of a run reach them, and as one
does: calls fail, are late, or are a process's last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.domain.message import Message
from tests.simulation.faults import LATEST, Fault, Process, WorkerCrashed
from tests.simulation.loop import seeded

STRIKE = (
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.ERROR_BEFORE,
    Fault.ERROR_AFTER,
    Fault.TIMEOUT,
    Fault.DELAY,
    Fault.CANCELLED,
)
RECORDING = "recording"
"""By what a context says which recording tells."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a store was told at once, by which recording."""

    recording: int
    numbers: tuple[int, ...]
    texts: tuple[str, ...]


@dataclass(slots=True)
class Elsewhere:
    """One store: what it was told, as often as it was, and the facts that it keeps by
    their keys.
    """

    name: str
    calls: list[Call] = field(default_factory=list)
    returned: list[Call] = field(default_factory=list)
    """Those of which whoever told it knows."""
    kept: dict[str, str] = field(default_factory=dict)
    is_down: bool = False
    refused: int = 0

    def heard(self) -> set[str]:
        """All texts that it was told, or keeps."""
        return {text for call in self.calls for text in call.texts} | set(self.kept.values())


class Hears:
    """One that takes messages, as one process reaches it."""

    def __init__(self, there: Elsewhere, process: Process) -> None:
        self._there = there
        self._process = process

    async def search(self, query: str, *, limit: int) -> list[str]:
        return []

    async def add_messages(self, messages: Sequence[Message], context: Mapping[str, Any]) -> None:
        texts = tuple(message.text for message in messages)
        call = Call(context[RECORDING], tuple(context["sequence_numbers"]), texts)

        async def arrives() -> None:
            self._there.calls.append(call)

        await reach(self._there, self._process, arrives)
        self._there.returned.append(call)


class Notes:
    """One that takes facts under keys, as one process reaches it."""

    def __init__(self, there: Elsewhere, process: Process) -> None:
        self._there = there
        self._process = process

    async def search(self, query: str, *, limit: int) -> list[str]:
        return []

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None, *, key: str) -> None:
        async def arrives() -> None:
            self._there.kept[key] = content

        await reach(self._there, self._process, arrives)


async def everything(messages: Sequence[Message], context: Mapping[str, Any]) -> list[str]:
    """What is made of messages: a fact of each."""
    return [message.text for message in messages]


async def reach(there: Elsewhere, process: Process, arrives: Callable[[], Awaitable[None]]) -> None:
    """One call of a store, which may be struck as those of the memory's stores are."""
    if process.dead:
        raise WorkerCrashed(process.name)
    process.calls += 1
    where, plan = (process.operation, process.calls), process.plan
    fault = plan.draw(where, f"tell.{there.name}", STRIKE) if plan.active else None
    if process.trace is not None:
        process.trace(f"tell.{there.name}{f'  *** {fault} ***' if fault else ''}")
    await asyncio.sleep(0)
    if fault is Fault.CRASH_BEFORE:
        process.die()
    if fault in (Fault.DELAY, Fault.TIMEOUT):
        await asyncio.sleep(seeded(plan.seed, *where, 1).random() ** 3 * LATEST)
    if fault is Fault.CANCELLED and process.cancel():
        await asyncio.sleep(LATEST)
    if process.dead:
        raise WorkerCrashed(process.name)
    if there.is_down or fault is Fault.ERROR_BEFORE:
        there.refused += 1
        raise OSError(f"{there.name} is down")
    await arrives()
    if fault is Fault.CRASH_AFTER:
        process.die()
    if fault in (Fault.ERROR_AFTER, Fault.TIMEOUT):
        there.refused += 1
        raise OSError(f"{there.name} does not answer")
    await asyncio.sleep(0)
