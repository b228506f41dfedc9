"""An API over a memory in this process, and clients of each tenant and role."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
from starlette.datastructures import Headers

from memory import Memory
from memory.facade.arguments import scope_or_subtree
from memory.server.app import create_app
from memory.server.callers import Caller, Role, Unauthenticated
from memory.server.settings import ServerSettings
from tests.server.support import Client

TENANT = "acme"


class NamedCallers:
    """Takes a caller from its name: `Authorization: Bearer ROLE TENANT SCOPE…`."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    async def authenticate(self, headers: Headers) -> Caller:
        kind, *named = headers.get("Authorization", "").split(" ")
        if kind != "Bearer" or len(named) < 2:
            raise Unauthenticated
        role, tenant, *scopes = named
        view, seen = self.memory.for_tenant(tenant), tuple(map(scope_or_subtree, scopes)) or None
        if seen or role == "reader":
            view = view.restrict(seen, role="reader" if role == "reader" else None)
        return Caller(tenant, cast("Role", role), f"{role}-{tenant}", view, scopes=seen)


class Api:
    """The application over one memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._callers = NamedCallers(memory)
        settings = ServerSettings(concurrency=1000, rate=1e6, burst=10**6)
        self.app = create_app(memory, settings, self._callers)

    def use(self, memory: Memory) -> None:
        """Serve another memory from now on."""
        self.memory = self._callers.memory = self.app.state.memory = memory

    def client(self, role: Role = "writer", tenant: str = TENANT, *scopes: str) -> Client:
        return Client(
            httpx.AsyncClient(
                transport=httpx.ASGITransport(self.app, raise_app_exceptions=False),
                base_url="http://localhost",
                headers={"Authorization": f"Bearer {' '.join((role, tenant, *scopes))}"},
            )
        )


@functools.cache
def _shared() -> Api:
    """One application for all tests, because its first requests take long."""
    return Api(Memory("memory://"))


@asynccontextmanager
async def open_api(config: Any = "memory://", **options: Any) -> AsyncIterator[Api]:
    """Open a memory, by default in memory, with the API over it. One at a time."""
    given = {"embedder": "none", "tenant": TENANT, **options}
    if config == "memory://":
        given["accept_loss"] = True
    async with Memory(config, **given) as memory:
        api = _shared()
        api.use(memory)
        yield api
