"""What showing a model what memory knows takes beside the search it makes: injection by
a `MemoryManager`, and the same search alone, in turns.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench.measure import Figure, side_by_side
from bench.store import fill
from bench.texts import questions, sentences
from memory import Memory, MemoryManager, NamedStore, Scope

SIZE, ASKED, LIMIT = 10_000, 60, 5
"""Entries of the scope, questions of a round after the first five, and entries that are
shown (E44).
"""


async def injections(folder: Path, rounds: int) -> list[Figure]:
    """On one file."""
    ada, taken = Scope.user("ada"), list[tuple[float, float]]()
    async with Memory(f"sqlite:///{folder / 'injection.db'}", durations={"sweep_every": 0}) as memory:
        await fill(memory, ada, sentences(SIZE, 31))
        view = memory.scoped(ada)
        async with MemoryManager([NamedStore("ada", view)]) as manager:
            for round_ in range(rounds):
                asked = questions(ASKED + 5, seed=round_)

                async def injected(number: int, asked: list[str] = asked) -> None:
                    given = [{"role": "user", "content": asked[number]}]
                    assert await manager.inject(given) != given, "what injects nothing measures nothing"

                async def searched(number: int, asked: list[str] = asked) -> None:
                    assert await view.search(asked[number], limit=LIMIT)

                for number in range(ASKED, ASKED + 5):
                    await injected(number)
                one, other = await side_by_side(ASKED, injected, searched)
                taken.append((one * 1000, other * 1000))
    with_it, alone = (median(times) for times in zip(*taken, strict=True))
    return [
        Figure(
            f"injection, {SIZE:,} entries in the scope, p50; the search alone",
            with_it,
            "ms",
            raw=alone,
            ratio_target=1.2,
        )
    ]
