"""When a write returns, as a user says it, and how far behind replicas are, as a user
sees it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from memory import BlockingMemory, Memory
from memory.adapters.wrappers.telemetry import DeliveryMetrics, MaintenanceMetrics
from memory.domain.errors import ConfigError, CorruptRecord, InvalidInput, StoreUnavailable
from memory.domain.maintenance_reports import SweepReport
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.collections import ENTRIES
from memory.ports.contract.cells import cells
from memory.ports.record import Key
from tests.support.damaging import damage

ADA = "user:ada"


def three_files(folder: Path, **settings: Any) -> dict[str, Any]:
    return {
        "tiers": {tier: f"sqlite:///{folder / tier}.db" for tier in ("short", "mid", "long")},
        "embedder": "none",
        **settings,
    }


async def replicas(memory: Memory, entry_id: str) -> list[str]:
    return [copy.tier for copy in await memory.admin.where(entry_id) if copy.role == "replica"]


async def test_what_is_no_consistency_is_refused_by_name_and_nothing_is_written(tmp_path: Path) -> None:
    async with Memory(three_files(tmp_path)) as memory:
        entry = await memory.write("one", scope=ADA)
        wrong: Any = "eventually"
        for call in (
            memory.write("two", scope=ADA, consistency=wrong),
            memory.scoped(ADA).write("two", consistency=wrong),
            memory.write_many([{"content": "two", "scope": ADA}], consistency=wrong),
            memory.update(entry.id, content="two", consistency=wrong),
            memory.promote(entry.id, "org:o1", consistency=wrong),
            memory.compact([entry.id], lambda _: "two", consistency=wrong),
            memory.entries.invalidate(entry.id, consistency=wrong),
        ):
            with pytest.raises(InvalidInput, match="consistency"):
                await call
        assert [e.content async for e in memory.entries.iterate()] == ["one"]
    with pytest.raises(ConfigError, match="consistency"):
        Memory(three_files(tmp_path, consistency=wrong))


@pytest.mark.parametrize("configured", [False, True])
async def test_replicated_returns_once_replicas_stand(tmp_path: Path, configured: bool) -> None:
    settings: dict[str, Any] = {"consistency": "replicated"} if configured else {}
    mine: Any = {} if configured else {"consistency": "replicated"}
    async with Memory(three_files(tmp_path, **settings)) as memory:
        one = await memory.write("one", scope=ADA, **mine)
        other = await memory.scoped(ADA).write("other", **mine)
        (third,) = await memory.write_many([{"content": "third", "scope": ADA}], **mine)
        wide = await memory.promote(one.id, "org:o1", **mine)
        for entry in (one, other, third, wide):
            assert await replicas(memory, entry.id) == ["long"]
        summary = await memory.compact([one.id, other.id], lambda _: "both", **mine)
        assert await replicas(memory, summary.id) == ["long"]
        edited = await memory.update(one.id, content="edited", **mine)
        assert {copy.version for copy in await memory.admin.where(one.id)} == {edited.version}
        assert await memory.entries.invalidate(other.id, **mine)
        assert len({copy.version for copy in await memory.admin.where(other.id)}) == 1


async def test_what_supersedes_is_replicated_with_the_ends_of_others_when_that_is_asked(
    tmp_path: Path,
) -> None:
    async with Memory(three_files(tmp_path)) as memory:
        old = await memory.write("old", scope=ADA, consistency="replicated")
        new = await memory.write("new", scope=ADA, supersedes=[old.id], consistency="replicated")
        assert await replicas(memory, new.id) == ["long"]
        (home, replica) = await memory.admin.where(old.id)
        assert home.version == replica.version > old.version


async def test_flushing_and_closing_wait_for_replicas(tmp_path: Path) -> None:
    async with Memory(three_files(tmp_path)) as memory:
        one = await memory.write("one", scope=ADA)
        await memory.admin.flush()
        assert await replicas(memory, one.id) == ["long"]
        other = await memory.write("other", scope=ADA)
    async with Memory(three_files(tmp_path, durations={"sweep_every": "0s"})) as memory:
        assert await replicas(memory, other.id) == ["long"]


def test_the_blocking_twin_delivers_and_flushes_too(tmp_path: Path) -> None:
    with BlockingMemory(three_files(tmp_path)) as memory:
        one = memory.write("one", scope=ADA)
        memory.admin.flush()
        assert [copy.tier for copy in memory.admin.where(one.id)] == ["mid", "long"]
        memory.write("other", scope=ADA)
    with BlockingMemory(three_files(tmp_path)) as memory:
        assert [(tier.replicas, tier.pending_replicas) for tier in memory.admin.stats().tiers] == [
            (0, 0),
            (0, 0),
            (2, 0),
        ]


async def test_stats_tell_how_far_behind_a_tier_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Memory(three_files(tmp_path, durations={"sweep_every": "0s"})) as memory:
        engine = engine_of(memory)
        monkeypatch.setattr(engine.placement, "settings", replace(engine.settings, linger=timedelta(hours=1)))
        with monkeypatch.context() as dying:
            dying.setattr(engine.deliveries, "deliver", leave)
            await memory.write("left", scope=ADA)
        for n in range(3):
            await memory.write(f"queued {n}", scope=ADA)
        await memory.for_tenant("globex").write("another's", scope=ADA)
        told = {tier.tier: tier for tier in (await memory.admin.stats()).tiers}
        assert told["mid"].queued == told["mid"].pending_replicas == 0
        assert (told["long"].replicas, told["long"].pending_replicas, told["long"].queued) == (0, 4, 3)
        assert told["long"].behind_seconds > 0
        await memory.admin.flush()
        told = {tier.tier: tier for tier in (await memory.admin.stats()).tiers}
        assert (
            told["long"].replicas,
            told["long"].pending_replicas,
            told["long"].queued,
            told["long"].behind_seconds,
        ) == (3, 1, 0, 0.0)


async def leave(*_: object) -> None:
    """As a process that died before it delivered."""


async def test_telemetry_counts_what_waits_and_how_long_it_took(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    async with Memory(three_files(tmp_path)) as memory:
        engine_of(memory).deliveries.watcher = DeliveryMetrics(meters=MeterProvider([reader]))
        entry = await memory.write("one", scope=ADA)
        await memory.update(entry.id, content="two")
        await memory.admin.flush()
        await memory.write("three", scope=ADA)
        assert queued(reader) == {("long",): 1}
        await memory.admin.flush()
        assert queued(reader) == {("long",): 0}
    delays = points(reader, "memory.deliveries.delay")
    assert [point.attributes for point in delays] == [{"memory.store.tiers": ("long",)}]
    assert delays[0].count >= 2


async def test_a_configuration_with_telemetry_watches_deliveries(tmp_path: Path) -> None:
    async with Memory(three_files(tmp_path, telemetry=True)) as memory:
        assert isinstance(engine_of(memory).deliveries.watcher, DeliveryMetrics)
        assert isinstance(engine_of(memory).maintenance.watcher, MaintenanceMetrics)
    async with Memory(three_files(tmp_path)) as memory:
        assert (engine_of(memory).deliveries.watcher, engine_of(memory).maintenance.watcher) == (None, None)


async def test_telemetry_counts_how_rounds_of_maintenance_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = InMemoryMetricReader()
    async with Memory(three_files(tmp_path, durations={"sweep_every": "0s"})) as memory:
        maintenance = engine_of(memory).maintenance
        maintenance.watcher = MaintenanceMetrics(meters=MeterProvider([reader]))
        await memory.admin.sweep()
        with monkeypatch.context() as failing:
            failing.setattr(maintenance._orphans, "drop", away)
            await memory.maintain()
        with monkeypatch.context() as failing:
            failing.setattr(maintenance, "_job", broken)
            with pytest.raises(RuntimeError):
                await memory.admin.sweep()
        with monkeypatch.context() as cut_off:
            cut_off.setattr(maintenance, "_job", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await memory.admin.sweep()
    ended = {
        point.attributes["memory.maintenance.outcome"]: point.value
        for point in points(reader, "memory.maintenance.rounds")
    }
    assert ended == {"done": 1, "waiting": 1, "failed": 1}


async def test_telemetry_tells_what_is_in_quarantine_behind_a_round_that_reached_every_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = InMemoryMetricReader()
    async with Memory(three_files(tmp_path, durations={"sweep_every": "0s"})) as memory:
        maintenance = engine_of(memory).maintenance
        maintenance.watcher = MaintenanceMetrics(meters=MeterProvider([reader]))
        entry = await memory.write("one", scope=ADA)
        await damage(
            engine_of(memory).topology.archive,
            f"sqlite:///{tmp_path / 'mid'}.db",
            ENTRIES,
            Key("default", entry.id),
        )
        with pytest.raises(CorruptRecord):
            await memory.get(entry.id)
        with monkeypatch.context() as failing:
            failing.setattr(maintenance._orphans, "drop", away)
            await memory.maintain()
        assert points(reader, "memory.store.quarantined") == []
        await memory.maintain()
        await memory.delete(entry.id)
        told = {
            point.attributes["gen_ai.memory.store.id"]: point.value
            for point in points(reader, "memory.store.quarantined")
        }
        assert told == {"sqlite": 0, "sqlite-2": 1, "sqlite-3": 0}
        await memory.maintain()
        assert {point.value for point in points(reader, "memory.store.quarantined")} == {0}


@cells(
    "report, outcome",
    [
        (SweepReport(), "done"),
        (SweepReport(more=True), "more"),
        (SweepReport(ran=False, more=True), "elsewhere"),
        (SweepReport(ran=False, waiting=("x",)), "waiting"),
        (SweepReport(waiting=("x",), stays=("y",)), "stays"),
    ],
    shared=True,
)
def test_the_outcome_of_a_round_is_the_worst_of_it(report: SweepReport, outcome: str) -> None:
    assert report.outcome == outcome


async def away(*_: object) -> int:
    raise StoreUnavailable("mid", "away")


async def cancelled(*_: object) -> None:
    raise asyncio.CancelledError


async def broken(*_: object) -> None:
    raise RuntimeError("a mistake of ours")


def queued(reader: InMemoryMetricReader) -> dict[Any, Any]:
    return {
        point.attributes["memory.store.tiers"]: point.value
        for point in points(reader, "memory.deliveries.queued")
    }


def points(reader: InMemoryMetricReader, name: str) -> list[Any]:
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [metric for scope in data.resource_metrics[0].scope_metrics for metric in scope.metrics]
    return [point for metric in metrics if metric.name == name for point in metric.data.data_points]
