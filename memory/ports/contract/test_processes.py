"""Real processes that share a store: state common to one process does not help."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from memory.ports.contract.capability_tests import needs, needs_address
from memory.ports.contract.clauses import clause
from memory.ports.contract.harness import Harness
from memory.ports.contract.other_process import COUNTED, change, increment, snapshot
from memory.ports.contract.support import apply_all, fetch_record, put, record
from memory.ports.store import Store

SECONDS = 120
TIMES = 15


@asynccontextmanager
async def _another(harness: Harness, store: Store) -> AsyncIterator[Process]:
    url, options = harness.address(store)
    command = (sys.executable, "-m", "memory.ports.contract.other_process", url, json.dumps(dict(options)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment)
    try:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _send_command(process: Process, what: str, number: int = 0) -> Any:
    """Send a command to the other process and return its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{json.dumps([what, number])}\n".encode())
    line = await process.stdout.readline()
    assert line, "the other process ended: see what it wrote to the standard error"
    return json.loads(line)


@clause("shared.processes")
@needs_address
@needs("shared", "conditional")
@pytest.mark.asyncio
async def test_two_processes_see_each_others_writes_at_once_and_lose_none(
    harness: Harness, store: Store
) -> None:
    async with asyncio.timeout(SECONDS), _another(harness, store) as other:
        await apply_all(store, put(record(COUNTED, body={"n": 0})))
        assert await _send_command(other, "look") == await snapshot(store)
        for turn in (1, 2, 3, 4):
            if turn % 2:
                await change(store, turn)
                assert await _send_command(other, "look") == await snapshot(store)
            else:
                assert await _send_command(other, "change", turn) == await snapshot(store)
        await asyncio.gather(increment(store, TIMES), _send_command(other, "increment", TIMES))
        assert dict((await fetch_record(store, COUNTED)).body) == {"n": 2 * TIMES}
        assert await _send_command(other, "look") == await snapshot(store)
