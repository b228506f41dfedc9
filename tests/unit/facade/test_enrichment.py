"""Enrichment as it is measured, configured, and called without an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from memory import BlockingMemory, ConfigError, Memory, MemoryConfig
from memory.adapters.wrappers.telemetry import EnrichmentMetrics
from memory.domain.enrichment import AutoTag
from memory.facade.runtime.access import engine_of
from memory.ports.advisor import Advice, Prompt

ADA = "user:ada"


def points(reader: InMemoryMetricReader, name: str) -> list[Any]:
    data: Any = reader.get_metrics_data()
    found = [
        m
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for m in scope.metrics
        if m.name == name
    ]
    return [point for metric in found for point in metric.data.data_points]


async def test_telemetry_measures_what_advisors_are_asked_and_the_tokens_they_say() -> None:
    answers = ["ERR", Advice("sea", input_tokens=120, output_tokens=3)]
    reader = InMemoryMetricReader()
    async with Memory("memory://", embedder="none", advisor=lambda prompt: answers.pop()) as memory:
        engine_of(memory).enricher.watcher = EnrichmentMetrics(meters=MeterProvider([reader]))
        for _ in range(2):
            await memory.write_with_report("Ada sails", scope=ADA, auto_tag=True)
        model = engine_of(memory).enricher._advisor.model  # type: ignore[union-attr]
    about = {"memory.enrichment.of": "auto_tag", "gen_ai.request.model": model}
    tokens = {
        point.attributes["gen_ai.token.type"]: (point.sum, point.attributes)
        for point in points(reader, "gen_ai.client.token.usage")
    }
    assert tokens == {
        kind: (count, about | {"gen_ai.token.type": kind}) for kind, count in (("input", 120), ("output", 3))
    }
    (durations,) = points(reader, "memory.enrichment.duration")
    assert (durations.count, durations.attributes) == (2, about | {"memory.enrichment.answered": True})


async def test_an_advisor_that_fails_is_measured_apart() -> None:
    def fails(prompt: Prompt) -> str:
        raise RuntimeError("no model there")

    reader = InMemoryMetricReader()
    async with Memory("memory://", embedder="none", advisor=fails) as memory:
        engine_of(memory).enricher.watcher = EnrichmentMetrics(meters=MeterProvider([reader]))
        await memory.write_with_report("Ada sails", scope=ADA, auto_tag=True)
    (durations,) = points(reader, "memory.enrichment.duration")
    assert durations.attributes["memory.enrichment.answered"] is False
    assert points(reader, "gen_ai.client.token.usage") == []


async def test_a_configuration_with_telemetry_watches_advisors() -> None:
    async with Memory("memory://", embedder="none", telemetry=True) as memory:
        assert isinstance(engine_of(memory).enricher.watcher, EnrichmentMetrics)
    async with Memory("memory://", embedder="none") as memory:
        assert engine_of(memory).enricher.watcher is None


@pytest.mark.behaviour("D100")
def test_toggles_are_off_unless_configured() -> None:
    config = MemoryConfig.load("memory://")
    assert (config.enrichment.auto_tag, config.enrichment.auto_supersede) == (False, False)
    with pytest.raises(
        ConfigError,
        match=(
            r"enrichment\.auto_tags: there is no setting 'auto_tags' in \[enrichment\]; did you mean"
            r" 'auto_tag'"
        ),
    ):
        MemoryConfig.load("memory://", enrichment={"auto_tags": True})


def test_without_an_event_loop_it_is_the_same() -> None:
    with BlockingMemory("memory://", embedder="none", advisor=lambda prompt: "sea") as memory:
        written = memory.scoped(ADA).write_with_report("Ada sails", auto_tag=True)
        assert written.entry.tags == ["sea"]
        assert isinstance(written.auto_tag, AutoTag)
        assert memory.enrichment(written.entry.id).auto_tag == written.auto_tag
        old = memory.write("Ada lives in Porto", scope=ADA)
        manual = (
            memory.scoped(ADA)
            .write_with_report("Ada lives in Faro", supersedes=[old.id], wait="5s")
            .supersedes_manual
        )
        assert manual is not None
        assert manual.invalidated == (old.id,)


def test_an_answer_that_says_what_it_cost_is_a_text() -> None:
    answer = Advice("sea", input_tokens=1)
    assert (answer, answer.input_tokens, answer.output_tokens) == ("sea", 1, None)


async def test_the_end_of_a_session_waits_for_what_an_advisor_is_being_asked_of_its_entries() -> None:
    """They do not move before: an end that did not wait would leave them where they
    are, and nobody ends a session twice.
    """

    async def slow(prompt: Prompt) -> str:
        await asyncio.sleep(0.05)
        return "sea"

    async with Memory("memory://", embedder="none", advisor=slow) as memory:
        entry = await memory.write(
            "Ada sails", scope="session:s1", type="reference", tags=["fact"], auto_tag=True
        )
        report = await memory.sessions.end("s1")
        assert ([one.entry_id for one in report.moved], report.waiting) == ([entry.id], [])
        found = await memory.get(entry.id)
        assert found is not None
        assert (found.tags, found.tier) == (["fact", "sea"], "long")
