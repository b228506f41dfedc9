"""`python -m bench`: measure, print a table; `--json FILE` also writes the numbers. Say
what falls short, also here.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import (
    artifacts,
    browse,
    conversations,
    edge,
    graph,
    injection,
    keys,
    loops,
    mcp,
    messages,
    million,
    mongo,
    mysql,
    postgresql,
    redis,
    relevance,
    retrieval,
    rivals,
    scopes,
    servers,
    sessions,
    speed,
    startup,
    store,
    subtrees,
    whole,
    windows,
)
from bench.measure import Figure, report

MEASUREMENTS: dict[str, Callable[[Path, int], Awaitable[list[Figure]]]] = {
    "start": startup.starts,
    "artifacts": artifacts.artifacts,
    "import": conversations.imports,
    "write": store.writes,
    "search": store.searches,
    "crowded": store.crowded,
    "redis": redis.redis,
    "postgresql": postgresql.postgresql,
    "mysql": mysql.mysql,
    "mongo": mongo.mongo,
    "million": million.million,
    "edge": edge.searches,
    "whole": whole.whole,
    "browse": browse.browse,
    "keys": keys.keys,
    "scopes": scopes.scopes,
    "subtrees": subtrees.subtrees,
    "graph": graph.graph,
    "sessions": sessions.sessions,
    "windows": windows.windows,
    "messages": messages.messages,
    "rivals": rivals.rivals,
    "retrieval": retrieval.retrieval,
    "relevance": relevance.relevance,
    "speed": speed.speed,
    "injection": injection.injections,
    "loops": loops.loops,
    "mcp": mcp.mcp,
    "servers": servers.servers,
}


def measure(name: str, rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="memory-bench-") as folder:
        return list(asyncio.run(_awaited(MEASUREMENTS[name](Path(folder), rounds))))


async def _awaited(figures: Awaitable[list[Figure]]) -> list[Figure]:
    return await figures


def main() -> int:
    if sys.argv[1:2] == ["relevance"]:
        return relevance.main(sys.argv[2:])
    if sys.argv[1:2] == ["retrieval"] and "".join(sys.argv[2:3]).startswith("-"):  # it has options of its own
        return retrieval.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what", nargs="*", help=f"one or more of {', '.join(MEASUREMENTS)}; all where none is named"
    )
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
    report(figures, arguments.json, f"medians of {arguments.rounds} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
