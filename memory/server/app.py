"""The HTTP application over one memory."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware import Middleware

from memory.facade.memory import Memory
from memory.server.callers import Authenticator
from memory.server.gate import Gate
from memory.server.problems import add_problem_handlers
from memory.server.routes import ROUTERS
from memory.server.settings import ServerSettings


def create_app(memory: Memory, settings: ServerSettings, authenticator: Authenticator) -> FastAPI:
    """Return the application of an open memory.

    Args:
        memory: The memory. Whoever calls opens and closes it.
        settings: The settings of the server.
        authenticator: Finds out who makes a request.
    """
    app = FastAPI(
        title="memory-tiers",
        version="1",
        docs_url=None,
        redoc_url=None,
        middleware=[Middleware(Gate, authenticator=authenticator, settings=settings)],
    )
    app.state.memory, app.state.settings = memory, settings
    add_problem_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    return app
