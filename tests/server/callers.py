"""A server with keys in this process, for the tests of identity."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx

from memory.facade.config.server import ServerSettings
from memory.facade.memory import Memory
from memory.server.app import create_app
from memory.server.callers import Role
from memory.server.identity import AuditLog, KeyAuthenticator, KeyStore, TokenVerifier

BASE = "http://127.0.0.1"


class KeyServer:
    """An application with keys and an audit log, and calls with a key."""

    def __init__(self, memory: Memory, tokens: TokenVerifier | None = None, **settings: Any) -> None:
        self.memory = memory
        self.keys = KeyStore(memory)
        self.audit = AuditLog(memory, keep=timedelta(days=30))
        self.authenticator = KeyAuthenticator(memory, self.keys, tokens=tokens)
        self.app = create_app(
            memory, ServerSettings(**settings), self.authenticator, keys=self.keys, audit=self.audit
        )
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=BASE)

    async def key(self, tenant: str = "acme", role: Role = "writer", *scopes: str) -> str:
        """The text of a new key."""
        return (await self.keys.create(tenant, role, scopes=scopes))[1]

    async def call(self, key: str | None, method: str, path: str, **given: Any) -> httpx.Response:
        """The answer to a request with a key."""
        headers = {**given.pop("headers", {})}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        return await self.http.request(method, path, headers=headers, **given)


@asynccontextmanager
async def key_server(memory: Memory, **given: Any) -> AsyncIterator[KeyServer]:
    """A server with keys over an open memory."""
    server = KeyServer(memory, **given)
    try:
        yield server
    finally:
        await server.http.aclose()
        await server.audit.close()
