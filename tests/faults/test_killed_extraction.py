"""A process that records many conversations at once is killed in the middle of it:
whatever was acknowledged is learnt after a restart.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from memory import Memory, MemoryManager, NamedStore
from memory.agents.manager import EveryTurn, Extraction
from tests.support.depth import PROVING, drawn
from tests.support.processes import started

pytestmark = [pytest.mark.backend("sqlite"), pytest.mark.nightly]
KILLS = 30 if PROVING else 2
CONVERSATIONS = drawn(200, 40)

SHARED = """
import json


def model(prompt):
    return json.dumps([{"content": line.removeprefix("user: ")} for line in prompt.user.splitlines() if line.startswith("user: ")])
"""
RECORDS = (
    SHARED
    + """
import asyncio, itertools, sys

from memory import Memory, MemoryManager, NamedStore
from memory.agents.manager import EveryNTurns, Extraction


async def main(file, conversations, life):
    async with Memory(f"sqlite:///{file}", embedder="none", durations={"sweep_every": "0s"}) as memory:
        learns = Extraction(EveryNTurns(2))
        stores = [NamedStore(name, memory.scoped(f"user:{name}"), writable=True, extraction=learns) for name in ("ada", "bob")]
        manager = MemoryManager(stores, memory=memory, model=model)

        async def converses(number):
            recording = await manager.record(run_id=f"{life}-{number}")
            for n in itertools.count():
                text = f"life {life} conversation {number} says {n}"
                await recording.add({"role": "user", "content": text})
                print(text, flush=True)
                await recording.turn_ended()

        await asyncio.gather(*map(converses, range(int(conversations))))


asyncio.run(main(*sys.argv[1:]))
"""
)


async def test_what_was_acknowledged_is_learnt_by_every_store_however_often_the_process_dies(
    tmp_path: Path,
) -> None:
    file, chance, acknowledged = tmp_path / "memory.db", random.SystemRandom(), list[str]()
    for life in range(KILLS):
        with started(RECORDS, file, CONVERSATIONS, life) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(CONVERSATIONS, 4 * CONVERSATIONS)):
                acknowledged.append(process.stdout.readline().strip())
                assert acknowledged[-1], process.stderr and process.stderr.read()
            process.kill()
            acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
    assert len(acknowledged) > KILLS * CONVERSATIONS // 2
    names: dict[str, object] = {}
    exec(SHARED, names)  # noqa: S102 - the model that the processes had
    async with Memory(f"sqlite:///{file}", embedder="none", durations={"sweep_every": "0s"}) as memory:
        stores = [
            NamedStore(name, memory.scoped(f"user:{name}"), writable=True, extraction=Extraction(EveryTurn()))
            for name in ("ada", "bob")
        ]
        manager = MemoryManager(stores, memory=memory, model=names["model"])  # type: ignore[arg-type]
        await manager.resume()
        assert await manager.resume() == 0
        for name in ("ada", "bob"):
            learnt = Counter([entry.content async for entry in memory.entries.iterate(f"user:{name}")])
            assert not set(acknowledged) - set(learnt), "what was acknowledged is learnt"
            assert all(said.startswith("life ") for said in learnt)
