"""A session at the facade, on Redis with PostgreSQL and on one SQLite file, beside the
same rows put into the raw stores one after the other.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from bench.large import in_file, large_messages
from bench.measure import Figure, side_by_side
from bench.placed import on_each
from bench.texts import sentences
from memory import Memory
from tests.support import postgres_servers
from tests.support.placings import ORDINARY, Placing

CALLS = 200
LONG, SHORT, SAID = 20_000, 20, 1_000
AT_ONCE, WRITERS, EACH = 200, 8, 40
HELD = 10_000


async def sessions(folder: Path, rounds: int) -> list[Figure]:
    named = [
        placing
        for name in ("volatile-redis-postgres", "default")
        for placing in ORDINARY
        if placing.name == name
    ]
    return await on_each(named, folder, "sessions", lambda placing, place: _on(placing, place, rounds))


async def _on(placing: Placing, folder: Path, rounds: int) -> list[Figure]:
    config = placing.config(folder) | {"durations": {"sweep_every": 0}, "embedder": "none"}
    raw = _Raw(config["tiers"]) if placing.name != "default" else None
    async with Memory(config) as memory:
        if raw is not None:
            await raw.open()
        try:
            return [
                *await _calls(placing.name, memory, raw, rounds),
                *await _many(placing.name, memory, config, rounds),
                *await _lists(placing.name, memory),
                *await large_messages(
                    placing.name,
                    memory,
                    config,
                    raw.execute if raw is not None else in_file(folder / "raw.db"),
                ),
            ]
        finally:
            if raw is not None:
                await raw.close()


async def _calls(name: str, memory: Memory, raw: _Raw | None, rounds: int) -> list[Figure]:
    texts = sentences(400, seed=21)
    short, long = await _filled(memory, SHORT, texts), await _filled(memory, LONG, texts)
    thousand = await _filled(memory, SAID, texts)
    for session in (short, long, thousand):
        await session.context(last=1)

    async def appends(session: Any) -> Callable[[int], Awaitable[object]]:
        return lambda number: session.append({"role": "user", "content": texts[number % len(texts)]})

    turns = [await appends(short), *([raw.append] if raw else [])]
    taken = await side_by_side(CALLS, *turns)
    compared = await side_by_side(
        CALLS, await appends(await _read(memory, SHORT, texts)), await appends(long)
    )
    shown = len((await thousand.context(4_000)).messages)
    reads = [
        lambda _: thousand.context(last=20),
        lambda _: thousand.context(4_000),
        *([raw.newest(20), raw.newest(shown)] if raw else []),
    ]
    if raw is not None:
        await raw.filled(texts)
    read = await side_by_side(CALLS // 4, *reads)
    return [
        _figure(
            f"{name}: append",
            taken[0],
            raw=taken[1] if raw else None,
            ratio=1.7 if raw else None,
            target=None if raw else 1.0,
        ),
        Figure(
            f"{name}: append at {LONG:,} messages, times one at {SHORT}", compared[1] / compared[0], "", 1.1
        ),
        _figure(
            f"{name}: last 20 of {SAID:,}", read[0], raw=read[2] if raw else None, ratio=1.5 if raw else None
        ),
        _figure(
            f"{name}: window under 4,000 tokens",
            read[1],
            raw=read[3] if raw else None,
            ratio=2.0 if raw else None,
        ),
    ]


async def _many(name: str, memory: Memory, config: dict[str, Any], rounds: int) -> list[Figure]:
    said = {"role": "user", "content": sentences(1, seed=22)[0]}
    alone = await _read(memory, 2, [said["content"]])

    async def rate(handles: Sequence[Any], each: int) -> float:
        async def one(handle: Any) -> None:
            for _ in range(each):
                await handle.append(said)

        begun = time.perf_counter()
        await asyncio.gather(*[one(handle) for handle in handles])
        return len(handles) * each / (time.perf_counter() - begun)

    one = median([await rate([alone], CALLS) for _ in range(rounds)])
    many = [await _read(memory, 2, [said["content"]]) for _ in range(AT_ONCE)]
    all_of_them = median([await rate(many, 5) for _ in range(rounds)])
    shared = uuid.uuid4().hex
    await memory.sessions.create(shared)
    async with AsyncExitStack() as stack:
        others = [
            await stack.enter_async_context(Memory(config)) for _ in range(WRITERS)
        ]  # each as another process has it: they share nothing
        in_one = await rate([other.session(shared) for other in others], EACH)
    info = await memory.session(shared).info()
    assert info.message_count == WRITERS * EACH, info
    return [
        Figure(
            f"{name}: {AT_ONCE} sessions appending at once, times the rate of one",
            all_of_them / one,
            "",
            1.5,
            at_least=True,
        ),
        Figure(f"{name}: {WRITERS} writers in one session", in_one, "messages/s", 150, at_least=True),
    ]


async def _lists(name: str, memory: Memory) -> list[Figure]:
    creates = []
    for number in range(0, HELD, AT_ONCE):
        begun = time.perf_counter()
        await memory.sessions.create(f"s{number}", user="ada")
        creates.append(time.perf_counter() - begun)
        await asyncio.gather(
            *[memory.sessions.create(f"s{number + n}", user="bob") for n in range(1, AT_ONCE)]
        )
    lists = []
    for _ in range(20):
        begun = time.perf_counter()
        assert len((await memory.sessions.list(limit=50)).sessions) == 50
        lists.append(time.perf_counter() - begun)
    session = await _filled(memory, SAID, sentences(400, seed=21))
    begun = time.perf_counter()
    assert await session.delete()
    deleted = time.perf_counter() - begun
    return [
        _figure(f"{name}: create", median(creates)),
        _figure(f"{name}: list 50 of {HELD:,}", median(lists), target=10),
        _figure(f"{name}: delete a session of {SAID:,}", deleted, target=300),
    ]


async def _filled(memory: Memory, messages: int, texts: Sequence[str]) -> Any:
    session = await memory.sessions.create()
    said = [
        {"role": "assistant" if n % 2 else "user", "content": texts[n % len(texts)]} for n in range(messages)
    ]
    for start in range(0, messages, 500):
        await session.append(said[start : start + 500])
    return session


async def _read(memory: Memory, messages: int, texts: Sequence[str]) -> Any:
    session = await _filled(memory, messages, texts)
    await session.context(last=1)
    return session


def _figure(
    name: str,
    seconds: float,
    *,
    raw: float | None = None,
    ratio: float | None = None,
    target: float | None = None,
) -> Figure:
    return Figure(
        name, seconds * 1000, "ms", target, raw=None if raw is None else raw * 1000, ratio_target=ratio
    )


class _Raw:
    """What a program by hand does: a row to PostgreSQL, then the same to a list in
    Redis.
    """

    def __init__(self, tiers: dict[str, str]) -> None:
        self._redis_at = urlsplit(tiers["short"])
        self._key = uuid.uuid4().hex
        self._redis: Any = None
        self._postgres: Any = None
        self._place = 0

    async def open(self) -> None:
        import asyncpg
        from redis.asyncio import Redis

        self._redis = Redis(host=self._redis_at.hostname or "", port=self._redis_at.port or 0)
        self._postgres = await asyncpg.connect(**postgres_servers.container().settings)
        await self._postgres.execute(
            "CREATE TABLE IF NOT EXISTS bench_said (session text, place bigint, said jsonb, PRIMARY KEY"
            " (session, place))"
        )

    async def close(self) -> None:
        await self._postgres.execute("DROP TABLE bench_said")
        await self._postgres.close()
        await self._redis.delete(self._key)
        await self._redis.aclose()

    async def execute(self, statement: str, *parameters: object) -> Any:
        return await self._postgres.fetch(statement, *parameters)

    async def append(self, number: int) -> None:
        self._place += 1
        row = json.dumps(
            {"role": "user", "content": f"so it was said, for the {number}th time, that herons are grey"}
        )
        await self._postgres.execute(
            "INSERT INTO bench_said VALUES ($1, $2, $3)", self._key, self._place, row
        )
        await self._redis.rpush(self._key, row)

    async def filled(self, texts: Sequence[str]) -> None:
        rows = [json.dumps({"role": "user", "content": texts[n % len(texts)]}) for n in range(SAID)]
        await self._postgres.executemany(
            "INSERT INTO bench_said VALUES ($1, $2, $3)",
            [(self._key, 10**6 + n, row) for n, row in enumerate(rows)],
        )

    def newest(self, most: int) -> Callable[[int], Awaitable[object]]:
        """From the store that has ours too."""

        async def read(_: int) -> list[Any]:
            asked = "SELECT said FROM bench_said WHERE session = $1 ORDER BY place DESC LIMIT $2"
            return [json.loads(row["said"]) for row in await self._postgres.fetch(asked, self._key, most)]

        return read
