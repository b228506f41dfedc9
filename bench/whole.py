"""What a user waits for, at the facade, on one file and on stores of different kinds:
each store may be quick and the whole slow.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.by_hand import ByHand, stores_by_hand
from bench.measure import Figure, seconds, side_by_side
from bench.placed import on_each
from bench.texts import questions, sentences
from memory import Memory, Scope
from tests.support.placings import ORDINARY, Placing

NAMES = ("default", "redis-postgres-edge", "redis-mongo-edge", "mariadb-edge", "postgres-only")
HELD = 2_000
"""Entries of the user whose memory is searched."""
IN_SESSIONS = 5_000
"""Entries of sessions beside an idle sweep, whose rules ask for what of them is old."""
SESSION = 200
BULK, TOGETHER = 10_000, 256
"""Entries that are written in batches of so many."""
CALLS = 110
AT_ONCE = 200
"""Writes of one process that do not wait for each other."""

COUNTED = ", once the server has counted its rows"

WRITE, SESSIONS_NEWEST, USERS_NEWEST, UPDATE = (
    "write to a user",
    "newest 20 of a session",
    "newest 20 of a user",
    "update",
)
BURST, END, IDLE = (
    f"{AT_ONCE} writes at once",
    f"end of a session of {SESSION}",
    f"a sweep with nothing to do, beside {IN_SESSIONS:,} entries of sessions",
)

MIXED = {WRITE: 2.0, SESSIONS_NEWEST: 2.0, USERS_NEWEST: 1.8, UPDATE: 5.0, END: 180.0, IDLE: 10.0}
ALLOWED = {what: 1.5 * ms for what, ms in MIXED.items()}
TARGETS = {
    "default": {WRITE: 0.8, BURST: 50.0, END: 50.0, IDLE: 10.0},
    "redis-postgres-edge": MIXED,
    "redis-mongo-edge": ALLOWED,
    "mariadb-edge": ALLOWED,
}
"""What issue 14 asks, in milliseconds."""
ACKNOWLEDGED, REPLICATED = 1_400, 1_000
"""Entries a second that are asked of writing in batches."""

FACTS = {"type": "reference", "tags": ["fact"]}
"""What the rules that come with the library move onward when a session ends."""


async def whole(folder: Path, rounds: int) -> list[Figure]:
    named = (p for name in NAMES for p in ORDINARY if p.name == name)
    return await on_each(named, folder, "everything", lambda placing, place: _on(placing, place, rounds))


async def _on(placing: Placing, folder: Path, rounds: int) -> list[Figure]:
    async with (
        Memory(placing.config(folder) | {"durations": {"sweep_every": 0}}) as memory,
        stores_by_hand(placing) as raw,
    ):
        asked_for = TARGETS.get(placing.name, {})
        ada = Scope.user("ada")
        contents = sentences(HELD + CALLS * 4 + 20 + AT_ONCE * rounds, seed=11)
        await memory.write_many([{"content": c, "scope": ada} for c in contents[:HELD]])
        await memory.admin.sweep()
        spare = iter(contents[HELD:])
        written: list[str] = []

        async def write(scope: Scope) -> None:
            written.append((await memory.write(next(spare), scope=scope)).id)

        chat = Scope.session(uuid.uuid4().hex)
        asked = iter(questions(CALLS * 2, seed=12))

        def of(what: str) -> Figure:
            return Figure(f"{placing.name}: {what}", None, "ms", asked_for.get(what.removesuffix(COUNTED)))

        figures = [
            await _timed(of("write to a session"), lambda: write(chat), raw.append if raw else None, 2),
            await _timed(of(WRITE), lambda: write(ada), raw.insert if raw else None, 3),
            await _timed(of("get"), lambda: memory.get(written[-1])),
            await _timed(of(SESSIONS_NEWEST), lambda: memory.retrieve(chat, limit=20)),
            await _timed(of(USERS_NEWEST), lambda: memory.retrieve(ada, limit=20)),
            await _timed(
                of(f"search of a user with {HELD:,} entries"),
                lambda: memory.search(next(asked), scope=ada, limit=10),
            ),
            await _timed(of(UPDATE), lambda: memory.update(written[-1], content=next(spare))),
        ]
        if raw is not None:
            await raw.analyse()
            figures.append(await _timed(of(USERS_NEWEST + COUNTED), lambda: memory.retrieve(ada, limit=20)))
        figures += await _bulk(f"{placing.name}: {BULK:,} written in batches of {TOGETHER}", memory, raw)
        ends, idle, at_once = [], [], []
        for _ in range(rounds):
            at_once.append(await seconds(lambda: asyncio.gather(*(write(ada) for _ in range(AT_ONCE)))))
            session = uuid.uuid4().hex
            await memory.write_many(
                [
                    {"content": c, "scope": Scope.session(session), **FACTS}
                    for c in sentences(SESSION, seed=13)
                ]
            )
            begun = time.perf_counter()
            report = await memory.sessions.end(session)
            ends.append(time.perf_counter() - begun)
            assert len(report.moved) == SESSION, f"{len(report.moved)} of {SESSION} moved"
        for start in range(0, IN_SESSIONS, SESSION):
            await memory.write_many(
                [
                    {"content": c, "scope": Scope.session(uuid.uuid4().hex)}
                    for c in sentences(SESSION, seed=start)
                ]
            )
        await memory.admin.sweep()
        for _ in range(rounds):
            idle.append(await seconds(memory.admin.sweep))

        figures += [
            _median(of(BURST), at_once),
            _median(of(END), ends),
            _median(of(IDLE), idle),
        ]
        return figures


async def _bulk(named: str, memory: Memory, raw: ByHand | None) -> list[Figure]:
    """Entries a second until all are acknowledged, and until their replicas stand; and
    by hand, where nothing of ours is under way.
    """
    contents = sentences(BULK, seed=14)
    batches = [contents[start : start + TOGETHER] for start in range(0, BULK, TOGETHER)]
    begun = time.perf_counter()
    for batch in batches:
        await memory.write_many([{"content": c, "scope": Scope.user("bulk")} for c in batch])
    acknowledged = BULK / (time.perf_counter() - begun)
    await memory.admin.flush()
    replicated = BULK / (time.perf_counter() - begun)
    by_hand = None
    if raw is not None:
        begun = time.perf_counter()
        for batch in batches:
            await raw.fill(batch)
        by_hand = BULK / (time.perf_counter() - begun)
    asked_for = (ACKNOWLEDGED, REPLICATED) if raw is not None else (None, None)
    return [
        Figure(
            f"{named}, {what}", rate, "/s", target, at_least=True, raw=by_hand, ratio_target=by_hand and 0.5
        )
        for what, rate, target in zip(
            ("acknowledged", "replicas included"), (acknowledged, replicated), asked_for, strict=True
        )
    ]


async def _timed(
    figure: Figure,
    call: Callable[[], Awaitable[object]],
    bare: Callable[[str], Awaitable[None]] | None = None,
    times_raw: float | None = None,
) -> Figure:
    """The median of the calls but the first ten; with a bare driver's, in turns with
    it.
    """
    contents = sentences(CALLS, seed=15) if bare is not None else []
    calls = [lambda _: call(), *([lambda n: bare(contents[n])] if bare is not None else [])]
    await side_by_side(10, *calls)
    ours, *raw = await side_by_side(CALLS - 10, *calls)
    return replace(
        figure, value=ours * 1000, raw=raw[0] * 1000 if raw else None, ratio_target=times_raw if raw else None
    )


def _median(figure: Figure, taken: list[float]) -> Figure:
    return replace(figure, value=median(taken) * 1000)
