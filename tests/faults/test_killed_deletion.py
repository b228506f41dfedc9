"""A process killed between a deletion and what it still had to do: what was erased is
in no later life of the entry, nor anywhere else.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of

DELETES_AND_DIES = """
import asyncio, os, signal, sys
from memory import Memory
from memory.orchestrator.storage.outbox import Outbox

async def die(self, pending):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(url, entry_id):
    async with Memory(url, embedder="none") as memory:
        Outbox.finish = die
        await memory.delete(entry_id)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.backend("sqlite")
@pytest.mark.parametrize("way", [pytest.param("promoted", marks=pytest.mark.nightly), "keyed"])
async def test_a_second_life_after_a_killed_deletion_knows_nothing_of_the_first(
    tmp_path: Path, way: str
) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    async with Memory(url, embedder="none") as memory:
        source = await memory.write("innocent", scope="user:ada")

        async def born(of: Memory) -> str:
            if way == "promoted":
                return (await of.promote(source.id, "org:o")).id
            return (await of.write("innocent", scope="org:o", key="k", revive=True)).id

        first = await born(memory)
        for n in range(2):
            await memory.update(first, content=f"secret {n}")
    killed = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", DELETES_AND_DIES, url, first], check=False, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL

    async with Memory(url, embedder="none") as memory:
        assert await memory.get(first) is None
        assert (await memory.admin.stats()).pending_steps == 1
        again = await born(memory)
        assert again == first
        assert [entry.content for entry in await memory.entries.history(again)] == ["innocent"]
        assert await memory.delete(again)
        await memory.admin.sweep()
        assert (await memory.admin.stats()).pending_steps == 0
        for store in engine_of(memory).topology.leaves:
            await store.vacuum()
    assert b"secret" not in _everything_in(tmp_path)


def _everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())
