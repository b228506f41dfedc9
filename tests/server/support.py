"""What the tests of the HTTP server share: a client in the process, and short calls."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from memory.domain.scope import Scope
from memory.facade.config.server import ServerSettings
from memory.facade.memory import Memory
from memory.server.app import create_app
from memory.server.callers import Authenticator, DevAuthenticator
from tests.server.description import check_documented

BASE = "http://127.0.0.1"
ENTRIES = "/v1/memory/entries"
RELATIONS = "/v1/memory/relations"


class Client:
    """Calls the API, and checks what every answer has."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def call(
        self,
        method: str,
        path: str,
        status: int = 200,
        *,
        headers: Mapping[str, str] | None = None,
        **given: Any,
    ) -> Any:
        """The body of an answer, which must have this status."""
        answer = await self.answer(method, path, headers=headers, **given)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def answer(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **given: Any
    ) -> httpx.Response:
        """An answer as it is described. An error must be a whole problem without a trace."""
        answer = await self.http.request(method, path, headers=headers, **given)
        check_documented(answer)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json", answer.text
            problem = answer.json()
            assert problem["status"] == answer.status_code
            assert {"type", "title", "detail", "error", "code", "errors"} <= problem.keys()
            assert problem["error"]
            assert "Traceback" not in answer.text
        return answer

    async def write(self, content: str = "", **given: Any) -> Any:
        """A new entry of Ada, unless another scope is named."""
        return await self.call("POST", ENTRIES, 201, json={"scope": "user:ada", "content": content, **given})

    async def titles(self, **query: Any) -> list[str]:
        """The titles of a list or a search."""
        found = await self.call("GET", ENTRIES, params=query)
        return [str(one["title"]) for one in found["entries"]]

    async def refused(self, method: str, path: str, status: int = 400, **given: Any) -> tuple[str, str]:
        """The first field of a refusal, and what is wrong with it."""
        problem = await self.call(method, path, status, **given)
        first = problem["errors"][0] if problem["errors"] else {"field": "", "message": problem["error"]}
        return first["field"], first["message"]


@asynccontextmanager
async def client_of(
    memory: Memory, authenticator: Authenticator | None = None, *, local_only: bool = False, **settings: Any
) -> AsyncIterator[Client]:
    """A client of the application over an open memory, in this process."""
    asks = authenticator or DevAuthenticator(memory, Scope.user("ada"))
    app = create_app(memory, ServerSettings(**settings), asks, local_only=local_only)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as http:
        yield Client(http)


@dataclass(frozen=True)
class CurlRequest:
    """What a line of curl sends."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None


def request_of_curl(line: str) -> CurlRequest:
    """Read a line of curl, which a newcomer's machine does not have."""
    program, *words = shlex.split(line)
    assert program == "curl"
    method, headers, body, url = None, dict[str, str](), None, ""
    while words:
        match words.pop(0):
            case "-s":
                pass
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(":")
                headers[name] = value.strip()
            case "-d":
                body = words.pop(0)
            case word:
                url = word
    return CurlRequest(method or ("GET" if body is None else "POST"), url, headers, body)
