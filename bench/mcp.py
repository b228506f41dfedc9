"""How soon `memory mcp` answers: a whole process, from its start to its first answers,
over standard input and output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import Figure

RUNS = 5
_ABOUT = {"clientInfo": {"name": "bench", "version": "1"}}
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
FIRST: dict[str, tuple[str, dict[str, Any]]] = {
    "2025-11-25": ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, **_ABOUT}),
    "2026-07-28": ("server/discover", {"_meta": _META}),
}
"""The first request of a client, by the version of the protocol."""
_CALL = {"name": "search_memory", "arguments": {"query": "tea"}}


def answers_after(folder: Path, protocol: str) -> tuple[float, float]:
    """The seconds from the start of a server to its first answer, and to the answer of
    the first call of a tool, which a client sends at once.
    """
    command = [sys.executable, "-m", "memory_tiers", "mcp", "--config", str(folder / "mcp.db")]
    begun = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        method, params = FIRST[protocol]

        def ask(number: int, method: str, params: dict[str, Any]) -> float:
            assert server.stdin is not None
            assert server.stdout is not None
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.flush()
            answer = json.loads(server.stdout.readline())
            assert answer["id"] == number
            assert "result" in answer
            return time.perf_counter() - begun

        first = ask(1, method, params)
        meta = {"_meta": _META} if protocol == "2026-07-28" else {}
        called = ask(2, "tools/call", {**_CALL, **meta})
        server.stdin.close()
        assert server.wait(30) == 0
    return first, called


async def mcp(folder: Path, rounds: int) -> list[Figure]:
    figures = []
    for protocol in FIRST:
        answers_after(folder, protocol)  # which warms the disk
        taken = [answers_after(folder, protocol) for _ in range(RUNS)]
        first, called = (median(times) * 1000 for times in zip(*taken, strict=True))
        figures += [
            Figure(f"`memory mcp`, {protocol}: start to the first answer", first, "ms", 1_000),
            Figure(f"`memory mcp`, {protocol}: start to the first search", called, "ms"),
        ]
    return figures
