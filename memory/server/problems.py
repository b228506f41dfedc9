"""Errors as RFC 9457 problem documents: one renderer for every error of the server."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from memory.domain.corrections import nearest
from memory.domain.error_table import code_of, rule_of
from memory.domain.errors import (
    InvalidInput,
    MemoryTiersError,
    NotFound,
    PartialWrite,
    PicklableException,
    QuotaExceeded,
    VersionConflict,
)
from memory.domain.model_errors import explain_errors, show_value
from memory.server.advice import in_http_words
from memory.server.paths import METHODS, own_path, prefix_of

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
UNREADABLE = "is no JSON that can be read. Send UTF-8, not too deep, without huge numbers"
MEDIA_TYPES = (
    "a body needs Content-Type: application/json; JSON Lines application/jsonl, and a file"
    " application/octet-stream"
)
RETRY_AFTER = "1"
"""Seconds after which a failed call may be repeated."""
_DETAILS = ("existing_id", "entry_id", "current_version", "quota", "position", "store")
"""Attributes of errors that a problem document has too."""


_ID_OF = {"document": "key", "active key": "key_id"}
"""The name of what was not found in a problem document, where it is not `KIND_id`."""


class FieldError(BaseModel):
    """The error of one field of a request."""

    field: str
    message: str


class ProblemDocument(BaseModel):
    """An error, as in RFC 9457."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Bad Request"])
    status: int = Field(examples=[400])
    detail: str = Field(examples=["limit: must be 1..1,000, not 0"])
    error: str = Field(description="A short text of the error.", examples=["limit: must be 1..1,000, not 0"])
    code: str = Field(description="The error for programs.", examples=["invalid_input"])
    errors: list[FieldError] = Field(default=[], description="What is wrong, by field.")
    instance: str | None = Field(default=None, description="Names the error in the server's log.")
    existing_id: str | None = Field(default=None, description="The record that is in the way.")


class Problem(PicklableException, HTTPException):
    """An error of the server's own: one that no error of the library says."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code = code
        self.errors = errors
        self.details = details


def bad_request(field: str, message: str) -> Problem:
    """Return the problem of a request with a wrong field or parameter."""
    return Problem(400, "invalid_input", f"{field}: {message}", errors=[(field, message)])


def problem_response(error: BaseException, request: Request | None = None) -> Response:
    """Return the response that tells a client of an error. It logs what is a fault."""
    if isinstance(error, RequestValidationError):
        error = _of_validation(error)
    if isinstance(error, Problem):
        return render(
            error.status_code,
            error.code,
            str(error.detail),
            error.errors,
            dict(error.headers or {}),
            error.details,
        )
    if isinstance(error, HTTPException):
        return _of_router(error, request)
    if isinstance(error, InvalidInput):
        error = _with_header_name(error, request)
    rule = rule_of(error)
    status, headers = rule.status, dict[str, str]()
    details = {name: getattr(error, name) for name in _DETAILS if getattr(error, name, None) is not None}
    if isinstance(error, NotFound):
        details = {_ID_OF.get(error.kind, f"{error.kind}_id"): error.entry_id}
    if rule.retryable:
        headers["Retry-After"] = RETRY_AFTER
    if isinstance(error, VersionConflict) and request is not None and _has_precondition(request):
        status = HTTPStatus.PRECONDITION_FAILED
    if isinstance(error, PartialWrite) or (isinstance(error, QuotaExceeded) and error.written):
        details["written"] = {at: getattr(one, "id", None) or one.key for at, one in error.written.items()}
    if isinstance(error, PartialWrite):
        details["conflicts"] = {at: str(one) for at, one in error.conflicts.items()}
    errors = (
        [(error.field, in_http_words(error.problem))]
        if isinstance(error, InvalidInput) and hasattr(error, "problem")
        else []
    )
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return render(status, code_of(error), in_http_words(str(error)), errors, headers, details)
    instance = f"urn:uuid:{uuid.uuid4()}"
    if rule.retryable:  # an outage refuses many requests, and a line tells of each
        log.error("%s: %s: %s", instance, code_of(error), error)
    else:
        log.error("%s: %s", instance, code_of(error), exc_info=error)
    text = (
        "the server failed; its log has more under this instance"
        if code_of(error) in ("internal", "file")
        else f"{HTTPStatus(status).phrase}; the server's log has more under this instance"
    )
    return render(status, code_of(error), text, (), headers, {"instance": instance})


def _with_header_name(error: InvalidInput, request: Request | None) -> InvalidInput:
    """Return an error; that of a version has the name of the header that gave it."""
    for header in ("If-Match", "If-None-Match"):
        if error.field == "expected_version" and request is not None and header in request.headers:
            return InvalidInput(header, error.problem)
    return error


def _has_precondition(request: Request) -> bool:
    return "if-match" in request.headers or "if-none-match" in request.headers


def _of_validation(error: RequestValidationError) -> Problem:
    """Return what FastAPI found wrong, by field."""
    if isinstance(error.body, bytes):  # it reads the body only if its type is that of JSON
        return Problem(415, "unsupported_media_type", MEDIA_TYPES)
    found = list[tuple[str, str]]()
    for part in dict.fromkeys(one["loc"][0] for one in error.errors()):
        errors = [_inside(one) for one in error.errors() if one["loc"][0] == part]
        given = error.body if part == "body" else {name: None for one in errors for name in one["loc"][:1]}
        for problem in explain_errors(errors, given, show=show_value):
            found.append((problem.field or str(part), problem.message))
    said = "; ".join(f"{name}: {message}" for name, message in found[:8])
    return Problem(400, "invalid_input", said, errors=found)


def _inside(error: Any) -> dict[str, Any]:
    """Return an error of a request, with its place in the part that it is about."""
    place = list(error["loc"][1:])
    if error["type"] == "json_invalid" and error["loc"][0] == "body":
        place = []  # the place is a position in the text
    return {**error, "loc": tuple(place)}


def _of_router(error: HTTPException, request: Request | None) -> Response:
    status, headers = error.status_code, dict(error.headers or {})
    if status == HTTPStatus.BAD_REQUEST:  # the router's own: it could not read the body
        return problem_response(bad_request("body", UNREADABLE))
    codes, texts = {404: "not_found", 405: "method_not_allowed"}, {404: _no_such_path(request)}
    if status == HTTPStatus.METHOD_NOT_ALLOWED and request is not None:
        headers["Allow"] = ", ".join(_methods_of(request))
        method = "HEAD" if request.scope.get("is_head") else request.method[:20]
        texts[status] = f"this path has {headers['Allow']}, and not {method}"
    return render(status, codes.get(status, "http"), texts.get(status, str(error.detail)), (), headers)


def _no_such_path(request: Request | None) -> str:
    """Return the text for a path that no route has, with the path that was meant."""
    prefix = "" if request is None else prefix_of(request.scope)
    known = f"GET {prefix}/openapi.json lists all paths"
    if request is None:
        return f"there is no such path. {known}"
    asked = own_path(request.scope)[:200].rstrip("/")
    paths = list(_paths_in(request.app.router.routes))
    near = [path for path in paths if path in (asked, f"/v1{asked}", f"/v1/memory{asked}")]
    meant = near[0] if near else nearest(asked, paths, 0.75)
    hint = f"; did you mean '{prefix}{meant}'?" if meant else "."
    return f"there is no such path{hint} {known}"


def _paths_in(routes: Iterable[Any]) -> Iterator[str]:
    """Yield the paths of routes, and of the routers among them."""
    for route in routes:
        if (router := getattr(route, "original_router", None)) is not None:
            yield from _paths_in(router.routes)
        elif path := getattr(route, "path_format", None):
            yield path


def _methods_of(request: Request) -> list[str]:
    """Return the methods of all routes of a path. The router names only the first's."""
    wanted = {method: {"HEAD": "GET"}.get(method, method) for method in METHODS}
    asked = {name: request.scope.get(name, "") for name in ("type", "path", "root_path")}
    routes = request.app.router.routes
    return [
        method
        for method in METHODS
        if any(route.matches({**asked, "method": wanted[method]})[0] is Match.FULL for route in routes)
    ]


def render(
    status: int,
    code: str,
    text: str,
    errors: Sequence[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
    details: Mapping[str, Any] | None = None,
) -> Response:
    """Return the response of a problem document."""
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": text,
        "error": text,
        "code": code,
        "errors": [{"field": field, "message": message} for field, message in errors],
        **(details or {}),
    }
    body = json.dumps(document, default=str).encode()
    return Response(body, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def add_problem_handlers(app: FastAPI) -> None:
    """Make the app answer every error with a problem document."""

    async def handle(request: Request, error: Exception) -> Response:
        return problem_response(error, request)

    for kind in (HTTPException, RequestValidationError, MemoryTiersError, OSError):
        app.add_exception_handler(kind, handle)
