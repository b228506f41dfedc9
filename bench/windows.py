"""The first window that a new process reads of a session, on Redis with PostgreSQL: with
the copy that another process left in Redis, and without it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from bench.measure import Figure
from bench.placed import on_each
from bench.texts import sentences
from memory import Memory
from tests.support.placings import STORIES, Placing

SAID = 1_000
READS = 3


async def windows(folder: Path, rounds: int) -> list[Figure]:
    named = [placing for placing in STORIES if placing.name == "volatile-redis-postgres"]
    return await on_each(named, folder, "windows", lambda placing, place: _on(placing, place, rounds))


async def _on(placing: Placing, folder: Path, rounds: int) -> list[Figure]:
    config = placing.config(folder) | {"durations": {"sweep_every": 0}, "embedder": "none"}
    texts = sentences(400, seed=21)
    said = [{"role": "assistant" if n % 2 else "user", "content": texts[n % len(texts)]} for n in range(SAID)]
    async with Memory(config) as memory:
        for start in range(0, SAID, 500):
            await memory.session("long").append(said[start : start + 500])
    alone, copied = list[float](), list[float]()
    for _ in range(READS * rounds):
        await _lose_copies(config)
        alone.append(_in_new_process(config))  # leaves a copy behind
        copied.append(_in_new_process(config))
    without, with_copy = (median(times) * 1000 for times in (alone, copied))
    name = f"{placing.name}: first window of {SAID:,} in a new process"
    return [
        Figure(f"{name}, without a copy", without, "ms"),
        Figure(f"{name}, with a copy", with_copy, "ms"),
        Figure(f"{name}, with a copy, times the time without", with_copy / without, "", 0.5),
    ]


def _in_new_process(config: dict[str, Any]) -> float:
    """The seconds of the first window that a process of its own reads."""
    command = [sys.executable, "-m", "bench.windows", json.dumps(config)]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(told.stdout)


async def _first_window(config: dict[str, Any]) -> float:
    async with Memory(config) as memory:
        begun = time.perf_counter()
        context = await memory.session("long").context()
        taken = time.perf_counter() - begun
    assert len(context.messages) == SAID
    return taken


async def _lose_copies(config: dict[str, Any]) -> None:
    from redis.asyncio import Redis

    at = urlsplit(config["tiers"]["short"])
    async with Redis(host=at.hostname or "", port=at.port or 0) as client:
        async for key in client.scan_iter(match="*:r:artifacts:*"):
            await client.delete(key)


if __name__ == "__main__":
    print(asyncio.run(_first_window(json.loads(sys.argv[1]))))
