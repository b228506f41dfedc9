"""MCP over HTTP: `POST /mcp`, for callers that the server has authenticated.

Each request stands for itself, in both versions of the protocol: it has no session, and
its key is checked. So any process can answer it, and a revoked key ends what it opened.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import unquote

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from memory.domain.error_table import rule_of
from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope as MemoryScope
from memory.facade.config.identity import LOOPBACK
from memory.facade.config.mcp import DEFAULT_MCP_SCOPE
from memory.mcp.callers import Caller as McpCaller
from memory.mcp.server import ENDLESS, MemoryServer, create_server
from memory.mcp.settings import McpSettings
from memory.server.callers import Caller
from memory.server.gate import LOCAL_NAMES
from memory.server.problems import Problem
from memory.server.requests import targets_of
from memory.server.settings import ServerSettings

PATH = "/mcp"
_READ, _PROMPT = "resources/read", "prompts/get"
_RESOURCE = re.compile(r"memory://(entries|sessions)/(.+)")
_NAMES = {"entries": "id", "sessions": "session_id"}
"""The name in the audit log of the id in the address of a resource."""
_PORT = re.compile(r":\d*$")
logging.getLogger("mcp.server.streamable_http_manager").setLevel(logging.WARNING)  # it logs each request


class McpEndpoint:
    """Answers MCP requests, each with the view of its caller.

    Args:
        settings: The settings of the HTTP server.
    """

    def __init__(self, settings: ServerSettings) -> None:
        with _root_logger_kept():
            self._for_writers = self._make(settings, read_only=False)
            self._for_readers = self._make(settings, read_only=True)
        self._tools = {one.name: one for one in self._for_writers.definitions}
        self._settings = settings
        self.route = Route(PATH, self, methods=["POST"], name="mcp")
        """The route of the endpoint: only POST, because there are no sessions."""
        self._actions = {name: Route(f"{PATH}:{name}", self) for name in (*self._tools, _READ, _PROMPT)}
        """The routes by which the audit log names the tools, resources and prompts."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            Problem: 403 for a page of another origin, 413 for too large a body.
        """
        _refuse_foreign(Headers(scope=scope), self._settings)
        body = await Request(scope, receive).body()
        request = _parse(body)
        self._note_for_audit(scope, request)
        if request.get("method") in ENDLESS and (end_at_stop := scope.get("end_at_stop")) is not None:
            end_at_stop()
        caller: Caller = scope["caller"]
        server = self._for_writers if caller.may("writer") else self._for_readers
        manager = StreamableHTTPSessionManager(
            server.session_manager.app,
            json_response=True,
            stateless=True,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=self._settings.body_bytes,
        )
        async with manager.run():
            await manager.handle_request(scope, _replay(body, receive), send)

    @staticmethod
    def _make(settings: ServerSettings, *, read_only: bool) -> MemoryServer:
        """Return a server of MCP; one for readers lists only what they may do."""
        chosen = McpSettings(profile=settings.mcp_profile, read_only=read_only)
        made = create_server(None, chosen, callers=_caller_of)
        made.streamable_http_app()  # makes the manager, which alone has the inner server
        return made

    def _note_for_audit(self, scope: Scope, request: dict[str, Any]) -> None:
        """Say what is called on which records, and whether it is a change."""
        name, arguments = _action_of(request)
        scope["route"] = self._actions.get(name, self.route)
        is_change = name in self._tools and self._tools[name].writes
        scope["role_needed"] = "writer" if is_change else "reader"
        scope["audit_targets"] = targets_of(arguments)
        if is_change and not scope["caller"].may("writer"):
            scope["audit_outcome"] = 403  # to a reader, the tool does not exist


@contextmanager
def _root_logger_kept() -> Iterator[None]:
    """Keep the SDK from giving the root logger a handler and a level."""
    guard = logging.NullHandler()
    logging.getLogger().addHandler(guard)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(guard)


async def _caller_of(context: Any) -> McpCaller:
    """Return the caller of a request as MCP sees it. The gate has authenticated it.

    Its scopes are those of its key, or the default scope.
    """
    scope: Scope = context.request_context.request.scope
    caller: Caller = scope["caller"]
    default = caller.default_scope or MemoryScope.parse(DEFAULT_MCP_SCOPE)
    scopes = caller.scopes if caller.scopes is not None else (default,)
    role: Literal["reader", "writer"] = "writer" if caller.may("writer") else "reader"
    try:
        target = caller.write_scope if caller.scopes is not None else default
    except InvalidInput:
        target = default
    view = caller.memory.restrict(scopes, role=role, origin=f"mcp:{caller.key_id}")
    texts = tuple(scope.text for scope in scopes)

    def note_error(error: Exception) -> None:
        scope["audit_outcome"] = rule_of(error).status

    return McpCaller(view, texts, target.text if role == "writer" else None, note_error)


def _refuse_foreign(headers: Headers, settings: ServerSettings) -> None:
    """Refuse what a web page could send here, even after it rebound its name.

    Raises:
        Problem: 403 for a page of another origin. 421 for another name than those of
            this machine, if the server listens on this machine only.
    """
    origin, host = headers.get("origin"), headers.get("host", "").lower()
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        raise Problem(403, "foreign_origin", "MCP answers no request from a page of another origin")
    is_local = settings.host in LOOPBACK and not settings.behind_proxy
    if is_local and _PORT.sub("", host) not in LOCAL_NAMES:
        raise Problem(421, "wrong_host", "this server is for 127.0.0.1 and localhost only")


def _parse(body: bytes) -> dict[str, Any]:
    """Return the object of a body; an empty one if it has none."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return request if isinstance(request, dict) else {}


def _action_of(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the tool that a request calls, and its arguments.

    A read of a resource and a prompt have the name of their method. The name is empty
    for all other requests.
    """
    match request:
        case {"method": "tools/call", "params": {"name": str(name), "arguments": dict(arguments)}}:
            return name, arguments
        case {"method": "tools/call", "params": {"name": str(name)}}:
            return name, {}
        case {"method": "resources/read", "params": {"uri": str(uri)}}:
            found = _RESOURCE.fullmatch(uri)
            return _READ, {} if found is None else {_NAMES[found[1]]: unquote(found[2])}
        case {"method": "prompts/get"}:
            return _PROMPT, {}
    return "", {}


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body that was read already."""
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
