"""`python -m bench`: measure, print a table; `--json FILE` also writes the numbers. Say what falls short, also here."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import conversations, edge, messages, mongo, mysql, postgresql, redis, rivals, sessions, startup, store, whole
from bench.measure import Figure, table

MEASUREMENTS: dict[str, Callable[[Path, int], Awaitable[list[Figure]]]] = {
    "start": startup.starts,
    "import": conversations.imports,
    "write": store.writes,
    "search": store.searches,
    "crowded": store.crowded,
    "redis": redis.redis,
    "postgresql": postgresql.postgresql,
    "mysql": mysql.mysql,
    "mongo": mongo.mongo,
    "edge": edge.searches,
    "whole": whole.whole,
    "sessions": sessions.sessions,
    "messages": messages.messages,
    "rivals": rivals.rivals,
    "quality": conversations.quality,
}


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"


def measure(name: str, rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="memory-bench-") as folder:
        return list(asyncio.run(_awaited(MEASUREMENTS[name](Path(folder), rounds))))


async def _awaited(figures: Awaitable[list[Figure]]) -> list[Figure]:
    return await figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", nargs="*", help=f"one or more of {', '.join(MEASUREMENTS)}; all where none is named")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is repeated; the median counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    arguments = parser.parse_args()
    if unknown := [w for w in arguments.what if w not in MEASUREMENTS]:
        parser.error(f"there is no measurement {', '.join(unknown)}")
    figures: list[Figure] = []
    for name in arguments.what or MEASUREMENTS:
        begun = time.perf_counter()
        print(f"{name} … ", end="", file=sys.stderr, flush=True)
        figures += measure(name, arguments.rounds)
        print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)
    print(f"\n{machine()}; medians of {arguments.rounds} rounds; load {os.getloadavg()[0]:.1f}\n\n{table(figures)}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "figures": [f.as_json() for f in figures]}, indent=1) + "\n")
    missed = [f.name for f in figures if f.met is False]
    print("\nEvery target that was measured is met." if not missed else "\nTargets missed: " + "; ".join(missed) + ".")
    return 0


if __name__ == "__main__":
    sys.exit(main())
