"""How long a search takes by the size of what is searched, on one file, on stores of
different kinds, and beside what others remember.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bench import rival_stores
from bench.measure import Figure
from bench.placed import on_each, opened
from bench.store import fill
from bench.texts import questions, sentences
from memory import Memory, Scope
from tests.support.placings import BESIDE_EDGE, ORDINARY, Placing

NAMES = (
    "default",
    "redis-postgres-edge",
    "postgres-edge",
    "mongo-edge",
    "postgres-only",
    "mariadb-only",
    "mongo-only",
)
SIZES = (100, 1_000, 10_000)
LARGEST = 100_000
SESSION = 1_000
ASKED, LIMIT = 40, 10
"""Searches of each size in a round, after five that are not counted."""
TARGETS: Mapping[str, Mapping[str, float]] = {
    "default": {"100": 1.5, "1,000": 4, "10,000": 8, "100,000": 25},
    "redis-postgres-edge": {
        "100": 4,
        "10,000": 15,
        "a session of 1,000": 5,
        "10,000 and a session of 1,000": 20,
    },
    "postgres-only": {"10,000": 12},
}
"""Milliseconds, by the topology and what is searched."""


async def speed(folder: Path, rounds: int, sizes: Sequence[int] = SIZES) -> list[Figure]:
    """On every topology; beside others on the default one."""

    async def measured(placing: Placing, place: Path) -> list[Figure]:
        return await of(
            placing.name,
            opened(placing.config(place)),
            rounds,
            sizes,
            place if placing.name == "default" else None,
        )

    return await on_each(map(named, NAMES), folder, "searches", measured)


def named(name: str) -> Placing:
    return next(placing for placing in (*ORDINARY, *BESIDE_EDGE) if placing.name == name)


async def of(
    name: str, memory: Memory, rounds: int, sizes: Sequence[int] = SIZES, rivals: Path | None = None
) -> list[Figure]:
    """One memory's median search over scopes of these sizes, over a session, and over
    that with the largest of the usual sizes.
    """
    session, largest = Scope.session(f"of-{uuid.uuid4().hex}"), max(size for size in sizes if size < LARGEST)
    user = {size: Scope.user(f"of-{size}") for size in sizes}
    searched: dict[str, list[Scope]] = {f"{size:,}": [scope] for size, scope in user.items()}
    searched |= {
        f"a session of {SESSION:,}": [session],
        f"{largest:,} and a session of {SESSION:,}": [user[largest], session],
    }
    async with memory:
        for seed, (scope, size) in enumerate(
            [*zip(user.values(), sizes, strict=True), (session, SESSION)], 31
        ):
            await fill(memory, scope, sentences(size, seed))
        await memory.admin.sweep()
        taken: dict[str, list[float]] = {what: [] for what in searched}
        for round_ in range(rounds):
            for what, scopes in searched.items():
                taken[what].append(await _median(memory, scopes, questions(ASKED + 5, seed=round_)))
        asked_of = TARGETS.get(name, {})
        figures = [
            Figure(f"{name}: search of {what}, p50", median(p50) * 1000, "ms", asked_of.get(what))
            for what, p50 in taken.items()
        ]
        if rivals is not None:
            contents = sentences(largest, 31 + list(sizes).index(largest))
            figures += await rival_stores.beside(rivals, memory, user[largest], contents, rounds)
        for scope in (*user.values(), session):
            await memory.admin.erase(scope)
    return figures


async def _median(memory: Memory, scopes: list[Scope], asked: Sequence[str]) -> float:
    taken, found = [], 0
    for query in asked:
        begun = time.perf_counter()
        found += len(await memory.search(query, scope=scopes, limit=LIMIT))
        taken.append(time.perf_counter() - begun)
    assert found >= len(asked), "searches that find nothing measure nothing"
    return median(taken[5:])
