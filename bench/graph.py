"""What the graph takes: 50 entries within two steps, and a fact that takes the place of
another, beside a plain write.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median

from bench.measure import Figure, side_by_side
from bench.placed import on_each, opened
from bench.store import fill
from bench.texts import sentences
from memory import Entry, Scope
from tests.support.placings import ORDINARY, Placing

OTHERS, BRANCHES, LEAVES = 10_000, 7, 6
"""Entries beside; those one step away, and those behind each of them: with the one in
the middle 50.
"""
CALLS = 60
TARGETS: Mapping[str, float] = {"default": 6, "postgres-only": 12}
NAMES = ("default", "postgres-only", "redis-postgres-edge")
ADA = Scope.user("ada")


async def graph(folder: Path, rounds: int) -> list[Figure]:
    placings = [placing for name in NAMES for placing in ORDINARY if placing.name == name]
    return await on_each(placings, folder, "the graph", lambda placing, place: _on(placing, place, rounds))


async def _on(placing: Placing, folder: Path, rounds: int) -> list[Figure]:
    async with opened(placing.config(folder), "none") as memory:
        await fill(memory, ADA, sentences(OTHERS, seed=31))

        async def fact(number: int) -> Entry:
            return await memory.write(f"fact {number}", scope=ADA)

        middle, number = await fact(0), 0
        for _ in range(BRANCHES):
            branch = await fact(number := number + 1)
            await memory.relations.relate(middle.id, "supports", branch.id)
            for _ in range(LEAVES):
                await memory.relations.relate((await fact(number := number + 1)).id, "refines", branch.id)
        await memory.admin.sweep()

        async def expanded(_: int) -> None:
            assert len((await memory.relations.expand(middle.id, depth=2)).nodes) == 1 + BRANCHES * (
                1 + LEAVES
            )

        async def superseded(number: int) -> None:
            await memory.write(f"version {number}", scope=ADA, supersedes=[(await fact(number)).id])

        async def plain(number: int) -> None:
            await fact(number)

        await side_by_side(5, expanded, superseded, plain)
        taken = [await side_by_side(CALLS, expanded, superseded, plain) for _ in range(rounds)]
        expand, both, write = (1000 * median(times) for times in zip(*taken, strict=True))
        await memory.admin.erase(ADA)
    return [
        Figure(
            f"{placing.name}: expand to {1 + BRANCHES * (1 + LEAVES)} entries in two steps, p50",
            expand,
            "ms",
            TARGETS.get(placing.name),
        ),
        Figure(
            f"{placing.name}: a fact that supersedes another; a plain write", both - write, "ms", raw=write
        ),
    ]
