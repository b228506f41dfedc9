"""An artifact of 100 MB in and out at the facade, on files and on PostgreSQL, beside
the raw driver: the same chunks in calls of the same size.

Raw PostgreSQL is asyncpg on one connection, a row a chunk; raw files are a file a
chunk, each with fsync. What the artifact takes of memory is told by a process of its
own: the most it had, less what it had before.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg

from bench.measure import Figure, resident, side_by_side
from bench.placed import on_each
from memory import Memory
from memory.orchestrator.conversations.blobs.manifests import CHUNK_BYTES, PORTION
from tests.support import postgres_servers
from tests.support.placings import Placing

SCHEMA = "memory_bench_artifacts"
SIZE = 100 * 10**6
AT_LEAST = 0.5
"""Of the raw driver's rate."""
MOST_MORE = 100.0
"""MB of memory."""
Portions = list[list[bytes]]


async def artifacts(folder: Path, rounds: int) -> list[Figure]:
    placings = [
        Placing(
            "files",
            ("file",),
            lambda place: {"tiers": dict.fromkeys(("short", "mid", "long"), f"file://{place / 'files'}")},
        ),
        Placing(
            "postgresql",
            ("postgresql",),
            lambda _: {
                "tiers": dict.fromkeys(("short", "mid", "long"), postgres_servers.container().url(SCHEMA))
            },
        ),
    ]
    return await on_each(placings, folder, "artifacts", lambda placing, place: _on(placing, place, rounds))


async def _on(placing: Placing, place: Path, rounds: int) -> list[Figure]:
    config = placing.config(place) | {"durations": {"sweep_every": 0}, "embedder": "none"}
    raw: _Files | _Rows = _Files(place / "raw") if placing.name == "files" else _Rows()
    await raw.open()
    portions = _portions(os.urandom(SIZE))
    try:
        async with Memory(config) as memory:
            await memory.sessions.create("s1")

            async def put(number: int) -> None:
                await memory.artifacts.put("s1", f"put/{number}", _handed_out(portions))

            async def stream(number: int) -> None:
                assert (
                    sum([len(piece) async for piece in memory.artifacts.stream(("s1", f"put/{number}"))])
                    == SIZE
                )

            async def raw_put(number: int) -> None:
                for at, portion in enumerate(portions):
                    await raw.put(number, at * PORTION, portion)

            async def raw_read(number: int) -> None:
                found = [
                    sum(map(len, await raw.read(number, at * PORTION, len(portion))))
                    for at, portion in enumerate(portions)
                ]
                assert sum(found) == SIZE

            took = await side_by_side(rounds, put, raw_put)
            took += await side_by_side(rounds, stream, raw_read)
        more = await _more_memory(config)
    finally:
        await raw.close()
    put_rate, raw_put_rate, read_rate, raw_read_rate = (SIZE / 10**6 / seconds for seconds in took)
    return [
        *_rates(f"{placing.name}: put an artifact of 100 MB", put_rate, raw_put_rate),
        *_rates(f"{placing.name}: stream it", read_rate, raw_read_rate),
        *(
            Figure(f"{placing.name}: {what} it, memory more", most, "MB", MOST_MORE)
            for what, most in more.items()
        ),
    ]


def _rates(name: str, rate: float, raw: float) -> list[Figure]:
    return [
        Figure(name, rate, "MB/s", raw=raw),
        Figure(f"{name}, of the raw driver's rate", rate / raw, "", AT_LEAST, at_least=True),
    ]


def _portions(data: bytes) -> Portions:
    chunks = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
    return [chunks[start : start + PORTION] for start in range(0, len(chunks), PORTION)]


async def _handed_out(portions: Portions) -> AsyncIterator[bytes]:
    for portion in portions:
        for chunk in portion:
            yield chunk


class _Files:
    """A file a chunk, each on the disk when a call returns."""

    def __init__(self, place: Path) -> None:
        self._place = place

    async def open(self) -> None:
        self._place.mkdir()

    async def put(self, number: int, first: int, chunks: Sequence[bytes]) -> None:
        await asyncio.to_thread(self._put, number, first, chunks)

    def _put(self, number: int, first: int, chunks: Sequence[bytes]) -> None:
        for at, chunk in enumerate(chunks, start=first):
            with (self._place / f"{number}-{at}").open("wb") as file:
                file.write(chunk)
                file.flush()
                os.fsync(file.fileno())

    async def read(self, number: int, first: int, count: int) -> list[bytes]:
        paths = [self._place / f"{number}-{at}" for at in range(first, first + count)]
        return await asyncio.to_thread(lambda: [path.read_bytes() for path in paths])

    async def close(self) -> None:
        return


class _Rows:
    """A row a chunk, a transaction a call."""

    async def open(self) -> None:
        self._connection = await asyncpg.connect(**postgres_servers.container().settings)
        await self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        await self._connection.execute(
            f"CREATE TABLE {SCHEMA}.raw (number integer, at integer, data bytea, PRIMARY KEY (number, at))"
        )

    async def put(self, number: int, first: int, chunks: Sequence[bytes]) -> None:
        rows = [(number, at, chunk) for at, chunk in enumerate(chunks, start=first)]
        await self._connection.executemany(f"INSERT INTO {SCHEMA}.raw VALUES ($1, $2, $3)", rows)  # noqa: S608

    async def read(self, number: int, first: int, count: int) -> list[bytes]:
        asked = f"SELECT data FROM {SCHEMA}.raw WHERE number = $1 AND at = ANY($2::integer[]) ORDER BY at"  # noqa: S608
        return [
            row["data"]
            for row in await self._connection.fetch(asked, number, list(range(first, first + count)))
        ]

    async def close(self) -> None:
        await self._connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        await self._connection.close()


# -- what it takes of memory, in a process of its own ----------------------------------


async def _more_memory(config: dict[str, Any]) -> dict[str, float]:
    """How many MB more a process had at most that put an artifact, one that streamed
    it, and one that replaced it: none ever has it as a whole.
    """
    found = dict[str, float]()
    for what in ("put", "stream", "replace"):
        command = [sys.executable, "-m", "bench.artifacts", what, json.dumps(config)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        assert process.returncode == 0
        found[what] = float(said)
    return found


async def _alone(what: str, config: dict[str, Any]) -> float:
    async def drawn() -> AsyncIterator[bytes]:
        for start in range(0, SIZE, CHUNK_BYTES):
            yield os.urandom(min(CHUNK_BYTES, SIZE - start))

    call: Callable[[Memory], Awaitable[object]] = _read_small if what == "stream" else _put_small
    async with Memory(config) as memory:
        await call(memory)  # what is loaded for the first of all
        before = resident()
        if what != "stream":
            await memory.artifacts.put("s1", "alone", drawn())
        else:
            assert sum([len(piece) async for piece in memory.artifacts.stream(("s1", "alone"))]) == SIZE
        return (_most_resident() - before) / 10**6


def _most_resident() -> int:
    """The most bytes of memory that this process ever had (Linux): its own, not those
    of the process that began it, which getrusage counts too.
    """
    said = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")
    )
    return int(said.split()[1]) * 1024


async def _put_small(memory: Memory) -> None:
    await memory.artifacts.put("s1", "small", b"small")


async def _read_small(memory: Memory) -> None:
    await memory.artifacts.read(("s1", "small"))


if __name__ == "__main__":
    print(asyncio.run(_alone(sys.argv[1], json.loads(sys.argv[2]))))
