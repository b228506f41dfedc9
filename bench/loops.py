"""What a private event loop costs per call: the same calls of one memory on one file,
with `loop="own"` and without, and through the blocking twin.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import Figure
from bench.placed import opened
from memory import BlockingMemory, Memory

CALLS = 300
"""Calls in a row, of each kind and memory and round."""
AT_ONCE = 50
"""Calls of one task group, where calls are made at once."""


async def loops(folder: Path, rounds: int) -> list[Figure]:
    """Medians over all rounds; the memories take turns."""
    times: dict[tuple[str, str], list[float]] = {}
    kept: dict[str, Any] = {"durations": {"sweep_every": 0}, "embedder": "none"}
    async with (
        opened(f"sqlite:///{folder / 'plain.db'}", "none") as plain,
        Memory(f"sqlite:///{folder / 'own.db'}", loop="own", **kept) as own,
    ):
        blocking = BlockingMemory(f"sqlite:///{folder / 'blocking.db'}", **kept)
        with blocking:
            for _ in range(max(rounds, 1) + 1):
                for name, memory in (("plain", plain), ("own", own)):
                    for call, seconds in (await _calls(memory)).items():
                        times.setdefault((call, name), []).append(seconds)
                for call, seconds in (await asyncio.to_thread(_blocking_calls, blocking)).items():
                    times.setdefault((call, "blocking"), []).append(seconds)
    found = {key: median(values[1:]) for key, values in times.items()}  # the first round warms up
    calls = dict.fromkeys(call for call, _ in found)
    return [
        Figure(f"one file, {call}: {title}", found[call, name] * 1e6, "µs", raw=found[call, "plain"] * 1e6)
        for call in calls
        for name, title in (("own", 'loop="own"'), ("blocking", "BlockingMemory"))
        if (call, name) in found
    ]


async def _calls(memory: Memory) -> dict[str, float]:
    entry = await memory.write("Ada prefers tea", scope="user:ada")
    await memory.write_many([{"content": f"fact {n}", "scope": "user:bob"} for n in range(20)])

    async def at_once() -> None:
        await asyncio.gather(*[memory.get(entry.id) for _ in range(AT_ONCE)])

    async def items() -> int:
        count = 0
        async for _ in memory.entries.iterate("user:bob"):
            count += 1
        return count

    return {
        "get": await _median(lambda: memory.get(entry.id)),
        "write": await _median(lambda: memory.write("Ada likes coffee", scope="user:ada")),
        f"get, {AT_ONCE} at once, per call": await _median(at_once, 20) / AT_ONCE,
        "iterate, per entry": await _each(items),
    }


async def _each(items: Callable[[], Awaitable[int]]) -> float:
    begun = time.perf_counter()
    count = await items()
    return (time.perf_counter() - begun) / count


async def _median(call: Callable[[], Awaitable[Any]], calls: int = CALLS) -> float:
    taken = list[float]()
    for _ in range(calls):
        begun = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - begun)
    return median(taken)


def _blocking_calls(memory: BlockingMemory) -> dict[str, float]:
    entry = memory.write("Ada prefers tea", scope="user:ada")
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: memory.get(entry.id),
        "write": lambda: memory.write("Ada likes coffee", scope="user:ada"),
    }
    found = dict[str, float]()
    for name, call in calls.items():
        taken = list[float]()
        for _ in range(CALLS):
            begun = time.perf_counter()
            call()
            taken.append(time.perf_counter() - begun)
        found[name] = median(taken)
    return found
