"""What the HTTP server adds to a call, and how many calls of 50 clients it answers: a
real `memory serve --dev` over the default file, beside the same calls in this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from bench.measure import Figure, percentile
from memory import Memory

ENTRIES, CALLS, CLIENTS, SECONDS = 1_000, 300, 50, 10.0
SCOPE = "user:ada"
WORDS = "tea coffee deploy release garden invoice train concert budget summer".split()
LOADED = {f"MEMORY__SERVER__{name}": "100000" for name in ("RATE", "BURST", "CONCURRENCY")}


class Connection:
    """One connection to the server, kept open, with as little of a client as will do."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n"
        head += "" if body is None else "Content-Type: application/json\r\n"
        head += "" if key is None else f"Idempotency-Key: {key}\r\n"
        self._writer.write(head.encode() + b"\r\n" + data)
        said = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(said.partition("content-length: ")[2].partition("\r\n")[0])
        answer = await self._reader.readexactly(length)
        status = int(said.split()[1])
        assert status < 300, (status, answer)
        return json.loads(answer)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def question(number: int) -> str:
    return f"{WORDS[number % 10]} and {WORDS[number // 10 % 10]}"


async def servers(folder: Path, rounds: int) -> list[Figure]:
    """The calls one after the other, then all clients at once."""
    (served := folder / "served").mkdir()
    url, known = f"sqlite:///{served / 'memory.db'}", list[str]()
    async with Memory(url) as memory:
        drafts = [
            {"content": f"note {n} about {question(n)}", "title": f"Note {n}", "scope": SCOPE}
            for n in range(ENTRIES)
        ]
        known = [entry.id for entry in await memory.write_many(drafts)]
    shutil.copytree(served, folder / "own")  # both parts begin with the same entries
    async with Memory(f"sqlite:///{folder / 'own' / 'memory.db'}") as memory:
        own = await _in_process(memory, known)
    process, port = await asyncio.to_thread(_start, url)
    try:
        over = await _over_http(port, known)
        rate, slowest = await _mixed(port, known)
    finally:
        process.terminate()
        process.wait(30)
    figures = [
        Figure(f"server, {name}: added to p50", (over[name] - own[name]) * 1e3, "ms", limit)
        for name, limit in (("get", 1.0), ("search", 1.0), ("list of 50", 1.0), ("write", 1.0))
    ]
    figures += [Figure(f"server, {name}: p50", over[name] * 1e3, "ms", raw=own[name] * 1e3) for name in own]
    return [
        *figures,
        Figure("server, write with Idempotency-Key: p50", over["repeatable write"] * 1e3, "ms"),
        Figure("server, /health/live: p50", over["live"] * 1e3, "ms"),
        Figure(f"server, {CLIENTS} clients, 60/20/20 mix", rate, "calls/s", 300, at_least=True),
        Figure(f"server, {CLIENTS} clients, 60/20/20 mix: p99", slowest * 1e3, "ms"),
    ]


def _start(url: str) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "memory_tiers", "--config", url, "serve", "--dev", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **LOADED})
    assert process.stdout is not None
    return process, int(process.stdout.readline().rpartition(":")[2])


async def _p50(call: Callable[[int], Awaitable[object]]) -> float:
    taken = []
    for number in range(CALLS + 20):
        begun = time.perf_counter()
        await call(number)
        taken.append(time.perf_counter() - begun)
    return median(taken[20:])


async def _in_process(memory: Memory, known: list[str]) -> dict[str, float]:
    return {
        "get": await _p50(lambda n: memory.get(known[n % ENTRIES])),
        "search": await _p50(lambda n: memory.search(question(n), scope=SCOPE, age_decay=False)),
        "list of 50": await _p50(lambda n: memory.browse(SCOPE, limit=50)),
        "write": await _p50(lambda n: memory.write(f"own {n}", scope=SCOPE)),
    }


async def _over_http(port: int, known: list[str]) -> dict[str, float]:
    line, path = await Connection.open(port), "/v1/memory/entries"
    asked = f"{path}?scope={SCOPE}"
    try:
        return {
            "live": await _p50(lambda n: line.call("GET", "/health/live")),
            "get": await _p50(lambda n: line.call("GET", f"{path}/{known[n % ENTRIES]}")),
            "search": await _p50(lambda n: line.call("GET", f"{asked}&limit=10&q={quote(question(n))}")),
            "list of 50": await _p50(lambda n: line.call("GET", asked)),
            "write": await _p50(lambda n: line.call("POST", path, {"content": f"over {n}", "scope": SCOPE})),
            "repeatable write": await _p50(
                lambda n: line.call("POST", path, {"content": f"once {n}", "scope": SCOPE}, f"w{n}")
            ),
        }
    finally:
        await line.close()


async def _mixed(port: int, known: list[str]) -> tuple[float, float]:
    """The calls per second of all clients, and the time within which 99 % were answered.

    Of ten calls, six search, two read an entry with its neighbours, and two write.
    """
    taken: list[float] = []
    end = time.perf_counter() + SECONDS

    async def client(number: int) -> None:
        line, drawn, path = await Connection.open(port), random.Random(number), "/v1/memory/entries"  # noqa: S311
        while time.perf_counter() < end:
            begun, kind = time.perf_counter(), drawn.randrange(10)
            if kind < 6:
                asked = quote(question(drawn.randrange(100)))
                await line.call("GET", f"{path}?scope={SCOPE}&limit=10&q={asked}")
            elif kind < 8:
                await line.call("GET", f"{path}/{drawn.choice(known)}/expand")
            else:
                await line.call("POST", path, {"content": f"said {drawn.random()}", "scope": SCOPE})
            taken.append(time.perf_counter() - begun)
        await line.close()

    await asyncio.gather(*map(client, range(CLIENTS)))
    return len(taken) / SECONDS, percentile(taken, 0.99)
