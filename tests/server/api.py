"""An API over a memory in this process, and clients of each tenant and role."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
from fastapi import FastAPI
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from starlette.datastructures import Headers

from memory import Memory
from memory.facade.arguments import scope_or_subtree
from memory.server.app import create_app
from memory.server.callers import Caller, Role, Unauthenticated
from memory.server.settings import ServerSettings

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


@functools.cache
def document() -> dict[str, Any]:
    """The OpenAPI document of the API."""
    app = create_app(Memory("memory://"), ServerSettings(), cast("Any", None))
    return app.openapi()


@functools.cache
def _validator(template: str, method: str, status: str) -> Any:
    """What checks the JSON of a response against the document."""
    responses = document()["paths"][template][method]["responses"]
    content = responses[status if status in responses else "default"]["content"]
    (schema,) = (one["schema"] for one in content.values())
    return Draft202012Validator({"components": document()["components"], **_closed(schema)})


def _closed(schema: Any) -> Any:
    """A schema with all references, in which no object has fields that it does not name."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _closed(document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    found = {name: _closed(one) for name, one in schema.items() if name not in ("examples", "example")}
    if found.get("type") == "object" and "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


def check_documented(response: httpx.Response) -> None:
    """Check that a response is as the OpenAPI document says."""
    path = response.request.url.raw_path.decode().partition("?")[0]
    method, status = response.request.method.lower(), str(response.status_code)
    if response.headers.get("content-type") == "application/json":
        _validator(template_of(path), method, status).validate(response.json())


def template_of(path: str) -> str:
    """The path of the document that a path matches; the one with the fewest parameters."""
    fitting = [one for one in document()["paths"] if re.fullmatch(re.sub("{.*?}", "[^/]+", one), path)]
    return str(min(fitting, key=lambda one: one.count("{")))


class Client:
    """A client of one caller. Its calls return JSON and check the status."""

    def __init__(self, app: FastAPI, name: str) -> None:
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=False),
            base_url="http://localhost",
            trust_env=False,
            headers={"Authorization": f"Bearer {name}"},
        )

    async def send(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        if body is not None:
            options["json"] = body
        response = await self.http.request(method, path, **options)
        check_documented(response)
        return response

    async def call(
        self, method: str, path: str, body: Any = None, *, status: int = 200, **options: Any
    ) -> Any:
        """Return the JSON of a response with this status."""
        response = await self.send(method, path, body, **options)
        assert response.status_code == status, (method, path, response.status_code, response.text)
        return response.json()

    async def problem(self, status: int, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Return the problem document of a refused request."""
        response = await self.send(method, path, body, **options)
        assert response.status_code == status, (method, path, response.status_code, response.text)
        assert response.headers["content-type"].startswith("application/problem+json")
        document = response.json()
        assert document["status"] == status
        assert document["error"]
        assert document["code"]
        assert "Traceback" not in response.text
        return document


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
        return Client(self.app, " ".join((role, tenant, *scopes)))


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
