"""What it costs to start: whole processes, nothing subtracted; a Python that does nothing stands beside."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.measure import Figure

RUNS = 10


def taken(commands: list[list[str]]) -> list[float]:
    """The median milliseconds of each command over ten runs, taking turns, after one that warms the disk."""
    times: list[list[float]] = [[] for _ in commands]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(RUNS + 1):
            for command, milliseconds in zip(commands, times, strict=True):
                begun = time.perf_counter()
                subprocess.run(command, cwd=folder, check=True, capture_output=True)
                if number:
                    milliseconds.append((time.perf_counter() - begun) * 1000)
    return [median(t) for t in times]


async def starts(folder: Path, rounds: int) -> list[Figure]:
    python = sys.executable
    script = Path(python).parent / "memory"
    helping = [str(script)] if script.exists() else [python, "-m", "memory_tiers"]
    bare, imported, used, helped = taken(
        [[python, "-c", "pass"], [python, "-c", "import memory"], [python, "-c", "from memory import Memory"], [*helping, "--help"]]
    )
    return [
        Figure("`import memory`, whole process", imported, "ms", 150, raw=bare),
        Figure("`from memory import Memory`, whole process", used, "ms", raw=bare),
        Figure("`memory --help`, whole process", helped, "ms", 400, raw=bare),
    ]
