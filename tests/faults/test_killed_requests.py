"""A process is killed at a drawn moment while it makes calls with request ids. Another
process makes the same calls again: nothing exists twice, and nothing is missing.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from tests.support.backends import marks_of
from tests.support.depth import drawn
from tests.support.placings import ORDINARY
from tests.support.processes import line_of

ROUNDS = drawn(20, 3)
SHARED = ("default", "postgres-only")
AT_MOST = 0.4
"""The latest moment of a kill, in seconds after the first call. All calls take less."""

PROGRAM = """
import asyncio, json, sys
from memory import Memory

async def make_calls(memory, name, gone, *sources):
    scope = "user:" + name
    first = await memory.write("first", scope=scope, request_id=name)
    await memory.update(first.id, content="changed", request_id=name)
    await memory.write("kept", scope=scope, key="k", if_exists="replace", request_id=name + "-1")
    await memory.write("newer", scope=scope, key="k", if_exists="replace", request_id=name + "-2")
    many = await memory.write_many([{"content": text, "scope": scope} for text in "abc"], request_id=name)
    await memory.compact(sources, lambda entries: "summary", delete_sources=True, request_id=name)
    await memory.relations.relate(many[2].id, "supports", first.id, request_id=name)
    await memory.entries.invalidate(scope=scope, key="k", request_id=name)
    await memory.delete(gone, request_id=name)
    session = await memory.sessions.create(title=name, user=name, request_id=name)
    await session.append([{"role": "user", "content": text} for text in "xy"], request_id=name)

async def main(config):
    async with Memory(config, embedder="none") as memory:
        print("open", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            await make_calls(memory, *json.loads(line))
            print("done", flush=True)

asyncio.run(main(json.loads(sys.argv[1])))
"""


@pytest.mark.parametrize(
    "place",
    [pytest.param(one, id=one.name, marks=marks_of(*one.backends)) for one in ORDINARY if one.name in SHARED],
)
@pytest.mark.drawn
async def test_calls_of_a_killed_process_are_repeated_safely(place: Any, tmp_path: Path) -> None:
    config, draws = place.config(tmp_path), random.Random(33)  # noqa: S311 - moments, not secrets
    survivor, given = _started(config), dict[str, list[str]]()
    async with Memory(config, embedder="none") as memory:
        for number in range(ROUNDS):
            drafts = [{"content": text, "scope": f"user:u{number}"} for text in ("gone", "1", "2")]
            given[f"u{number}"] = [one.id for one in await memory.write_many(drafts)]
    try:
        for number in range(ROUNDS):
            call, killed = [f"u{number}", *given[f"u{number}"]], _started(config)
            _tell(killed, call)
            await asyncio.sleep(draws.uniform(0, AT_MOST))
            killed.kill()
            killed.communicate()
            assert killed.returncode == -signal.SIGKILL
            for _ in range(2):
                _tell(survivor, call)
                assert line_of(survivor) == "done", _errors(survivor)
    finally:
        survivor.kill()
        survivor.communicate()
    async with Memory(config, embedder="none") as memory:
        await memory.admin.sweep()
        for number in range(ROUNDS):
            scope = f"user:u{number}"
            entries = [one async for one in memory.entries.iterate(scope, include_retired=True)]
            assert sorted(one.content for one in entries) == ["a", "b", "c", "changed", "newer", "summary"]
            keyed = next(one for one in entries if one.content == "newer")
            assert len(await memory.entries.history(keyed.id)) == 3
            [session] = (await memory.sessions.list(user=f"u{number}")).sessions
            history = await memory.session(session.id, user=f"u{number}").history()
            assert [item.message.text for item in history.items] == ["x", "y"]
        assert len([one async for one in memory.relations.all()]) == ROUNDS


def _started(config: Any) -> subprocess.Popen[str]:
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps(config, default=str)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert line_of(started) == "open", _errors(started)
    return started


def _tell(process: subprocess.Popen[str], call: list[str]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(call) + "\n")
    process.stdin.flush()


def _errors(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.read() if process.poll() is not None else ""
