"""Messages found by meaning, on the default file: what an append costs with and
without, how long until they are found, and a search of 10,000.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, Literal

from bench.measure import Figure, seconds, side_by_side
from bench.texts import sentences
from memory import Memory
from memory.facade.runtime.access import engine_of

CALLS, HELD, SESSIONS = 1_000, 10_000, 20
ASKED = (
    "where does she live",
    "what was said about the trip",
    "favourite food",
    "a problem at work",
    "plans for the summer",
    "music at the party",
)


async def messages(folder: Path, rounds: int) -> list[Figure]:
    said = sentences(400, seed=23)
    async with (
        Memory(_config(folder, "off")) as without,
        Memory(_config(folder, "home")) as memory,
        Memory(_config(folder, "home")) as other,
    ):
        sessions = [without.session("s"), memory.session("s")]

        def append(session: Any) -> Callable[[int], Awaitable[object]]:
            return lambda number: session.append({"role": "user", "content": said[number % len(said)]})

        for session in sessions:
            await append(session)(0)
        off, home = await side_by_side(CALLS, *map(append, sessions))
        await memory.admin.sweep()
        until = [await _until_found(memory, other, f"zeppelin {number}") for number in range(rounds)]
    async with Memory(_config(folder, "home", "many")) as memory:
        for number in range(SESSIONS):
            session, each = memory.session(f"s{number}"), HELD // SESSIONS
            await session.append(
                [{"role": "user", "content": f"{said[n % len(said)]} ({number}, {n})"} for n in range(each)]
            )
        made = await seconds(engine_of(memory).conversations.passages.catch_up)
        modes: tuple[Literal["lexical", "semantic", "hybrid"], ...] = ("lexical", "semantic", "hybrid")
        found = [
            median(
                [
                    await seconds(lambda q=q, mode=mode: memory.search_messages(q, mode=mode))  # type: ignore[misc]
                    for q in ASKED * rounds
                ]
            )
            for mode in modes
        ]
    return [
        Figure(
            "messages: append, found by meaning behind it",
            home * 1000,
            "ms",
            raw=off * 1000,
            ratio_target=1.05,
            note="raw: by words alone",
        ),
        Figure("messages: until another process finds it by meaning", median(until), "s", 5.0),
        Figure(f"messages: {HELD:,} made ready", made, "s"),
        *(
            Figure(f"messages: search of {HELD:,}, {mode}", value * 1000, "ms")
            for mode, value in zip(modes, found, strict=True)
        ),
    ]


def _config(folder: Path, meaning: str, name: str = "") -> dict[str, Any]:
    url = f"sqlite:///{folder / (name or meaning)}.db"
    return {"tiers": dict.fromkeys(("short", "mid", "long"), url), "conversations": {"meaning": meaning}}


async def _until_found(memory: Memory, other: Memory, text: str) -> float:
    said = f"{text} over the glacier"
    await memory.session("s").append({"role": "user", "content": said})
    begun = time.perf_counter()
    while True:
        hits = await other.search_messages(said, mode="semantic", limit=3)
        if said in [hit.message.text for hit in hits]:
            return time.perf_counter() - begun
        await asyncio.sleep(0.02)
