"""Many processes, one file, the whole facade: nothing acknowledged is missing, keyed
writes are there once, locks never reach a caller.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from memory.facade.memory import Memory
from tests.support.depth import drawn

WRITERS, EACH = drawn(8, 3), drawn(25, 12)

PROGRAM = """
import asyncio, json, sys
from memory.facade.memory import Memory

async def main(url, writer, each):
    async with Memory(url, embedder="none") as memory:
        own = [(await memory.write(f"writer {writer} note {n}", scope="user:ada")).id for n in range(each)]
        shared = [(await memory.write(f"shared note {n}", scope="user:ada", key=f"shared-{n}")).id for n in range(each)]
        await memory.sessions.end("talk")
        print(json.dumps({"own": own, "shared": shared}))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


APPENDING = """
import asyncio, json, sys
from memory import Memory, ScratchpadFull
from memory.orchestrator.entries import scratchpads

async def main(url, writer, each):
    scratchpads.CAP = int(sys.argv[4])
    said = []
    async with Memory(url, embedder="none") as memory:
        for n in range(each):
            try:
                await memory.scratchpads.append(f"writer {writer} note {n:02}", "builder")
                said.append(f"writer {writer} note {n:02}")
            except ScratchpadFull:
                pass
    print(json.dumps(said))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def _started(url: str, writer: int, program: str = PROGRAM, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, url, str(writer), str(EACH), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.backend("sqlite")
@pytest.mark.thorough
@pytest.mark.drawn
async def test_many_processes_write_one_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    writers = [_started(url, w) for w in range(WRITERS)]
    answers = await asyncio.gather(*(asyncio.to_thread(w.communicate, timeout=120) for w in writers))
    assert [w.returncode for w in writers] == [0] * WRITERS, [err for _, err in answers if err]
    said = [json.loads(out) for out, _ in answers]

    async with Memory(url, embedder="none") as memory:
        found = [entry async for entry in memory.entries.iterate("user:ada")]
    assert Counter(e.content for e in found) == Counter(
        {f"writer {w} note {n}": 1 for w in range(WRITERS) for n in range(EACH)}
        | {f"shared note {n}": 1 for n in range(EACH)}
    )
    assert {i for answer in said for i in answer["own"]} | set(said[0]["shared"]) == {e.id for e in found}
    assert all(answer["shared"] == said[0]["shared"] for answer in said), (
        "a keyed write returns the first result to everyone"
    )


@pytest.mark.behaviour("D130")
@pytest.mark.backend("sqlite")
@pytest.mark.nightly
async def test_many_processes_append_to_one_scratchpad(tmp_path: Path) -> None:
    """Each append is of 41 bytes with its header: some find no room any more, and are
    told so.
    """
    url, room = f"sqlite:///{tmp_path / 'memory.db'}", WRITERS * EACH * 3 // 4
    writers = [_started(url, w, APPENDING, str(room * 41)) for w in range(WRITERS)]
    answers = await asyncio.gather(*(asyncio.to_thread(w.communicate, timeout=120) for w in writers))
    assert [w.returncode for w in writers] == [0] * WRITERS, [err for _, err in answers if err]
    said = [json.loads(out) for out, _ in answers]
    async with Memory(url, embedder="none") as memory:
        found = await memory.scratchpads.read("builder")
    there = [line for line in found.content.splitlines() if line.startswith("writer")]
    assert found.size == len(found.content.encode()) == room * 41
    assert Counter(there) == Counter(note for notes in said for note in notes), (
        "what was acknowledged, each once, and nothing else"
    )
    for notes in said:
        assert [note for note in there if note in notes] == notes, "in the order of each"
