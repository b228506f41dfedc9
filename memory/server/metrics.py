"""Metrics of requests in the text format of Prometheus.

Labels are methods, route templates, statuses and names of stores: never a tenant, a
key, a scope or an id.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory.server.identity.audit import AuditLog
from memory.server.identity.trail import CLIENT_GONE
from memory.server.paths import METHODS, template_of

BOUNDARIES: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds."""
_NO_ROUTE: Final = "(none)"
"""The label of requests that no route answered, such as those without a key."""


class Metrics:
    """The metrics of one application."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "memory_http_requests",
            "Requests that were answered",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._durations = Histogram(
            "memory_http_request_duration_seconds",
            "Time from the header of a request to the end of its response",
            ("method", "route"),
            buckets=BOUNDARIES,
            registry=self._registry,
        )
        self.in_flight = Gauge(
            "memory_http_requests_in_flight", "Requests that are being answered", registry=self._registry
        )
        self._stores = Gauge(
            "memory_store_up", "1 if a store answers, else 0", ("store",), registry=self._registry
        )
        self._audit = Gauge(
            "memory_audit_records",
            "Records of the audit log that wait for the store, and those that it could not keep",
            ("state",),
            registry=self._registry,
        )

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests.labels(method, route, status).inc()
        self._durations.labels(method, route).observe(seconds)

    def render(self, stores: Mapping[str, bool], audit: AuditLog) -> bytes:
        """Return all metrics as text.

        Args:
            stores: Whether each store answers, by its name.
            audit: The audit log.
        """
        self._audit.labels("waiting").set(audit.waiting)
        self._audit.labels("unstored").set(audit.unstored)
        for name, answers in stores.items():
            self._stores.labels(name).set(answers)
        return generate_latest(self._registry)


class RequestMetrics:
    """Counts and times each request of an application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), CLIENT_GONE

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with self._metrics.in_flight.track_inprogress():
                await self._app(scope, receive, send_noted)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            route = template_of(scope) or _NO_ROUTE
            self._metrics.record(method, route, status, time.perf_counter() - began)
