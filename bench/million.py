"""One file with a million entries of others, beside one with ten thousand: what a user
waits for must not grow with what others remember.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.measure import Figure, resident, side_by_side
from bench.store import AT_ONCE
from bench.texts import questions, sentences
from memory import Memory, Scope

FEW, MANY = 10_000, 1_000_000
A_SCOPE = 100
CALLS = 100
MADE = 20_000
"""Different texts: making a million takes longer than it tells."""
MINE = Scope.user("ada")


async def million(folder: Path, rounds: int) -> list[Figure]:
    """Each call on both files in turn; the larger one's time stands where `raw` is the
    smaller one's.
    """
    async with _memory(folder / "few.db") as few, _memory(folder / "many.db") as many:
        await _fill(few, FEW)
        before = resident()
        await _fill(many, MANY)
        grown = resident() - before
        spare = sentences(CALLS * rounds + 10, seed=8)
        asked = questions(CALLS * rounds + 10, seed=9)

        async def beside(
            what: str, call: Callable[[Memory, int], Awaitable[object]], times: int = CALLS * rounds
        ) -> Figure:
            await side_by_side(10, lambda n: call(few, n), lambda n: call(many, n))
            small, large = await side_by_side(
                times, lambda n: call(few, n + 10), lambda n: call(many, n + 10)
            )
            return Figure(
                f"beside {MANY:,} entries of others ({FEW:,}): {what}", large * 1000, "ms", raw=small * 1000
            )

        return [
            await beside("write", lambda memory, n: memory.write(spare[n], scope=MINE)),
            await beside("newest 20", lambda memory, _: memory.retrieve(MINE, limit=20)),
            await beside(
                f"search of {A_SCOPE}", lambda memory, n: memory.search(asked[n], scope=MINE, limit=10)
            ),
            await beside("a sweep with nothing to do", lambda memory, _: memory.admin.sweep(), rounds),
            Figure(f"memory of the process by {MANY:,} entries more", grown / 2**20, "MB", 300),
        ]


def _memory(path: Path) -> Memory:
    return Memory({"stores": {"main": {"url": f"sqlite:///{path}"}}, "durations": {"sweep_every": 0}})


async def _fill(memory: Memory, others: int) -> None:
    texts = sentences(MADE, seed=5)
    for start in range(0, others, AT_ONCE):
        batch = [
            {"content": texts[i % MADE], "scope": Scope.user(f"other-{i // A_SCOPE}")}
            for i in range(start, start + AT_ONCE)
        ]
        await memory.write_many(batch)
        if start % 100_000 == 0 and others > FEW:
            print(f"{start:,} … ", end="", file=sys.stderr, flush=True)
    await memory.write_many([{"content": c, "scope": MINE} for c in sentences(A_SCOPE, seed=6)])
    await memory.admin.sweep()
