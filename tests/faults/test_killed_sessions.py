"""Eight processes speak in one session, and processes and servers are killed in the
middle of it: nothing acknowledged is lost, doubled or out of order, and a sweep leaves
nothing unfinished.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from tests.faults.speakers import Heard, judged, noted
from tests.support import mongo_servers, mysql_servers, postgres_servers, redis_servers
from tests.support.backends import marks_of
from tests.support.depth import PROVING, drawn
from tests.support.placings import ORDINARY, Placing, forget
from tests.support.servers import Server

WRITERS, KILLS = drawn(8, 3), 30 if PROVING else 2
SERVER_KILLS = 5 if PROVING else 1
DOOMED = WRITERS // 2
"""How many of the writers are about to die at any time."""
PLACINGS = {placing.name: placing for placing in ORDINARY}
ON_SERVERS = [PLACINGS[name] for name in ("redis-postgres-edge", "mongo-only", "mariadb-only")]


def _config(placing: Placing, folder: Path) -> dict[str, Any]:
    """Edge serves one process at a time, and no session: what would be in it is in the
    mid store.
    """
    config = placing.config(folder)
    config["tiers"]["long"] = config["tiers"]["mid"]
    return {**config, "embedder": "none", "durations": {"sweep_every": "0s"}}


class Writers:
    """Processes that speak until they are told to stop, or die, and what each has told."""

    def __init__(self, config: dict[str, Any], seed: int) -> None:
        self._config = config
        self._chance = random.Random(seed)  # noqa: S311
        self._running: set[asyncio.Task[int]] = set()
        self._processes: list[asyncio.subprocess.Process] = []
        self._said = asyncio.Condition()
        self.heard: list[Heard] = []
        self.deaths: list[str] = []

    async def starts(self, dies: str = "") -> None:
        name, heard = f"w{len(self.heard)}", Heard()
        command = [
            sys.executable,
            "-m",
            "tests.faults.speakers",
            json.dumps(self._config),
            name,
            str(self._chance.randrange(2**31)),
            dies,
        ]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        self.heard.append(heard)
        self._processes.append(process)
        self._running.add(asyncio.create_task(self._listens(process, heard, dies)))

    async def _listens(self, process: asyncio.subprocess.Process, heard: Heard, dies: str) -> int:
        assert process.stdout is not None
        assert process.stderr is not None
        async for line in process.stdout:
            heard.hears(line.decode())
            async with self._said:
                self._said.notify_all()
        code = await process.wait()
        if code == -signal.SIGKILL and dies:
            self.deaths.append(dies)
        else:
            assert code == 0, (await process.stderr.read()).decode()
        return code

    async def die(self, times: int) -> None:
        """Wait until so many have died."""
        while len(self.deaths) < times:
            done, self._running = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()

    async def speak(self, times: int) -> None:
        """Wait until so many more calls were acknowledged."""
        enough = self._acknowledged() + times
        async with self._said:
            await self._said.wait_for(
                lambda: self._acknowledged() >= enough or all(one.done() for one in self._running)
            )

    def _acknowledged(self) -> int:
        return sum(len(one.acknowledged) for one in self.heard)

    async def stop(self) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        await asyncio.gather(*self._running)

    def kill(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()


@asynccontextmanager
async def _speaking(config: dict[str, Any]) -> AsyncIterator[Writers]:
    seed = random.SystemRandom().randrange(2**31)
    print(f"seed {seed}")
    writers = Writers(config, seed)
    try:
        yield writers
    finally:
        writers.kill()


async def _judge(config: dict[str, Any], writers: Writers) -> list[str]:
    async with Memory(config, on_window_exit=noted) as memory:
        return await judged(memory, writers.heard)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "placing",
    [
        pytest.param(PLACINGS["default"], id="default", marks=marks_of("sqlite")),
        *[
            pytest.param(placing, id=placing.name, marks=marks_of(*placing.backends))
            for placing in ON_SERVERS
        ],
    ],
)
@pytest.mark.drawn
async def test_writers_that_are_killed_in_mid_append_and_mid_compaction_lose_and_double_nothing(
    placing: Placing, tmp_path: Path
) -> None:
    config = _config(placing, tmp_path)
    async with _speaking(config) as writers:
        for _ in range(WRITERS - DOOMED):
            await writers.starts()
        for number in range(KILLS):
            await writers.starts(dies=("append", "compaction")[number % 2])
            await writers.die(number + 2 - DOOMED)
        await writers.die(KILLS)
        await writers.speak(WRITERS)  # somebody speaks after the last death, and tells lists of it
        await writers.stop()
        assert len(writers.deaths) == KILLS, writers.deaths
        assert await _judge(config, writers) == []
    forget(tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("placing", "server"),
    [
        pytest.param(placing, server, id=name, marks=marks_of(*placing.backends))
        for name, placing, server in (
            ("redis", ON_SERVERS[0], redis_servers.durable),
            ("postgresql", ON_SERVERS[0], postgres_servers.container),
            ("mongodb", ON_SERVERS[1], mongo_servers.replica_set),
            ("mariadb", ON_SERVERS[2], mysql_servers.container),
        )
    ],
)
async def test_a_server_that_is_killed_under_eight_writers_costs_no_acknowledged_message(
    placing: Placing, server: Callable[[], Server], tmp_path: Path
) -> None:
    config = _config(placing, tmp_path)
    async with _speaking(config) as writers:
        for _ in range(WRITERS):
            await writers.starts()
        for _ in range(SERVER_KILLS):
            await writers.speak(60)
            await asyncio.to_thread(server().kill)
            await asyncio.to_thread(server().revive)
        await writers.speak(60)
        await writers.stop()
        assert await _judge(config, writers) == []
    forget(tmp_path)
