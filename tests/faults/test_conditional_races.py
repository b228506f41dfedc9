"""Two processes race each conditional call on a store that they share: one of them
wins, and the other gets `VersionConflict`. Of two that delete a session, one deletes it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memory import ABSENT, Memory, Scope
from tests.support.backends import marks_of
from tests.support.depth import drawn
from tests.support.placings import ORDINARY
from tests.support.processes import Racers, racers

ROUNDS = drawn(150, 12)
SHARED = ("default", "files-only", "redis-only", "postgres-only", "mongo-only", "mariadb-only")
ADA = Scope.user("ada")
CALLS = ("create", "replace", "merge", "update", "invalidate", "delete", "session", "sessions.delete")

PROGRAM = """
import asyncio, json, sys
from memory import ABSENT, Memory, Scope, VersionConflict

ADA = Scope.user("ada")

def call_of(memory, call, key, version, name):
    given = {"scope": ADA, "key": key}
    if call == "create":
        return memory.write("same text", **given, expected_version=ABSENT)
    if call == "replace":
        return memory.write(name, **given, if_exists="replace", expected_version=version)
    if call == "merge":
        return memory.write(name, **given, if_exists="update", expected_version=version)
    if call == "update":
        return memory.update(**given, content=name, expected_version=version)
    if call == "invalidate":
        return memory.entries.invalidate(**given, expected_version=version)
    if call == "delete":
        return memory.delete(**given, expected_version=version)
    if call == "sessions.delete":
        return memory.sessions.delete(key)
    return memory.sessions.update("talk", title=f"{key} {name}", expected_version=version)

async def main(config, name):
    async with Memory(config, embedder="none") as memory:
        print("open", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            call, key, version = json.loads(line)
            try:
                won = bool(await call_of(memory, call, key, version, name))
            except VersionConflict:
                won = False
            print(json.dumps(won), flush=True)

asyncio.run(main(json.loads(sys.argv[1]), sys.argv[2]))
"""


@pytest.mark.parametrize(
    "place",
    [pytest.param(one, id=one.name, marks=marks_of(*one.backends)) for one in ORDINARY if one.name in SHARED],
)
@pytest.mark.drawn
async def test_one_of_two_processes_wins_each_conditional_call(place: Any, tmp_path: Path) -> None:
    config = place.config(tmp_path)
    async with Memory(config, embedder="none") as memory:
        await memory.sessions.create("talk")
        with racers(PROGRAM, config) as both:
            wins = Counter[str]()
            for number in range(ROUNDS):
                call = CALLS[number % len(CALLS)]
                wins[await _race(memory, both, call, f"{call} {number}")] += 1
        assert wins.total() == ROUNDS


async def _race(memory: Memory, both: Racers, call: str, key: str) -> str:
    """Let both call at once. Returns who won, once what is stored shows it."""
    if call == "session":
        version = (await memory.session("talk").info()).attributes_version
    elif call == "sessions.delete":
        version = ""
        await (await memory.sessions.create(key)).append({"role": "user", "content": "before"})
    else:
        made = (
            None
            if call == "create"
            else await memory.write("before", scope=ADA, key=key, expected_version=ABSENT)
        )
        version = "" if made is None else made.version
    winners = [name for name, has_won in both.race(call, key, version).items() if has_won]
    assert len(winners) == 1, (call, key, winners)
    (winner,) = winners
    if call == "sessions.delete":
        assert await memory.sessions.get(key) is None
        return winner
    now = await memory.get(scope=ADA, key=key)
    if call in ("replace", "merge", "update"):
        assert now is not None
        assert now.content == winner
        assert len(await memory.entries.history(now.id)) == 2
    elif call == "session":
        # a title of an earlier round would be no change, and no version of its own
        assert (await memory.session("talk").info()).title == f"{key} {winner}"
    else:
        assert (now is not None) == (call == "create")
    return winner
