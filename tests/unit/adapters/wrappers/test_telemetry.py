"""Spans and metrics: the conventions' names, and nothing of what was stored or asked."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.wrappers.telemetry import Telemetry
from memory.domain.errors import StoreUnavailable
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    delete,
    key_of,
    put,
    query_ids,
    record,
    release,
    search_hits,
)
from memory.ports.query import Query, within
from memory.ports.writes import Absent, Annotate, RaiseGeneration, Write
from tests.unit.adapters.wrappers.faulty import gone, opened

SECRET = "hunter2"  # noqa: S105


class Watched:
    """A store whose telemetry is kept."""

    def __init__(self, store: InMemoryStore) -> None:
        self.spans = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.reader = InMemoryMetricReader()
        self.store = Telemetry(store, ["short", "mid"], tracers=tracers, meters=MeterProvider([self.reader]))

    def last(self) -> tuple[ReadableSpan, dict[str, Any]]:
        span = self.spans.get_finished_spans()[-1]
        return span, dict(span.attributes or {})

    def points(self) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
        assert (metric.name, metric.unit) == ("gen_ai.client.operation.duration", "s")
        return list(metric.data.data_points)


async def watched(*faults: object) -> Watched:
    return Watched(await opened(*faults))


async def test_a_call_is_a_span_with_the_names_of_the_conventions() -> None:
    seen = await watched()
    await apply_all(seen.store, put(record(1), Absent()), put(record(2), Absent()))
    span, attributes = seen.last()
    assert (span.name, span.kind, span.status.status_code) == (
        "create_memory",
        SpanKind.CLIENT,
        StatusCode.UNSET,
    )
    assert attributes == {
        "gen_ai.operation.name": "create_memory",
        "gen_ai.provider.name": "memory-tiers",
        "gen_ai.memory.store.id": "faulty",
        "gen_ai.memory.record.count": 2,
        "memory.store.call": "apply",
        "memory.store.collections": ("samples",),
        "memory.store.tiers": ("short", "mid"),
        "memory.store.applied": 2,
    }


WRITES: dict[str, list[Write]] = {
    "create_memory": [put(record(1), Absent(), MORE_SAMPLES)],
    "upsert_memory": [put(record(1)), delete(2)],
    "delete_memory": [delete(1), release(2)],
    "update_memory": [Annotate(SAMPLES, key_of(1), 1, accessed_at=T0), RaiseGeneration(HERE)],
}


@pytest.mark.parametrize("operation", WRITES)
async def test_what_a_batch_amounts_to_is_its_operation(operation: str) -> None:
    seen = await watched()
    await seen.store.apply(WRITES[operation])
    assert seen.last()[0].name == operation


async def test_reading_is_searching_and_counts_what_is_found() -> None:
    seen = await watched()
    await apply_all(seen.store, *[put(record(n, texts={"content": "red"})) for n in range(3)])
    for counted, call in (
        (2, seen.store.get(SAMPLES, [key_of(0), key_of(1), key_of(99)])),
        (3, query_ids(seen.store)),
        (3, seen.store.count(Query(SAMPLES, within(HERE)))),
        (3, search_hits(seen.store, "red")),
    ):
        await call
        span, attributes = seen.last()
        assert (span.name, attributes["gen_ai.memory.record.count"]) == ("search_memory", counted)
    assert await seen.store.delete_matching(Query(SAMPLES, within(HERE)), 9) == 3
    span, attributes = seen.last()
    assert (span.name, attributes["gen_ai.memory.record.count"]) == ("delete_memory", 3)


async def test_the_life_of_a_store_is_seen() -> None:
    seen = Watched(InMemoryStore())
    await seen.store.open(DECLARED)
    await seen.store.check()
    await seen.store.close()
    assert [s.name for s in seen.spans.get_finished_spans()] == [
        "open_memory_store",
        "check_memory_store",
        "close_memory_store",
    ]


async def test_a_failure_says_its_kind_and_nothing_else() -> None:
    seen = await watched(StoreUnavailable("faulty", f"password={SECRET}"))
    with pytest.raises(StoreUnavailable):
        await seen.store.get(SAMPLES, [key_of(1)])
    span, attributes = seen.last()
    assert attributes["error.type"] == "StoreUnavailable"
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())
    assert SECRET not in span.to_json()


async def test_durations_are_measured_by_operation_and_error() -> None:
    seen = await watched(None, None, gone())
    for _ in range(2):
        await seen.store.get(SAMPLES, [key_of(1)])
    with pytest.raises(StoreUnavailable):
        await seen.store.get(SAMPLES, [key_of(1)])
    counts = {point.attributes.get("error.type"): point.count for point in seen.points()}
    assert counts == {None: 2, "StoreUnavailable": 1}
    assert {point.attributes["gen_ai.operation.name"] for point in seen.points() or ()} <= {"search_memory"}


async def test_nothing_stored_asked_or_named_by_users_is_recorded() -> None:
    seen = await watched()
    await apply_all(
        seen.store,
        put(record(1, texts={"content": SECRET}, body={"password": SECRET}, fields={"source": SECRET})),
    )
    await search_hits(seen.store, SECRET)
    await seen.store.get(SAMPLES, [key_of(1)])
    told = "".join(span.to_json() for span in seen.spans.get_finished_spans()) + str(seen.points())
    for private in (SECRET, HERE.tenant, HERE.scope, key_of(1).id):
        assert private not in told


async def test_spans_lie_within_the_callers() -> None:
    seen = await watched()
    with seen.store._tracer.start_as_current_span("an agent's turn") as outer:
        await seen.store.get(SAMPLES, [key_of(1)])
    inner = seen.spans.get_finished_spans()[0]
    assert inner.parent is not None
    assert inner.parent.span_id == outer.get_span_context().span_id
