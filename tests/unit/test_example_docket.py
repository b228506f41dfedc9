"""The example of maintenance by Docket, on a real Redis: what is owed gets done, in as
many steps as it takes, and the program ends when asked to.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from docket import Docket, Worker

from examples import docket_worker
from memory import Memory
from memory.orchestrator.maintenance import sweeps
from tests.support import redis_servers
from tests.support.backends import marks_of
from tests.unit.facade.test_upkeep import _forget_replica
from tests.unit.facade.test_worker import three_files

pytestmark = marks_of("redis", "sqlite")


@pytest.fixture
def redis() -> Iterator[str]:
    port = redis_servers.durable().port
    yield f"redis://127.0.0.1:{port}/1"
    redis_servers.emptied(port, database=1)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Three files as the tiers, for the example too."""
    config = three_files(tmp_path)
    file = tmp_path / "memory.toml"
    file.write_text(
        'embedder = "none"\n[tiers]\n'
        + "".join(f'{tier} = "{url}"\n' for tier, url in config["tiers"].items())
    )
    monkeypatch.setenv("MEMORY_CONFIG", str(file))
    return config


@contextmanager
def program(redis: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "error", docket_worker.__file__]
    process = subprocess.Popen(
        command, env={**os.environ, "DOCKET_URL": redis}, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_the_program_does_what_is_owed_and_ends_when_asked_to(
    redis: str, config: dict[str, Any]
) -> None:
    async with Memory(config) as memory:
        entry = await memory.write("the ferry runs on Sundays", scope="user:ada", consistency="replicated")
        await _forget_replica(config, entry.id)
        with program(redis) as process:
            while len(await memory.admin.where(entry.id)) < 2:
                assert process.poll() is None, process.communicate()[1]
                await asyncio.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            _, said = await asyncio.to_thread(process.communicate, timeout=60)
    assert (process.returncode, said) == (0, "")


async def test_what_one_step_leaves_the_next_one_does_at_once(
    redis: str, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "READ_AT_ONCE", 1)
    monkeypatch.setattr(docket_worker, "BUDGET", timedelta(microseconds=1))  # each step delivers one replica
    async with Memory(config) as memory:
        entries = [
            await memory.write(f"the ferry runs on day {day}", scope="user:ada", consistency="replicated")
            for day in range(4)
        ]
        for entry in entries:
            await _forget_replica(config, entry.id)

        async def delivered_after(steps: int) -> int:
            async with Docket(name="steps", url=redis) as docket, asyncio.timeout(30) as limit:
                docket.register_collection("examples.docket_worker:tasks")
                async with Worker(docket, minimum_check_interval=timedelta(milliseconds=20)) as worker:
                    await worker.run_at_most({"maintain": steps})
            assert not limit.expired(), "it waited for the next minute"
            return sum([len(await memory.admin.where(entry.id)) - 1 for entry in entries])

        assert await delivered_after(steps=3) == 3
        assert await delivered_after(steps=1) == 4
