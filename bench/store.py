"""One awaited write, and searches in large and in crowded stores."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from bench.measure import Figure, percentile, side_by_side
from bench.raw import RawStore
from bench.texts import questions, sentences
from memory import Memory, Scope

IN_ONE_SCOPE = 10_000
OTHERS, A_SCOPE = 200_000, 100
WRITES = 300
AT_ONCE = 2_000
"""Entries in one call of write_many while a store is filled."""


async def fill(memory: Memory, scope: Scope, contents: list[str]) -> None:
    for start in range(0, len(contents), AT_ONCE):
        await memory.write_many([{"content": c, "scope": scope} for c in contents[start : start + AT_ONCE]])


async def writes(folder: Path, rounds: int) -> list[Figure]:
    contents = sentences(WRITES * rounds + 20, seed=1)
    scope = Scope.user("ada")
    raw = RawStore(folder / "raw-write.db")
    await raw.open()
    async with Memory(f"sqlite:///{folder / 'write.db'}") as memory:

        async def ours(number: int) -> None:
            await memory.write(contents[number], scope=scope)

        async def bare(number: int) -> None:
            await raw.upsert(scope.text, contents[number])

        await side_by_side(20, ours, bare)  # warm
        ours_s, raw_s = await side_by_side(WRITES * rounds, ours, bare)
    await raw.close()
    return [
        Figure(
            "one awaited write, embedding included", ours_s * 1000, "ms", raw=raw_s * 1000, ratio_target=2.5
        )
    ]


async def searches(folder: Path, rounds: int) -> list[Figure]:
    contents = sentences(IN_ONE_SCOPE, seed=2)
    asked = questions(100 * rounds + 10, seed=3)
    scope = Scope.user("ada")
    raw = RawStore(folder / "raw-search.db")
    await raw.open()
    await raw.upsert_many(scope.text, contents)
    async with Memory(f"sqlite:///{folder / 'search.db'}") as memory:
        await fill(memory, scope, contents)
        ours, bare, first = await _timed(memory, scope, asked, raw)
        wrote = []
        for number, query in enumerate(asked[:50]):
            await memory.write(f"{contents[number]} again", scope=scope)
            begun = time.perf_counter()
            await memory.search(query, scope=scope, limit=10)
            wrote.append(time.perf_counter() - begun)
    await raw.close()
    of = f"search over {IN_ONE_SCOPE:,} entries in one scope"
    return [
        Figure(f"{of}, p50", median(ours) * 1000, "ms", 8, raw=median(bare) * 1000),
        Figure(f"{of}, p95", percentile(ours, 0.95) * 1000, "ms", raw=percentile(bare, 0.95) * 1000),
        Figure(f"{of}, right after a write, p50", median(wrote) * 1000, "ms"),
        Figure(f"{of}, the first in a process", first * 1000, "ms"),
    ]


async def crowded(folder: Path, rounds: int) -> list[Figure]:
    asked = questions(100 * rounds + 10, seed=4)
    others = sentences(OTHERS, seed=5)
    mine = Scope.user("ada")
    async with Memory(f"sqlite:///{folder / 'crowded.db'}") as memory:
        begun = time.perf_counter()
        for start in range(0, OTHERS, AT_ONCE):
            drafts = [
                {"content": c, "scope": Scope.user(f"other-{(start + i) // A_SCOPE}")}
                for i, c in enumerate(others[start : start + AT_ONCE])
            ]
            await memory.write_many(drafts)
        filled = OTHERS / (time.perf_counter() - begun)
        await fill(memory, mine, sentences(A_SCOPE, seed=6))
        ours, _, _ = await _timed(memory, mine, asked, None)
    of = f"search over a scope of {A_SCOPE} among {OTHERS:,} others"
    return [
        Figure(f"{of}, p50", median(ours) * 1000, "ms", 3),
        Figure(f"{of}, p95", percentile(ours, 0.95) * 1000, "ms"),
        Figure(f"filling a store with {OTHERS:,} entries, write_many", filled, "entries/s"),
    ]


async def _timed(
    memory: Memory, scope: Scope, asked: list[str], raw: RawStore | None
) -> tuple[list[float], list[float], float]:
    """The seconds of each search, ours and the raw engine's in turn, and of our very
    first.
    """
    ours, bare = [], []
    found = 0
    for query in asked:
        begun = time.perf_counter()
        found += len(await memory.search(query, scope=scope, limit=10))
        ours.append(time.perf_counter() - begun)
        if raw is not None:
            begun = time.perf_counter()
            await raw.search(scope.text, query)
            bare.append(time.perf_counter() - begun)
    assert found >= len(asked), "searches that find nothing measure nothing"
    return ours[10:], bare[10:], ours[0]
