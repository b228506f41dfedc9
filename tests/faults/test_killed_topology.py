"""Workers and servers that die in the middle of promotions over Redis, PostgreSQL and
Edge: nothing acknowledged is lost, doubled or back.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from tests.faults.agent import Agent, Ledger, judged
from tests.support import postgres_servers, redis_servers
from tests.support.backends import marks_of
from tests.support.placings import STORIES, forget
from tests.support.servers import Server

ROUNDS, KILLS = 30, 3
PLACING = STORIES[0]

pytestmark = [*marks_of(*PLACING.backends), pytest.mark.nightly]


class Clock:
    """The clock on the wall, and what passes besides."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def passes(self, time: timedelta) -> None:
        self.ahead += time


def _config(folder: Path) -> dict[str, Any]:
    rule = {"name": "all", "on": "session_end", "source": "short", "target": "mid"}
    return {
        **PLACING.config(folder),
        "embedder": "none",
        "promotion": [rule],
        "durations": {"sweep_every": "0s"},
    }


async def test_a_worker_that_is_killed_in_the_middle_of_a_step_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    config, first, calls = _config(tmp_path), random.randrange(2**31), 0  # noqa: S311
    print(f"seeds from {first}")
    for seed in range(first, first + ROUNDS):
        tenant, ledger = f"t{seed}", Ledger()
        command = [sys.executable, "-m", "tests.faults.agent", json.dumps(config), tenant, str(seed)]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)
        assert ran.returncode == -signal.SIGKILL, ran.stderr
        for line in ran.stdout.splitlines():
            mark, *said = json.loads(line)
            (ledger.asks if mark == "?" else ledger.acknowledges)(*said)
            calls += mark == "!"
        clock = Clock()
        async with Memory(config, tenant=tenant, clock=clock) as memory:
            wrong = await judged(memory, ledger, clock.passes)
        assert wrong == [], f"seed {seed}"
    forget(tmp_path)
    assert calls > ROUNDS * 8, "they died too early to prove anything"


@pytest.mark.parametrize(
    "server", [redis_servers.durable, postgres_servers.container], ids=["redis", "postgresql"]
)
async def test_a_server_that_is_killed_under_an_agent_costs_no_acknowledged_write(
    server: Callable[[], Server], tmp_path: Path
) -> None:
    config, seed, clock, ledger = _config(tmp_path), random.randrange(2**31), Clock(), Ledger()  # noqa: S311
    print(f"seed {seed}")
    async with Memory(config, clock=clock) as memory:
        agent = Agent(memory, ledger, seed)
        for _ in range(KILLS):
            begun = agent.calls
            ended = asyncio.Event()
            work = asyncio.create_task(agent.work(ended.is_set))
            await agent.reaches(begun + 40)
            await asyncio.to_thread(server().kill)
            await asyncio.to_thread(server().revive)
            ended.set()
            await work
        assert await judged(memory, ledger, clock.passes) == [], f"seed {seed}"
    forget(tmp_path)
