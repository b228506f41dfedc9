"""What is delivered behind writes over Redis, PostgreSQL and Edge: found before it is
delivered, there once it is flushed, and after a death.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.domain.errors import MemoryTiersError
from memory.facade.runtime.access import engine_of
from tests.support.backends import marks_of
from tests.support.delivered import undelivered
from tests.support.placings import STORIES, forget

PLACING = STORIES[0]
ADA, SESSION, ORG = "user:ada", "session:s", "org:o1"
DIES = """
import asyncio, json, os, signal, sys
from memory import Memory

async def main():
    memory = await Memory(json.loads(sys.argv[1])).open()
    one = await memory.write("the ferry runs on Sundays", scope="user:ada")
    other = await memory.write("the boat is red", scope="user:ada")
    await memory.update(other.id, content="the boat is blue")
    print(json.dumps([one.id, other.id]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""

pytestmark = [*marks_of(*PLACING.backends)]


@pytest.fixture
def config(tmp_path: Path) -> Iterator[dict[str, Any]]:
    yield {**PLACING.config(tmp_path), "durations": {"sweep_every": "0s"}}
    forget(tmp_path)


async def test_what_is_written_is_found_by_meaning_before_it_is_delivered(config: dict[str, Any]) -> None:
    async with Memory(config) as memory:
        await memory.write_many(
            [{"content": f"the train to platform {n} is late", "scope": ADA} for n in range(30)],
            consistency="replicated",
        )
        entry = await memory.write("Ada adopted a puppy", scope=ADA)
        assert (await memory.search("dog", scope=ADA, mode="semantic", limit=1))[0].entry == entry
        edited = await memory.update(entry.id, content="Ada bakes sourdough bread")
        assert (await memory.search("loaf and flour", scope=ADA, mode="semantic", limit=1))[0].entry == edited
        await memory.admin.flush()
        assert (await memory.search("loaf and flour", scope=ADA, mode="semantic", limit=1))[0].entry == edited


async def test_once_flushed_every_replica_stands_after_a_long_history(config: dict[str, Any]) -> None:
    drawn = random.Random(7)  # noqa: S311
    async with Memory({**config, "embedder": "none"}) as memory:
        there: list[str] = []
        for n in range(250):
            act, one = (
                drawn.choice(
                    ("write", "write", "many", "update", "update", "move", "delete", "erase", "end")
                ),
                drawn.choice(there or [""]),
            )
            with suppress(MemoryTiersError):
                match act:
                    case "write":
                        there.append(
                            (await memory.write(f"text {n}", scope=drawn.choice((ADA, SESSION, ORG)))).id
                        )
                    case "many":
                        there += [
                            e.id
                            for e in await memory.write_many(
                                [{"content": f"text {n}.{i}", "scope": ADA} for i in range(20)]
                            )
                        ]
                    case "update" if one:
                        await asyncio.gather(
                            *[memory.update(one, content=f"edited {n}.{i}") for i in range(3)]
                        )
                    case "move" if one:
                        await memory.admin.move([one], drawn.choice(("mid", "long")))
                    case "delete" if one:
                        await memory.delete(one)
                    case "erase" if drawn.random() < 0.2:
                        await memory.admin.erase(drawn.choice((ADA, SESSION)))
                    case "end":
                        await memory.sessions.end("s")
        await memory.admin.flush()
        assert await undelivered(engine_of(memory)) == []
        assert len(there) > 250


async def test_who_dies_right_after_it_acknowledged_leaves_the_rest_to_a_sweep_of_another(
    config: dict[str, Any],
) -> None:
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", DIES, json.dumps(config)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    one, other = json.loads(ran.stdout)
    async with Memory(config) as memory:
        assert await undelivered(engine_of(memory)) != [], "it died before it delivered"
        assert (await memory.admin.sweep()).waiting == ()
        assert await undelivered(engine_of(memory)) == []
        found = await memory.search("when can one cross the water", scope=ADA, mode="semantic")
        assert {hit.entry.id for hit in found} >= {one}
        entry = await memory.get(other)
        assert entry is not None
        assert entry.content == "the boat is blue"
