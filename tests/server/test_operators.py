"""What operators see of a server: metrics, and spans of its requests."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.parser import text_string_to_metric_families

from memory.domain.errors import StoreUnavailable
from memory.facade.config.server import ServerSettings
from memory.facade.memory import Memory
from memory.server.app import create_app
from memory.server.callers import DevAuthenticator
from memory.server.run import serve
from tests.acceptance.support import stores_of
from tests.server.callers import KeyServer, key_server
from tests.server.support import ENTRIES, client_of

pytestmark = pytest.mark.backend("sqlite")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ONE = f"{ENTRIES}/{{entry_id}}"
SECRETS = ("acme", "ada", "secret", "user:", "mt_")
"""Parts of tenants, scopes, paths and keys that nobody may see in a metric or span."""


async def metrics_of(server: KeyServer, key: str) -> tuple[str, dict[tuple[str, ...], float]]:
    """All metrics as text, and their values by name and labels."""
    answer = await server.call(key, "GET", "/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    samples = [one for family in text_string_to_metric_families(answer.text) for one in family.samples]
    return answer.text, {(one.name, *dict(sorted(one.labels.items())).values()): one.value for one in samples}


async def test_operators_see_how_many_requests_ended_how_and_how_long_they_took(memory: Memory) -> None:
    async with key_server(memory) as server:
        operator = await server.key("acme", "operator")
        writer = await server.key("acme", "writer", "user:ada")
        made = await server.call(writer, "POST", ENTRIES, json={"scope": "user:ada", "content": "secret"})
        for path in (made.json()["id"], made.json()["id"], "secret"):
            await server.call(writer, "GET", f"{ENTRIES}/{path}")
        await server.call(writer, "GET", "/secret")
        await server.call("mt_secret", "GET", f"{ENTRIES}/secret")
        await server.call(writer, "SECRET", ENTRIES)
        await server.call(writer, "GET", "/v1/documents/item?scope=user%3Aada&key=secret")
        await server.call(writer, "GET", "/v1/sessions/secret%2Ftrip")
        assert (await server.call(writer, "GET", "/metrics")).status_code == 403
        assert (await server.call(None, "GET", "/metrics")).status_code == 401
        text, found = await metrics_of(server, operator)
    count = "memory_http_requests_total"
    assert {labels[1:]: value for labels, value in found.items() if labels[0] == count} == {
        ("POST", ENTRIES, "201"): 1,
        ("GET", ONE, "200"): 2,
        ("GET", ONE, "404"): 1,
        ("GET", "(none)", "404"): 1,
        ("GET", "(none)", "401"): 2,
        ("other", ENTRIES, "405"): 1,
        ("GET", "/v1/documents/item", "404"): 1,
        ("GET", "/v1/sessions/{session_id}", "404"): 1,
        ("GET", "/metrics", "403"): 1,
    }
    timed = "memory_http_request_duration_seconds"
    assert found[f"{timed}_count", "GET", ONE] == found[f"{timed}_bucket", "+Inf", "GET", ONE] == 3
    assert found[f"{timed}_sum", "GET", ONE] > 0
    assert found["memory_http_requests_in_flight",] == 1  # the request for the metrics
    assert found["memory_store_up", "sqlite"] == 1
    assert not [secret for secret in SECRETS if secret in text]


async def test_a_store_that_does_not_answer_is_down_in_the_metrics(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise StoreUnavailable("main", "is away")

    async with client_of(memory) as client:
        (store,) = stores_of(memory)
        monkeypatch.setattr(store, "check", fail)
        answer = await client.answer("GET", "/metrics")
    assert 'memory_store_up{store="sqlite"} 0.0' in answer.text.splitlines()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def ended(spans: InMemorySpanExporter) -> tuple[list[ReadableSpan], list[ReadableSpan]]:
    """The ended spans of requests, and those of stores."""
    found = spans.get_finished_spans()
    spans.clear()
    own = [one for one in found if one.kind is SpanKind.SERVER]
    return own, [one for one in found if one.kind is SpanKind.CLIENT]


async def test_a_request_is_a_span_of_the_callers_trace_and_holds_those_of_the_stores(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    async with (
        Memory(f"sqlite:///{tmp_path}/memory.db", telemetry=True) as memory,
        client_of(memory) as client,
    ):
        spans.clear()
        continued = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        made = await client.call(
            "POST", ENTRIES, 201, json={"scope": "user:ada", "content": "secret"}, headers=continued
        )
        (own,), calls = ended(spans)
        assert own.name == f"POST {ENTRIES}"
        assert own.parent is not None
        assert (f"{own.context.trace_id:032x}", f"{own.parent.span_id:016x}") == (TRACE, PARENT)
        assert calls
        assert {one.context.trace_id for one in calls} == {own.context.trace_id}
        assert own.context.span_id in {one.parent.span_id for one in calls if one.parent is not None}

        await client.call("GET", f"{ENTRIES}/{made['id']}", headers={"traceparent": "wrong"})
        await client.call("GET", f"{ENTRIES}/secret", 404)
        await client.call("GET", "/secret", 404)
        await client.call("GET", ENTRIES, params={"q": "secret", "scope": "user:ada"})
        found, _ = ended(spans)
        assert [one.name for one in found] == [f"GET {ONE}", f"GET {ONE}", "GET", f"GET {ENTRIES}"]
        assert all(one.parent is None and one.status.status_code is StatusCode.UNSET for one in found)
        assert dict(found[1].attributes or {}) == {
            "http.request.method": "GET",
            "http.route": ONE,
            "http.response.status_code": 404,
            "url.scheme": "http",
        }
        shown = [  # all but the ids, in which "ada" may be drawn
            f"{span.name} {dict(span.attributes or {})} {span.events} {span.status.description}"
            for span in (own, *found)
        ]
        assert not [one for one in SECRETS for text in shown if one in text]


async def test_a_fault_of_the_server_is_an_error_of_its_span(
    tmp_path: Path, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("main", "secret")

    async with (
        Memory(f"sqlite:///{tmp_path}/memory.db", telemetry=True) as memory,
        client_of(memory) as client,
    ):
        monkeypatch.setattr(memory, "browse", fail)
        spans.clear()
        await client.call("GET", ENTRIES, 503, params={"scope": "user:ada"})
        (own,), _ = ended(spans)
    assert own.status.status_code is StatusCode.ERROR
    assert (own.attributes or {})["error.type"] == "503"
    assert "secret" not in own.to_json()


async def test_without_telemetry_requests_have_no_spans(memory: Memory, spans: InMemorySpanExporter) -> None:
    async with client_of(memory) as client:
        await client.call("GET", ENTRIES, params={"scope": "user:ada"})
    assert ended(spans) == ([], [])


async def test_the_routes_are_built_before_the_server_says_that_it_listens(memory: Memory) -> None:
    app, described = create_app(memory, ServerSettings(), DevAuthenticator(memory)), list[bool]()

    def stop_at_once(address: str) -> None:
        described.append(app.openapi_schema is not None)
        signal.raise_signal(signal.SIGTERM)

    assert isinstance(app, FastAPI)
    await serve(app, ServerSettings(port=0, grace=timedelta(seconds=1)), stop_at_once)
    assert described == [True]
