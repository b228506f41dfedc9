"""Each operation of a manager is a span that ends, with the agent's attributes and
without a text (E95).
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memory.agents.manager import AddTool, MemoryManager
from memory.domain.errors import StoreAddFailure
from tests.unit.agents.manager.stores import Kept, Searched, entries, named

AGENT = {"gen_ai.agent.name": "ferry"}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def told(spans: InMemorySpanExporter) -> list[tuple[str, Any, Any]]:
    """Of each span that ended its name, how many entries, and which error."""

    def about(span: ReadableSpan) -> tuple[str, Any, Any]:
        attributes = span.attributes or {}
        assert attributes["gen_ai.agent.name"] == "ferry"
        assert "secret" not in str(dict(attributes))
        return span.name, attributes.get("gen_ai.memory.record.count"), attributes.get("error.type")

    ended = [about(span) for span in spans.get_finished_spans()]
    spans.clear()
    return ended


@pytest.mark.behaviour("E95")
async def test_every_operation_is_told_and_ends(spans: InMemorySpanExporter) -> None:
    kept = Kept(*entries("secret tea", "secret rum"))
    manager = MemoryManager([named(kept, writable=True)], add_tool=True, attributes=AGENT)
    await manager.search("secret")
    await manager.add("secret")
    await manager.dispatch("add_memory", {"entries": ["secret", "secrets"]})
    assert told(spans) == [("search_memory", 2, None), ("create_memory", 1, None), ("create_memory", 2, None)]
    await manager.inject([{"role": "user", "content": "secret"}])
    assert told(spans) == [("search_memory", 2, None), ("inject_memory", None, None)]


@pytest.mark.behaviour("E95")
async def test_an_operation_that_fails_is_told_by_the_kind_of_its_error(spans: InMemorySpanExporter) -> None:
    kept = Kept()
    kept.refuses = OSError("secret")
    manager = MemoryManager(
        [named(kept, writable=True)], add_tool=AddTool(wait_for_writes=False), attributes=AGENT
    )
    with pytest.raises(StoreAddFailure):
        await manager.add("secret")
    await manager.dispatch("add_memory", {"entries": ["secret"]})
    await manager.flush()
    assert told(spans) == [
        ("create_memory", None, "StoreAddFailure"),
        ("create_memory", None, "StoreAddFailure"),
    ]
    await MemoryManager([named(Searched(error=OSError("secret")))], attributes=AGENT).inject(
        [{"role": "user", "content": "secret"}]
    )
    assert told(spans) == [("search_memory", 0, None), ("inject_memory", None, None)]


async def test_without_opentelemetry_all_of_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    manager = MemoryManager([named(Searched("tea"))], attributes=AGENT)
    assert [found.content for found in await manager.search("x")] == ["tea"]
