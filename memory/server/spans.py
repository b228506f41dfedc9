"""An OpenTelemetry span for each request; the calls of stores are its children.

It has the method, the route template and the status. Like the spans of stores, it has
no text, id, tenant, scope or query.
"""

from __future__ import annotations

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, StatusCode
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory.server.paths import METHODS, template_of

SCOPE = "memory.server"


class RequestSpans:
    """Opens a server span for each request, below the caller's `traceparent`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tracer = trace.get_tracer(SCOPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in METHODS else "HTTP"
        with self._tracer.start_as_current_span(
            method,
            context=propagate.extract(Headers(scope=scope)),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "url.scheme": scope["scheme"]},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            async def send_noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_attribute("error.type", str(message["status"]))
                        span.set_status(StatusCode.ERROR)
                await send(message)

            try:
                await self._app(scope, receive, send_noted)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)  # no message: an error's text may name a key
                raise
            finally:
                if (route := template_of(scope)) is not None:
                    span.update_name(f"{method} {route}")
                    span.set_attribute("http.route", route)
