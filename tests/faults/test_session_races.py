"""Two processes race on the state and on the newest messages of one session.

One wins each change that expects a version, and each message is popped by one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from tests.support.backends import marks_of
from tests.support.depth import drawn
from tests.support.placings import ORDINARY
from tests.support.processes import racers

ROUNDS = drawn(150, 10)
SHARED = ("default", "files-only", "redis-only", "postgres-only", "mongo-only", "mariadb-only")

PROGRAM = """
import asyncio, json, sys
from memory import ABSENT, Memory, VersionConflict

async def done(session, call, version, name):
    if call == "pop":
        return [one["content"] for one in await session.pop()]
    messages = [{"role": "user", "content": f"{name} {n}"} for n in range(2)]
    try:
        await session.append(messages, state={"winner": name}, expected_version=version or ABSENT)
    except VersionConflict:
        return False
    return True

async def main(config, name):
    async with Memory(config, embedder="none") as memory:
        session = memory.session("talk")
        print("open", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            call, version = json.loads(line)
            print(json.dumps(await done(session, call, version, name)), flush=True)

asyncio.run(main(json.loads(sys.argv[1]), sys.argv[2]))
"""


@pytest.mark.parametrize(
    "place",
    [pytest.param(one, id=one.name, marks=marks_of(*one.backends)) for one in ORDINARY if one.name in SHARED],
)
@pytest.mark.drawn
async def test_two_processes_race_for_the_state_and_for_the_newest(place: Any, tmp_path: Path) -> None:
    config = place.config(tmp_path)
    async with Memory(config, embedder="none") as memory:
        session = memory.session("talk")
        await session.append({"role": "user", "content": "first"})
        with racers(PROGRAM, config) as both:
            for _ in range(ROUNDS):
                state = await session.state()
                won = both.race("state", state.version if state else "")
                assert sorted(won.values()) == [False, True]
                (winner,) = (name for name, has_won in won.items() if has_won)
                now = await session.state()
                assert (now, now.version != state.version) == ({"winner": winner}, True)
                shown = [one.text for one in (await session.context()).messages]
                assert shown == ["first", f"{winner} 0", f"{winner} 1"]
                popped = both.race("pop", "")
                assert sorted(popped.values()) == [[f"{winner} 0"], [f"{winner} 1"]]
