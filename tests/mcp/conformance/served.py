"""`memory serve` with the fixtures of the suite under `/mcp`.

The suite cannot send a key. So each request is given the one of the environment before
the server sees it. Everything else is the command as it is: `python -m
tests.mcp.conformance.served --config FILE serve`.
"""

from __future__ import annotations

import os
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from memory.cli.main import main
from memory.mcp.server import create_server
from memory.server import mcp_mount
from memory.server.app import create_app
from memory.server.identity import start
from tests.mcp.conformance.fixtures import add_fixtures

KEY = "CONFORMANCE_KEY"


class WithKey:
    """Gives each request the key."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._header = (b"authorization", f"Bearer {os.environ[KEY]}".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


def prepare() -> None:
    """Let the command serve the fixtures beside its own tools."""

    def create_server_with_fixtures(*given: Any, **named: Any) -> Any:
        server = create_server(*given, **named)
        add_fixtures(server)
        return server

    def create_app_with_key(*given: Any, **named: Any) -> Any:
        app = create_app(*given, **named)
        app.add_middleware(WithKey)
        return app

    mcp_mount.create_server = create_server_with_fixtures  # type: ignore[attr-defined]
    start.create_app = create_app_with_key  # type: ignore[attr-defined]


if __name__ == "__main__":
    prepare()
    main()
