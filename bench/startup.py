"""What it costs to start: whole processes, nothing subtracted; a Python that does
nothing stands beside.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.measure import Figure
from bench.store import fill
from bench.texts import questions, sentences
from memory import Memory, Scope

RUNS = 10
SEARCHED = (100, 10_000)
_FIRST = """
import asyncio, sys, time
from memory import Memory, Scope

async def main():
    async with Memory(sys.argv[1], durations={"sweep_every": 0}) as memory:
        begun = time.perf_counter()
        assert await memory.search(sys.argv[2], scope=Scope.user("ada"))
        print(time.perf_counter() - begun)

asyncio.run(main())
"""


def taken(commands: list[list[str]]) -> list[float]:
    """The median milliseconds of each command over ten runs, taking turns, after one
    that warms the disk.
    """
    times: list[list[float]] = [[] for _ in commands]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(RUNS + 1):
            for command, milliseconds in zip(commands, times, strict=True):
                begun = time.perf_counter()
                subprocess.run(command, cwd=folder, check=True, capture_output=True)
                if number:
                    milliseconds.append((time.perf_counter() - begun) * 1000)
    return [median(t) for t in times]


async def first_search(folder: Path, size: int) -> Figure:
    """The first of a process, once its memory is open: it reads the model, and what
    searches keep of the scope.
    """
    url = f"sqlite:///{folder / f'first-{size}.db'}"
    async with Memory(url, durations={"sweep_every": 0}) as memory:
        await fill(memory, Scope.user("ada"), sentences(size, 31))
    command = [sys.executable, "-c", _FIRST, url, questions(1, seed=1)[0]]
    seconds = [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: ASYNC221
        for _ in range(RUNS + 1)
    ]
    return Figure(
        f"the first search in a process, {size:,} entries in the scope", median(seconds[1:]) * 1000, "ms", 200
    )


async def starts(folder: Path, rounds: int) -> list[Figure]:
    python = sys.executable
    script = Path(python).parent / "memory"
    helping = [str(script)] if script.exists() else [python, "-m", "memory_tiers"]
    bare, imported, used, helped = taken(
        [
            [python, "-c", "pass"],
            [python, "-c", "import memory"],
            [python, "-c", "from memory import Memory"],
            [*helping, "--help"],
        ]
    )
    return [
        Figure("`import memory`, whole process", imported, "ms", 150, raw=bare),
        Figure("`from memory import Memory`, whole process", used, "ms", raw=bare),
        Figure("`memory --help`, whole process", helped, "ms", 400, raw=bare),
        *[await first_search(folder, size) for size in SEARCHED],
    ]
