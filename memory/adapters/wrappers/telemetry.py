"""OpenTelemetry spans and metrics for the calls of a store.

Names follow the conventions for generative AI (memory spans, in development). Only
names, counts and durations are recorded: never a text, an id, a tenant, a scope or a
query. The operator of the process configures the SDK and its exporters. Without an SDK,
OpenTelemetry records nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind, StatusCode

from memory.adapters.wrappers.base import Call, Wrapper
from memory.ports.store import Store
from memory.ports.writes import Absent, Delete, Outcome, Purge, Put, Release

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

T = TypeVar("T")

PROVIDER = "memory-tiers"
SCOPE = "memory.adapters.wrappers.telemetry"
OPERATIONS = {
    "get": "search_memory",
    "query": "search_memory",
    "search": "search_memory",
    "candidates": "search_memory",
    "count": "search_memory",
    "partitions": "search_memory",
    "delete_matching": "delete_memory",
    "open": "open_memory_store",
    "close": "close_memory_store",
    "check": "check_memory_store",
    **dict.fromkeys(
        ("due", "audit", "vacuum", "idle_partitions", "forget_partitions"), "maintain_memory_store"
    ),
}
"""Operation name of each call in the conventions.

They have no names for opening, closing and maintaining a store; those are our own.
"""
BOUNDARIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds. Stores answer faster than models, for which the conventions chose theirs."""


class Telemetry(Wrapper):
    """Records a span and a duration for each call.

    The histogram `gen_ai.client.operation.duration` is in seconds. `tiers` names the
    tiers that the store serves.

    Spans have the attributes `gen_ai.operation.name`, `gen_ai.provider.name`,
    `gen_ai.memory.store.id` (the store's name in the configuration),
    `gen_ai.memory.record.count` and, on failure, `error.type`. Our own attributes are
    `memory.store.call`, `memory.store.collections` and `memory.store.tiers`.
    `memory.store.applied` counts the applied writes of a call.
    """

    def __init__(
        self,
        inner: Store,
        tiers: Sequence[str] = (),
        *,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
    ) -> None:
        super().__init__(inner)
        self._tiers = tuple(tiers)
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracers)
        meter = metrics.get_meter(SCOPE, meter_provider=meters)
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "How long a store took to answer",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )

    async def _call(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        operation = operation_of(call)
        shared: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.memory.store.id": self.name,
            "memory.store.call": call.method,
        }
        about = {"memory.store.collections": call.collections, "memory.store.tiers": self._tiers}
        begun = time.perf_counter()
        with self._tracer.start_as_current_span(
            operation,
            kind=SpanKind.CLIENT,
            attributes=shared | about,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                answer = await work()
            except BaseException as error:
                shared["error.type"] = type(error).__name__
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)  # no message: an error's text may name a key
                raise
            else:
                _describe(span, answer)
                return answer
            finally:
                self._durations.record(time.perf_counter() - begun, shared)


class DeliveryMetrics:
    """Metrics of the delay between writes and their deliveries, per tier.

    `memory.deliveries.queued` counts the waiting records. `memory.deliveries.delay` is
    the time from the acknowledgement to the delivery, in seconds. Both have the
    attribute `memory.store.tiers`.
    """

    def __init__(self, *, meters: MeterProvider | None = None) -> None:
        meter = metrics.get_meter(SCOPE, meter_provider=meters)
        self._queued = meter.create_up_down_counter(
            "memory.deliveries.queued",
            "{record}",
            "Records that wait in this process to be delivered to a tier",
        )
        self._delays = meter.create_histogram(
            "memory.deliveries.delay",
            "s",
            "How long after a write its record was delivered",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )

    def on_queue_change(self, tier: str, by: int) -> None:
        self._queued.add(by, {"memory.store.tiers": (tier,)})

    def on_deliver(self, tier: str, seconds: float) -> None:
        self._delays.record(seconds, {"memory.store.tiers": (tier,)})


class MaintenanceMetrics:
    """Metrics of maintenance rounds in this process.

    `memory.maintenance.rounds` counts rounds by `memory.maintenance.outcome`: a value
    of `SweepReport.outcome`, or "failed". `memory.store.quarantined` is the number of
    damaged records in quarantine by `gen_ai.memory.store.id`, as of the last round that
    reached every store.
    """

    def __init__(self, *, meters: MeterProvider | None = None) -> None:
        meter = metrics.get_meter(SCOPE, meter_provider=meters)
        self._rounds = meter.create_counter(
            "memory.maintenance.rounds", "{round}", "Rounds of maintenance, by how they ended"
        )
        self._quarantined = meter.create_gauge(
            "memory.store.quarantined", "{record}", "Damaged records of all tenants in quarantine in a store"
        )

    def on_sweep(self, outcome: str) -> None:
        self._rounds.add(1, {"memory.maintenance.outcome": outcome})

    def on_quarantine(self, store: str, records: int) -> None:
        self._quarantined.set(records, {"gen_ai.memory.store.id": store})


class EnrichmentMetrics:
    """Metrics of advisor calls that run after writes.

    `memory.enrichment.duration` is the time of each call in seconds, including failed
    ones. `gen_ai.client.token.usage` counts tokens by `gen_ai.token.type`, if the
    advisor reports them. Both have the attributes `memory.enrichment.of` and
    `gen_ai.request.model`.
    """

    def __init__(self, *, meters: MeterProvider | None = None) -> None:
        meter = metrics.get_meter(SCOPE, meter_provider=meters)
        self._durations = meter.create_histogram(
            "memory.enrichment.duration",
            "s",
            "How long an advisor took to answer",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens that an answer of an advisor took"
        )

    def on_advice(self, of: str, model: str, seconds: float, tokens: Mapping[str, int | None] | None) -> None:
        about = {"memory.enrichment.of": of, "gen_ai.request.model": model}
        self._durations.record(seconds, about | {"memory.enrichment.answered": tokens is not None})
        for kind, count in (tokens or {}).items():
            if count is not None:
                self._tokens.record(count, about | {"gen_ai.token.type": kind})


def operation_of(call: Call) -> str:
    """Return the conventions' name of the memory operation for a call."""
    if call.method != "apply":
        return OPERATIONS[call.method]
    if call.writes and all(isinstance(w, Delete | Purge | Release) for w in call.writes):
        return "delete_memory"
    if call.writes and all(isinstance(w, Put) and isinstance(w.when, Absent) for w in call.writes):
        return "create_memory"
    return "upsert_memory" if any(isinstance(w, Put) for w in call.writes) else "update_memory"


def _describe(span: Span, answer: object) -> None:
    """Set the record counts of an answer on the span."""
    if isinstance(answer, int):
        span.set_attribute("gen_ai.memory.record.count", answer)
    elif isinstance(answer, list):
        span.set_attribute("gen_ai.memory.record.count", sum(item is not None for item in answer))
        if answer and isinstance(answer[0], Outcome):
            span.set_attribute("memory.store.applied", sum(outcome.applied for outcome in answer))
    elif isinstance(records := getattr(answer, "records", None), int | tuple):
        span.set_attribute(
            "gen_ai.memory.record.count", records if isinstance(records, int) else len(records)
        )
