"""A process killed in the middle of an import: every acknowledged turn is there once,
the rest can be imported again without doubles.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from memory.facade.memory import Memory

TURNS = 4_000
SESSION = "session:long-talk"


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    file = tmp_path / "long-talk.jsonl"
    turns = (
        {"role": "user", "content": f"turn {n}: the number is {n * 7}", "id": f"m{n}"} for n in range(TURNS)
    )
    file.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    return file


def _importing(conversation: Path, database: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "memory.cli",
        "--config",
        f"sqlite:///{database}",
        "import",
        str(conversation),
        "--acks",
    ]


@pytest.mark.backend("sqlite")
@pytest.mark.nightly
@pytest.mark.parametrize("batches", [1, 6])
async def test_what_was_acknowledged_before_the_kill_is_there_once_and_the_rest_imports_again(
    conversation: Path, tmp_path: Path, batches: int
) -> None:
    database = tmp_path / "memory.db"
    acknowledged = _kill_after(_importing(conversation, database), batches)
    assert 0 < acknowledged < TURNS, "the kill came too late to prove anything"

    found = await _contents(database)
    assert max(found.values()) == 1
    assert all(f"turn {n}: the number is {n * 7}" in found for n in range(acknowledged))

    await asyncio.to_thread(
        subprocess.run, _importing(conversation, database), check=True, capture_output=True, timeout=120
    )
    again = await _contents(database)
    assert again == Counter({f"turn {n}: the number is {n * 7}": 1 for n in range(TURNS)})


def _kill_after(command: list[str], batches: int) -> int:
    """Kill the import, without warning, once it has acknowledged so many batches; the
    highest number it acknowledged.
    """
    step_back = partial(
        os.nice, 10
    )  # behind this process, which has to kill it in time also where both wait for a processor
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, preexec_fn=step_back
    )
    assert process.stderr is not None
    seen = highest = 0
    for line in process.stderr:
        if line.startswith('{"committed"'):
            highest = json.loads(line)["committed"]
            seen += 1
            if seen == batches:
                os.kill(process.pid, signal.SIGKILL)
                break
    process.stderr.close()
    assert process.wait(timeout=60) == -signal.SIGKILL
    return highest


async def _contents(database: Path) -> Counter[str]:
    async with Memory(f"sqlite:///{database}", embedder="none") as memory:
        return Counter([entry.content async for entry in memory.entries.iterate(SESSION)])
