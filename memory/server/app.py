"""The HTTP application over one memory."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware import Middleware

from memory.facade.memory import Memory
from memory.server.callers import Authenticator
from memory.server.gate import Gate
from memory.server.identity import AuditLog, KeyStore
from memory.server.identity.trail import AuditTrail
from memory.server.problems import add_problem_handlers
from memory.server.routes import ROUTERS
from memory.server.settings import ServerSettings


def create_app(
    memory: Memory,
    settings: ServerSettings,
    authenticator: Authenticator,
    *,
    keys: KeyStore | None = None,
    audit: AuditLog | None = None,
) -> FastAPI:
    """Return the application of an open memory.

    Args:
        memory: The memory. Whoever calls opens and closes it.
        settings: The settings of the server.
        authenticator: Finds out who makes a request.
        keys: The API keys that `/v1/admin/keys` manages.
        audit: The audit log. Without it nothing is recorded.
    """
    app = FastAPI(
        title="memory-tiers",
        version="1",
        docs_url=None,
        redoc_url=None,
        middleware=[
            Middleware(AuditTrail, authenticator=authenticator, audit=audit, reads=settings.audit.reads),
            Middleware(Gate, authenticator=authenticator, settings=settings),
        ],
    )
    app.state.memory, app.state.settings = memory, settings
    app.state.keys = KeyStore(memory) if keys is None else keys
    app.state.audit = AuditLog(memory, keep=settings.audit.keep) if audit is None else audit
    add_problem_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    return app
