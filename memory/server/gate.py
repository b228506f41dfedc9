"""The gate before every route: who calls, from where, and how much."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory.server.callers import Authenticator
from memory.server.problems import problem_response
from memory.server.settings import ServerSettings

PUBLIC = frozenset({"/health/live", "/openapi.json"})
"""Paths that need no key: they tell nothing of what is stored."""


class Gate:
    """Lets a request through to the routes, or answers it with a problem."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, settings: ServerSettings) -> None:
        self._app = app
        self._authenticator = authenticator
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_noted(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            if scope["path"] not in PUBLIC:
                scope["caller"] = await self._authenticator.authenticate(Headers(scope=scope))
            await self._app(scope, receive, send_noted)
        except Exception as error:
            response = problem_response(error, Request(scope))
            if started:
                raise
            await response(scope, receive, send)
