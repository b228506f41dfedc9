"""A process killed in the middle of a reindex, again and again: each next one goes on,
and in between all is found, by meaning or by words.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import EmbedderMismatch, Memory
from tests.support.backends import marks_of
from tests.support.placings import ORDINARY, forget
from tests.support.processes import started
from tests.support.turned import Embedder

OLD, NEW = Embedder("of yesterday"), Embedder("of today", turned=1)
USER = "user:ada"
MANY = 700
DIES = """
import asyncio, json, os, signal, sys
from memory import Memory
from memory.orchestrator.storage.placement import Placement
from tests.support.turned import Embedder

config, at = json.loads(sys.argv[1]), int(sys.argv[2])
write, writes = Placement.write, 0

async def dies(self, name, *args, **more):
    global writes
    writes += name.startswith(("reindex.", "embedder.note"))
    if at == 2 * writes:
        os.kill(os.getpid(), signal.SIGKILL)
    outcomes = await write(self, name, *args, **more)
    if at == 2 * writes + 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return outcomes

Placement.write = dies
came = asyncio.run(Memory(config, embedder=Embedder("of today", turned=1)).admin.reindex())
assert came.ended, came
"""
"""Dies before or after one of its writes, if it makes so many."""
PLACINGS = [
    placing
    for placing in ORDINARY
    if placing.name in ("default", "files-only", "edge-only", "postgres-only", "redis-postgres-edge")
]


@pytest.fixture(
    params=[pytest.param(placing, id=placing.name, marks=marks_of(*placing.backends)) for placing in PLACINGS]
)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    yield request.param.config(tmp_path)
    forget(tmp_path)


@pytest.mark.nightly
async def test_killed_again_and_again_it_ends_and_nothing_is_lost(config: dict[str, Any]) -> None:
    async with Memory(config, embedder=OLD) as memory:
        kinds = {"tea": "beverage", "heron": "bird"}
        await memory.write_many(
            [{"content": f"{kind} {n}", "scope": USER} for n in range(MANY // 2) for kind in kinds]
        )
    given, deaths = json.dumps(config), 0
    for at in (2, 3, 5, 8, 9, 4, 10**6):
        ended = await _run(given, at)
        deaths += ended == -signal.SIGKILL
        if ended == 0:
            break
        for embedder in (OLD, NEW):
            try:
                async with Memory(config, embedder=embedder) as memory:
                    assert len(await memory.search("tea", scope=USER, limit=MANY)) == MANY // 2
                    by_meaning = await memory.search("beverage", scope=USER, mode="semantic", limit=MANY)
                    assert all(hit.entry.content.startswith("tea") for hit in by_meaning)
            except EmbedderMismatch:
                assert at == 2, "before anything was noted"
    assert ended == 0
    assert deaths >= 3
    async with Memory(config, embedder=NEW) as memory:
        for kind, word in kinds.items():
            hits = await memory.search(word, scope=USER, mode="semantic", limit=MANY)
            assert {hit.entry.content for hit in hits} == {f"{kind} {n}" for n in range(MANY // 2)}
            assert hits.degraded == ()


async def _run(config: str, at: int) -> int:
    process = await asyncio.to_thread(started, DIES, config, at)
    _, said = await asyncio.to_thread(process.communicate, timeout=120)
    assert process.returncode in (0, -signal.SIGKILL), said
    return process.returncode
