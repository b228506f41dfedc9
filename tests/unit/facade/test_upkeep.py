"""Maintenance in the background."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from memory.domain.maintenance_reports import SweepReport
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from memory.facade.runtime.background import SweepTask
from memory.orchestrator.maintenance.sweeps import Maintenance
from memory.orchestrator.storage.budgets import UNLIMITED, Allowance


class Counting(Maintenance):
    """Counts sweeps; the first fails."""

    def __init__(self) -> None:
        self.sweeps = 0

    async def sweep(self, allowance: Allowance = UNLIMITED) -> SweepReport:
        self.sweeps += 1
        if self.sweeps == 1:
            raise OSError("the disk is asleep")
        return SweepReport()


async def _until(holds: object) -> None:
    deadline = time.monotonic() + 60
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


async def test_a_failed_sweep_is_tried_again_at_the_next_turn_until_stopped() -> None:
    maintenance = Counting()
    upkeep = SweepTask(maintenance, timedelta(milliseconds=5))
    upkeep.start()
    await _until(lambda: maintenance.sweeps >= 3)
    await upkeep.stop()
    done = maintenance.sweeps
    await asyncio.sleep(0.05)
    assert maintenance.sweeps == done


async def test_an_interval_of_nothing_means_never() -> None:
    upkeep = SweepTask(Counting(), timedelta(0))
    upkeep.start()
    await upkeep.stop()
    assert upkeep._task is None


@pytest.mark.backend("sqlite")
async def test_an_open_memory_finishes_what_a_crash_left(tmp_path: Path) -> None:
    config = {
        "tiers": {t: f"sqlite:///{tmp_path / t}.db" for t in ("short", "mid", "long")},
        "embedder": "none",
    }
    async with Memory(config) as memory:
        entry = await memory.write("the ferry runs on Sundays", scope="user:ada", consistency="replicated")
        copies = {c.tier: c.role for c in await memory.admin.where(entry.id)}
        assert copies == {"mid": "home", "long": "replica"}
    await _forget_replica(config, entry.id)

    async with Memory({**config, "durations": {"sweep_every": "20ms"}}) as memory:
        deadline = time.monotonic() + 60
        while len(await memory.admin.where(entry.id)) < 2:
            assert time.monotonic() < deadline, "maintenance did not deliver the replica"
            await asyncio.sleep(0.02)


async def _forget_replica(config: Mapping[str, object], entry_id: str) -> None:
    """As a process that died between the write and the delivery would leave it."""
    from dataclasses import replace

    from memory.orchestrator.storage.collections import ENTRIES
    from memory.orchestrator.storage.outbox import replicas
    from memory.ports.record import Key, Record
    from memory.ports.writes import Always, Delete, Newer, Purge, Put

    async with Memory(config) as memory:
        homes = engine_of(memory).topology
        key = Key("default", entry_id)
        record = (await homes.home("mid").get(ENTRIES, [key]))[0]
        assert isinstance(record, Record)
        owed = replicas(engine_of(memory).placement, ENTRIES, homes.home("mid"), "mid")
        await homes.home("mid").apply([Put(ENTRIES, replace(record, owed=owed), Always())])
        await homes.home("long").apply(
            [Delete(ENTRIES, key, record.version + 1, Newer()), Purge(ENTRIES, key, record.version + 1)]
        )


async def test_opening_twice_at_once_opens_once(tmp_path: Path) -> None:
    memory = Memory(f"sqlite:///{tmp_path / 'm.db'}", embedder="none")
    first, second = await asyncio.gather(memory.open(), memory.open())
    assert first is second is memory
    await asyncio.gather(memory.close(), memory.close())
