"""The gate before every route: who calls, from where, and how much at once.

It also limits bodies, cancels the call of a client that went away, and answers what no
route could answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory.domain.errors import MemoryTiersError
from memory.facade.runtime.reads import without_earlier_reads
from memory.server.callers import Authenticator, Caller
from memory.server.identity.key_text import without_texts
from memory.server.limits import BodyReader, KeyLimits
from memory.server.paths import own_path
from memory.server.problems import MEDIA_TYPES, Problem, bad_request, problem_response
from memory.server.settings import ServerSettings

log = logging.getLogger(__name__)
access_log = logging.getLogger("memory.server.access")

PUBLIC = frozenset({"/health/live", "/openapi.json"})
"""Paths that need no key: they tell nothing of what is stored."""
OPTIONAL = frozenset({"/health/ready"})
"""Paths that tell an operator more, and others little."""
LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
SAFELISTED = frozenset({"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})
"""Media types that a page of another origin may send without asking the server."""
OWN_HEADERS = ((b"cache-control", b"private, no-cache"), (b"x-content-type-options", b"nosniff"))


class Gate:
    """Lets a request through to the routes, or answers it with a problem."""

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        settings: ServerSettings,
        local_only: bool = False,
    ) -> None:
        """`local_only` refuses what a web page of another origin could send."""
        self._app = app
        self._authenticator = authenticator
        self._settings = settings
        self._local_only = local_only
        self._limits = KeyLimits(settings)
        self._under_way: set[tuple[str, str, str, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*OWN_HEADERS, *message.get("headers", ())]
                if not body.is_read:  # the rest of it is not waited for
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        body = BodyReader(receive, Headers(scope=scope), self._settings)
        scope["body"] = body
        try:
            with without_earlier_reads():
                await self._serve(scope, body, send_noted)
        except Exception as error:
            if status:
                raise  # the client sees that the response ends early
            response = problem_response(error, Request(scope))
            await response(scope, receive, send_noted)
        finally:
            caller: Caller | None = scope.get("caller")
            access_log.info(
                "%s %s %s %.1f ms key=%s",
                scope["method"],
                without_texts(scope["path"]).encode("unicode_escape").decode(),
                status or "cut off",
                (time.perf_counter() - began) * 1000,
                "-" if caller is None else caller.key_id,
            )

    async def _serve(self, scope: Scope, body: BodyReader, send: Send) -> None:
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            raise Problem(400, "invalid_input", "a body has Content-Length or Transfer-Encoding, not both")
        if self._local_only:
            _refuse_foreign(headers)
        _refuse_safelisted(headers, scope["method"], body)
        _refuse_undecoded(scope, headers, body)
        path = own_path(scope)
        if path in PUBLIC:
            await self._app(scope, body.receive, send)
            return
        if path in OPTIONAL:
            try:
                scope["caller"] = await self._authenticator.authenticate(headers)
            except Problem:  # it gets what everybody gets
                pass
            except (MemoryTiersError, OSError) as error:
                scope["keys_away"] = True
                log.warning("the key of a request could not be checked: %s", error)
            await self._app(scope, body.receive, send)
            return
        caller = await self._authenticator.authenticate(headers)
        scope["caller"] = caller
        with self._limits.admit(caller.limits_key), self._one_of_its_id(caller, scope, headers):
            await body.watch()
            try:
                await self._app(scope, body.receive, send)
            except asyncio.CancelledError:
                if not body.has_cancelled():
                    raise
            finally:
                body.close()

    @contextmanager
    def _one_of_its_id(self, caller: Caller, scope: Scope, headers: Headers) -> Iterator[None]:
        """Refuse a request while another one with its `Idempotency-Key` runs."""
        key = headers.get("idempotency-key")
        if key is None:
            yield
            return
        name = (caller.tenant, caller.key_id, scope["path"], key)
        if name in self._under_way:
            raise Problem(
                409,
                "request_under_way",
                "a request with this Idempotency-Key is still running. Repeat it after that one has ended",
                headers={"Retry-After": "1"},
            )
        self._under_way.add(name)
        try:
            yield
        finally:
            self._under_way.discard(name)


def _refuse_foreign(headers: Headers) -> None:
    """Refuse a request that another name, or a page of another origin, brought here.

    Raises:
        Problem: 421 for another host, and 403 for another origin.
    """
    host = headers.get("host", "")
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    if name.lower() not in LOCAL_NAMES:
        raise Problem(421, "wrong_host", "--dev answers requests for 127.0.0.1 and localhost only")
    origin = headers.get("origin")
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        raise Problem(403, "foreign_origin", "--dev answers no request from a page of another origin")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Problem(403, "foreign_origin", "--dev answers no request from a page of another site")


def _refuse_safelisted(headers: Headers, method: str, body: BodyReader) -> None:
    """Refuse a body of a type that any web page can send.

    Raises:
        Problem: 415.
    """
    if method in ("GET", "HEAD", "OPTIONS") or body.is_empty:
        return
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not media_type or media_type in SAFELISTED:
        raise Problem(
            415,
            "unsupported_media_type",
            MEDIA_TYPES,
        )


def _refuse_undecoded(scope: Scope, headers: Headers, body: BodyReader) -> None:
    """Refuse a request that would be read as another text, or stored as other bytes.

    Raises:
        Problem: 400 for a path or a query that is not UTF-8, and for a part of a body.
            415 for a compressed body.
    """
    for name, sent in (("path", scope.get("raw_path")), ("query", scope["query_string"])):
        try:
            unquote_to_bytes(sent or b"").decode()
        except UnicodeDecodeError:
            raise bad_request(name, "is not UTF-8. Percent-encode the UTF-8 bytes of each text") from None
    if body.is_empty:
        return
    if headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
        text = "Content-Encoding: the server decodes no body. Send it without a content coding"
        raise Problem(415, "unsupported_media_type", text, headers={"Accept-Encoding": "identity"})
    if "content-range" in headers:
        raise bad_request("Content-Range", "a part of a body cannot be stored. Send the whole body")
