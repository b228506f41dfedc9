"""Records requests in the audit log, and ends those whose key was revoked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory.domain.errors import MemoryTiersError
from memory.server.callers import ROLES, Authenticator, Caller, Unauthenticated
from memory.server.identity.audit import AuditLog, AuditRecord, target
from memory.server.paths import own_path, template_of
from memory.server.problems import Problem, problem_response

log = logging.getLogger(__name__)

CHECKED_EVERY: Final = 0.75
"""Seconds between two checks whether the key of a running request still holds."""
CLIENT_GONE: Final = 499
"""The outcome of a request whose client went away before the response."""
_DELETIONS: Final = frozenset(
    {
        *("POST delete", "POST erase", "POST erase-user", "POST clear", "POST pop", "POST revert-source"),
        *("POST roll-back", "PUT window", "PUT tasks"),
    }
)
"""Methods and the last parts of paths of calls that delete, or take away messages."""
_UNTOLD: Final = ("health", "openapi.json", "metrics")
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
_IN_QUERY: Final = ("scope", "user", "session", "session_id", "key", "source")
_CREATED: Final = re.compile(r"/([^/]+)$")


class AuditTrail:
    """Stands before the gate: each request leaves a record, with its request id.

    Records of deletions and administration are stored before the response is sent.
    If that fails, the response is a 503. Others are stored within a second.

    Args:
        app: The application, with its gate.
        authenticator: Says whether the key of a running request still holds.
        audit: The log; without it nothing is recorded.
        reads: Record reads too.
    """

    def __init__(
        self, app: ASGIApp, authenticator: Authenticator, audit: AuditLog | None, *, reads: bool = False
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._audit = audit
        self._reads = reads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(12)
        scope["request_id"] = request_id
        begun = False

        async def send_recorded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                noted = (b"x-request-id", request_id.encode())
                message["headers"] = [*message.get("headers", ()), noted]
                problem = await self._record(scope, message["status"], Headers(raw=message["headers"]))
                if problem is not None:
                    begun = True
                    await problem_response(problem)(scope, receive, send)
                    raise _ResponseReplaced
                begun = True
            await send(message)

        try:
            await self._run(scope, receive, send_recorded)
            if not begun:  # the client went away, and its call was cancelled
                await self._record(scope, CLIENT_GONE, Headers())
        except _ResponseReplaced:
            return
        except Unauthenticated as error:
            if begun:
                log.info("request %s was ended: its key holds no more", request_id)
                if (cut_off := scope.get("cut_off")) is not None:
                    cut_off()
                return  # the server closes the connection, and the client sees no end
            await problem_response(error)(scope, receive, send_recorded)
        except asyncio.CancelledError:
            if not begun:
                await asyncio.shield(self._record(scope, CLIENT_GONE, Headers()))
            raise

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request as long as its key holds.

        Raises:
            Unauthenticated: The key was revoked or expired meanwhile.
        """
        running = asyncio.ensure_future(self._app(scope, receive, send))
        try:
            while True:
                done, _ = await asyncio.wait([running], timeout=CHECKED_EVERY)
                if done:
                    await running
                    return
                if scope.get("caller") is not None and not scope.get("ends_own_key"):
                    await self._check(scope)
        finally:
            if not running.done():
                running.cancel()
                with contextlib.suppress(BaseException):
                    await running

    async def _check(self, scope: Scope) -> None:
        try:
            await self._authenticator.authenticate(Headers(scope=scope))
        except (MemoryTiersError, Problem) as error:
            if isinstance(error, Unauthenticated):
                raise
            log.warning("the key of a running request could not be checked: %s", error)

    async def _record(self, scope: Scope, status: int, headers: Headers) -> Problem | None:
        """Record a request, and return the problem if a record could not be stored."""
        if self._audit is None or own_path(scope).strip("/").split("/")[0] in _UNTOLD:
            return None
        status = scope.get("audit_outcome", status)  # of a call that fails within a 200
        record = _record_of(scope, status, headers, datetime.now(UTC))
        needed, is_done = scope.get("role_needed"), status < 400 or status == CLIENT_GONE
        is_export = is_done and scope["path"].endswith("/export")
        is_change = _is_change(scope["method"], scope["path"], needed)
        is_denial = status in (401, 403)
        if not (is_denial or is_change or is_export or self._reads):
            return None
        is_kept = is_done and (
            is_export or (is_change and (_is_deletion(scope) or _is_administration(needed)))
        )
        if not is_kept:
            self._audit.note(record)
            return None
        try:
            await self._audit.store(record)
        except (MemoryTiersError, OSError) as error:
            log.error("the record of request %s could not be stored: %s", record.request_id, error)
            self._audit.note(record)
            return Problem(
                503,
                "audit_unavailable",
                "the call was made, but its record could not be stored in the audit log yet",
                headers={"X-Request-Id": record.request_id, "Cache-Control": "private, no-cache"},
            )
        return None


class _ResponseReplaced(Exception):
    """The response of the application was replaced by another one."""


def _record_of(scope: Scope, status: int, headers: Headers, at: datetime) -> AuditRecord:
    caller: Caller | None = scope.get("caller")
    if caller is None:
        return AuditRecord(at, "", "", "authenticate", status, scope["request_id"])
    path = template_of(scope) or "(no such path)"
    targets = tuple(_targets(scope, headers, caller.tenant))
    action = f"{scope['method']} {path}"
    return AuditRecord(at, caller.tenant, caller.key_id, action, status, scope["request_id"], targets)


def _is_change(method: str, path: str, role: Any) -> bool:
    """Return whether a request may change something.

    A reader may call what is no change, and commands, which check the role themselves.
    """
    return method not in ("GET", "HEAD", "OPTIONS") and (role != "reader" or path.endswith("/commands"))


def _is_deletion(scope: Scope) -> bool:
    if scope["method"] == "DELETE" or scope.get("is_deletion", False):
        return True
    return f"{scope['method']} {scope['path'].rpartition('/')[2]}" in _DELETIONS


def _is_administration(role: Any) -> bool:
    return role in ROLES and ROLES.index(role) >= ROLES.index("admin")


def _targets(scope: Scope, headers: Headers, tenant: str) -> list[str]:
    """Return the targets of a request: of its path, its query and its response."""
    found = [target(name, str(value), tenant) for name, value in scope.get("path_params", {}).items()]
    query = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
    found += [target(name, value, tenant) for name, value in query if name in _IN_QUERY]
    if (created := _CREATED.search(headers.get("location", ""))) is not None:
        kind = "key_id" if own_path(scope).startswith("/v1/admin/keys") else "created"
        found.append(target(kind, created[1], tenant))
    found += [target(name, value, tenant) for name, value in scope.get("audit_targets", ())]
    return list(dict.fromkeys(found))[:50]
