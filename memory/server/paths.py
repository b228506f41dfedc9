"""Paths whose parts may hold a slash, such as the id of a session; their methods.

Each resource that has GET has HEAD too.
"""

from __future__ import annotations

from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
"""The methods that routes have."""
_MCP = "/mcp"
"""The path whose GET would be a stream without end."""


def template_of(scope: Scope) -> str | None:
    """Return the path of the route that answers a request; None if there is none."""
    return getattr(scope.get("route"), "path_format", None)


def own_path(scope: Scope) -> str:
    """Return the path of a request within the application, without its prefix."""
    path: str = scope["path"]
    prefix = prefix_of(scope)
    return path[len(prefix) :] if path.startswith(f"{prefix}/") else path


def prefix_of(scope: Scope) -> str:
    """Return the prefix of all paths of the application, such as `/memory`.

    That is the `root_path` of the server, and where another application has mounted it.
    """
    prefix: str = scope.get("root_path", "")
    return prefix.rstrip("/")


class EncodedPaths:
    """Leaves `%2F` and `%25` in paths encoded, so that they stay in one part.

    A session id such as `ada/2024` is sent as `ada%2F2024`. Servers decode the path
    before they look for a route, and would find two parts.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") if scope["type"] == "http" else None
        if raw and b"%" in raw:
            parts = raw.partition(b"?")[0].decode("ascii", "replace").split("/")
            scope = {**scope, "path": "/".join(_encode(unquote(part)) for part in parts)}
        await self._app(scope, receive, send)


def _encode(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")


class HeadRequests:
    """Answers HEAD as GET: the same status and headers, without the body.

    Streams look at `is_head` of the scope, so that they need not read what is not sent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or own_path(scope) == _MCP:
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            scope["method"] = "HEAD"  # for the logs
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        scope["method"], scope["is_head"] = "GET", True
        try:
            await self._app(scope, receive, send_head)
        finally:
            scope["method"] = "HEAD"


class _TextConvertor(Convertor[str]):
    """One part of a path, with its slashes and percent signs decoded."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return value.replace("%2F", "/").replace("%25", "%")

    def to_string(self, value: str) -> str:
        return _encode(value)


register_url_convertor("text", _TextConvertor())
