"""`memory.maintain` and workers: maintenance by whoever calls for it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import InvalidInput, Memory
from memory.domain.maintenance_reports import SweepReport
from memory.facade.runtime.access import engine_of
from memory.facade.worker import Worker
from memory.orchestrator.storage.lease import Lease
from tests.acceptance.support import Clock
from tests.unit.facade.test_upkeep import _forget_replica, _until

pytestmark = pytest.mark.backend("sqlite")
SECOND = timedelta(seconds=1)


def three_files(folder: Path, **durations: str) -> dict[str, Any]:
    tiers = {t: f"sqlite:///{folder / t}.db" for t in ("short", "mid", "long")}
    return {"tiers": tiers, "embedder": "none", "durations": {"sweep_every": "0s", **durations}}


async def test_one_step_of_maintenance_delivers_what_a_crash_left(tmp_path: Path) -> None:
    config = three_files(tmp_path)
    async with Memory(config) as memory:
        entry = await memory.write("the ferry runs on Sundays", scope="user:ada")
    await _forget_replica(config, entry.id)
    async with Memory(config) as memory:
        report = await memory.maintain(budget="10s", rate=1_000)
        assert (report.ran, report.more, report.finished) == (True, False, 1)
        assert {c.tier: c.role for c in await memory.admin.where(entry.id)} == {
            "mid": "home",
            "long": "replica",
        }


@pytest.mark.parametrize(
    "given",
    [
        {"budget": "soon"},
        {"budget": 0},
        {"budget": -1.0},
        {"budget": True},
        {"rate": 0},
        {"rate": float("nan")},
        {"rate": "fast"},
    ],
)
async def test_what_is_no_budget_and_no_rate_is_refused_by_name(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    async with Memory(three_files(tmp_path)) as memory:
        with pytest.raises(InvalidInput) as refused:
            await memory.maintain(**given)
    assert refused.value.field == next(iter(given))


async def test_of_two_workers_one_does_what_there_is_and_both_end_when_asked_to(tmp_path: Path) -> None:
    config = three_files(tmp_path)
    async with Memory(config) as memory:
        entries = [await memory.write(f"fact {n}", scope="user:ada") for n in range(5)]
    for entry in entries:
        await _forget_replica(config, entry.id)
    reports: list[SweepReport] = []
    async with Memory(config) as one, Memory(config) as other:
        workers = [
            Worker(each, every=SECOND / 50, budget=SECOND, told=reports.append) for each in (one, other)
        ]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        await _until(lambda: sum(report.finished for report in reports) >= 5 and len(reports) > 6)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
        assert sum(report.finished for report in reports) == 5
        assert [(report.waiting, report.stays) for report in reports if report.waiting or report.stays] == []
        for entry in entries:
            assert {c.tier: c.role for c in await one.admin.where(entry.id)} == {
                "mid": "home",
                "long": "replica",
            }


async def test_a_worker_whose_rounds_fail_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[SweepReport] = []
    async with Memory(three_files(tmp_path)) as memory:
        sweep, failures = (
            engine_of(memory).maintenance.sweep,
            iter([OSError("the disk is asleep"), OSError("still asleep")]),
        )

        async def failing(*args: Any) -> SweepReport:
            if (failure := next(failures, None)) is not None:
                raise failure
            return await sweep(*args)

        monkeypatch.setattr(engine_of(memory).maintenance, "sweep", failing)
        worker = Worker(memory, every=SECOND / 100, budget=SECOND, told=reports.append)
        running = asyncio.create_task(worker.run())
        await _until(lambda: len(reports) > 1)
        worker.stop()
        await running


async def test_a_worker_takes_over_from_one_that_died_holding_the_lease(tmp_path: Path) -> None:
    """No time goes by until the worker has met the lease, and then more than it lasts."""
    config, clock = three_files(tmp_path, lease="2s", tombstone_life="1ms"), Clock()
    async with Memory(config, clock=clock) as dead, Memory(config, clock=clock) as memory:
        entry = await memory.write("hello", scope="user:ada")
        await memory.delete(entry.id)
        await Lease(engine_of(dead).placement).hold()
        reports: list[SweepReport] = []
        worker = Worker(memory, every=SECOND / 50, budget=SECOND, told=reports.append)
        running = asyncio.create_task(worker.run())
        await _until(lambda: bool(reports))
        await _until(lambda: clock.advance() and sum(report.purged for report in reports) >= 2)
        worker.stop()
        await running
    assert reports[0].ran is False
    assert sum(report.purged for report in reports) == 2, "the tombstones of both tiers"


async def test_a_worker_rests_as_long_as_what_it_was_told_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once again where something is left; within a lease where another is at it;
    longer and longer while rounds fail or stores do not answer.
    """
    more, away, another, idle = (
        SweepReport(more=True),
        SweepReport(waiting=("store 'long' is down",)),
        SweepReport(ran=False),
        SweepReport(),
    )
    rounds: list[SweepReport | Exception] = [
        more,
        idle,
        another,
        OSError("asleep"),
        away,
        away,
        away,
        idle,
        away,
    ]
    rests: list[float] = []

    async def scripted(*_: Any) -> SweepReport:
        if isinstance(came := rounds.pop(0), Exception):
            raise came
        return came

    async def rest(worker: Worker, wait: timedelta) -> None:
        rests.append(wait.total_seconds())
        if not rounds:
            worker.stop()

    async with Memory(three_files(tmp_path, lease="20s")) as memory:
        monkeypatch.setattr(engine_of(memory), "maintain", scripted)
        monkeypatch.setattr(Worker, "_rest", rest)
        await Worker(memory, every=5 * SECOND, budget=SECOND).run()
        assert rests == [0, 5, 4, 1, 2, 4, 5, 5, 1]
