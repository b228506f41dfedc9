"""The HTTP application over one memory."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from memory.facade.memory import Memory
from memory.server.callers import Authenticator
from memory.server.gate import Gate
from memory.server.identity import AuditLog, KeyStore
from memory.server.identity.trail import AuditTrail
from memory.server.limits import AdviceBudget
from memory.server.metrics import Metrics, RequestMetrics
from memory.server.openapi import describe
from memory.server.paths import EncodedPaths, HeadRequests
from memory.server.problems import add_problem_handlers
from memory.server.routes import ROUTERS
from memory.server.routes.health import Readiness
from memory.server.settings import ServerSettings


def create_app(
    memory: Memory,
    settings: ServerSettings,
    authenticator: Authenticator,
    *,
    local_only: bool = False,
    keys: KeyStore | None = None,
    audit: AuditLog | None = None,
) -> FastAPI:
    """Return the application of an open memory.

    Args:
        memory: The memory. Whoever calls opens and closes it.
        settings: The settings of the server.
        authenticator: Finds out who makes a request.
        local_only: Refuse what a web page of another origin could send, as for `--dev`.
        keys: The API keys that `/v1/admin/keys` manages.
        audit: The audit log. Without it nothing is recorded.
    """
    metrics = Metrics()
    observers = [Middleware(RequestMetrics, metrics=metrics)]
    if memory.config.telemetry:
        from memory.server.spans import RequestSpans  # needs the extra `telemetry`

        observers.append(Middleware(RequestSpans))
    trail = Middleware(AuditTrail, authenticator=authenticator, audit=audit, reads=settings.audit.reads)
    gate = Middleware(Gate, authenticator=authenticator, settings=settings, local_only=local_only)
    app = FastAPI(
        title="memory-tiers",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[Middleware(EncodedPaths), *observers, trail, gate, Middleware(HeadRequests)],
        generate_unique_id_function=lambda route: route.name,
        # FastAPI's own spans have the query string, and its logs the text of errors
        telemetry={"tracing": False, "logs": False, "metrics": memory.config.telemetry},
    )
    app.state.memory, app.state.settings = memory, settings
    app.state.keys = KeyStore(memory) if keys is None else keys
    app.state.audit = AuditLog(memory, keep=settings.audit.keep) if audit is None else audit
    app.state.advice = AdviceBudget(settings.advice_per_minute)
    app.state.readiness, app.state.metrics = Readiness(memory), metrics
    add_problem_handlers(app)
    for router in ROUTERS:  # `include_router` would match each request twice, and through wrappers
        app.router.routes.extend(router.routes)
    app.router.routes.extend(_mcp_routes(settings))

    def openapi() -> dict[str, Any]:
        return describe(app)

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _mcp_routes(settings: ServerSettings) -> list[BaseRoute]:
    """Return the route of MCP; none without the extra `mcp`, or with an older SDK."""
    try:
        found = version("mcp")
    except PackageNotFoundError:
        return []
    if found.partition(".")[0] != "2":
        return []
    from memory.server.mcp_mount import McpEndpoint

    return [McpEndpoint(settings).route]
