"""What a user waits for, at the facade, on one file and on stores of different kinds: each store may be quick and the whole slow."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from bench.measure import Figure
from bench.placed import on_each
from bench.texts import questions, sentences
from memory import Memory, Scope
from tests.support.placings import MONTHS, Placing

NAMES = ("default", "redis-postgres-edge", "redis-mongo-edge", "postgres-only")
HELD = 2_000
"""Entries of the user whose memory is searched."""
IN_SESSIONS = 5_000
"""Entries of sessions beside an idle sweep, whose rules ask for what of them is old."""
SESSION = 200
BULK, TOGETHER = 10_000, 256
"""Entries that are written in batches of so many."""
CALLS = 60

FACTS = {"type": "reference", "tags": ["fact"]}
"""What the rules that come with the library move onward when a session ends."""


async def whole(folder: Path, rounds: int) -> list[Figure]:
    named = (p for name in NAMES for p in MONTHS if p.name == name)
    return await on_each(named, folder, "everything", lambda placing, place: _on(placing, place, rounds))


async def _on(placing: Placing, folder: Path, rounds: int) -> list[Figure]:
    async with Memory(placing.config(folder) | {"durations": {"sweep_every": 0}}) as memory:
        ada = Scope.user("ada")
        contents = sentences(HELD + CALLS * 4, seed=11)
        await memory.write_many([{"content": c, "scope": ada} for c in contents[:HELD]])
        await memory.admin.sweep()
        spare = iter(contents[HELD:])
        written: list[str] = []

        async def write(scope: Scope) -> None:
            written.append((await memory.write(next(spare), scope=scope)).id)

        chat = Scope.session(uuid.uuid4().hex)
        asked = iter(questions(CALLS * 2, seed=12))
        figures = [
            await _timed(f"{placing.name}: write to a session", lambda: write(chat)),
            await _timed(f"{placing.name}: write to a user", lambda: write(ada)),
            await _timed(f"{placing.name}: get", lambda: memory.get(written[-1])),
            await _timed(f"{placing.name}: retrieve 20 of a user", lambda: memory.retrieve(ada, limit=20)),
            await _timed(f"{placing.name}: search of a user with {HELD:,} entries", lambda: memory.search(next(asked), scope=ada, limit=10)),
            await _timed(f"{placing.name}: update", lambda: memory.update(written[-1], content=next(spare))),
        ]
        figures += await _bulk(placing, memory)
        ends, idle = [], []
        for _ in range(rounds):
            session = uuid.uuid4().hex
            drafts = [{"content": c, "scope": Scope.session(session), **FACTS} for c in sentences(SESSION, seed=13)]
            await memory.write_many(drafts)
            begun = time.perf_counter()
            report = await memory.sessions.end(session)
            ends.append(time.perf_counter() - begun)
            assert len(report.moved) == SESSION, f"{len(report.moved)} of {SESSION} moved"
        for start in range(0, IN_SESSIONS, SESSION):
            await memory.write_many([{"content": c, "scope": Scope.session(uuid.uuid4().hex)} for c in sentences(SESSION, seed=start)])
        await memory.admin.sweep()
        for _ in range(rounds):
            begun = time.perf_counter()
            await memory.admin.sweep()
            idle.append(time.perf_counter() - begun)
        figures.append(Figure(f"{placing.name}: end of a session of {SESSION}, an entry", median(ends) * 1000 / SESSION, "ms", 2))
        figures.append(Figure(f"{placing.name}: a sweep with nothing to do, beside {IN_SESSIONS:,} entries of sessions", median(idle) * 1000, "ms"))
        return figures


async def _bulk(placing: Placing, memory: Memory) -> list[Figure]:
    """Entries a second until all are acknowledged, and until their replicas stand."""
    drafts = [{"content": c, "scope": Scope.user("bulk")} for c in sentences(BULK, seed=14)]
    begun = time.perf_counter()
    for start in range(0, BULK, TOGETHER):
        await memory.write_many(drafts[start : start + TOGETHER])
    acknowledged = time.perf_counter() - begun
    await memory.admin.flush()
    replicated = time.perf_counter() - begun
    named = f"{placing.name}: {BULK:,} written in batches of {TOGETHER}"
    return [
        Figure(f"{named}, acknowledged", BULK / acknowledged, "/s", 0),
        Figure(f"{named}, replicas included", BULK / replicated, "/s", 0),
    ]


async def _timed(name: str, call: Callable[[], Awaitable[object]]) -> Figure:
    """The median of the calls but the first ten."""
    taken = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - begun)
    return Figure(name, median(taken[10:]) * 1000, "ms")
