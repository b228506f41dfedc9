"""Routes made from calls of the facade: a table has one row for each.

An `Operation` names a call, such as `session.append`. The signature of the call gives
the fields of the request, its docstring their description, and its return type the
model of the response. So a route says only what HTTP adds: method, path and role.

Three arguments have headers: `request_id` is the `Idempotency-Key`, and
`expected_version` the `If-Match` or, for `ABSENT`, `If-None-Match: *`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Annotated, Any, Final, Literal, get_args

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field, create_model
from starlette.responses import Response

from memory.domain.errors import NotFound
from memory.facade.memory import Memory
from memory.facade.resources.session import Session
from memory.server import paths as paths  # registers the convertor `text`
from memory.server.advice import note_request
from memory.server.bodies import ExpiresIn, RequestBody
from memory.server.callers import Caller, Role
from memory.server.docstrings import Documentation
from memory.server.facade_calls import Values, call_facade, concerns_stores, function_of, hints_of
from memory.server.json_types import field_type, limits_of, model_of_result, shown_result
from memory.server.problems import Problem
from memory.server.rendering import json_response
from memory.server.requests import (
    IdempotencyKey,
    IfMatch,
    IfNoneMatch,
    Prefer,
    UnstoredKey,
    etag_of,
    expected_version,
    expects_absence,
    full_id,
    inner_cursor,
    is_unchanged,
    next_link,
    outer_cursor,
    request_id_of,
    targets_of,
    wait_of,
    with_expiry,
)

_WHO: Final = {
    "user": "The user who calls. The session must be of this user, or shared.",
    "agent": "The agent that calls. The session must be of this agent, or shared.",
    "namespace": "The namespace of the session, as a check.",
}
"""Arguments of `Memory.session` that every call of a session may have."""
_TEXTS: Final = {
    "entry_id": "The id of the entry: a UUID, 42 or #42.",
    "order": "Which results come first.",
    "limit": "At most this many results: 1 to 1,000.",
    "scope": "A scope, such as user:ada.",
    "key": "The key of the document: any text.",
    "status": "Only those in this state; in a body, the state.",
    "query": "The question, as plain text.",
    "mode": "How results are found, or how a run works.",
    "format": "The format that is wanted.",
    "until": "The end of the time that is asked for.",
}
"""Descriptions of fields that the docstrings leave to their names."""
_HANDLE_HINTS: Final = {
    name: hint for name, hint in hints_of("memory.session").items() if name not in ("session_id", "return")
}
_OF_SESSION: Final = Documentation.of(inspect.getdoc(Memory.session) or "")
_PATH_NAME: Final = re.compile(r"{(\w+)(?::\w+)?}")


@dataclass(frozen=True)
class Operation:
    """One route: a call of the facade under a method and a path."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    call: str
    role: Role = "writer"
    status: int = 200
    result: str | None = None
    """The name of a result that is no object, in the response."""
    kind: str | None = None
    """The kind of record that the call needs: 404 if it returns nothing or False."""
    etag: str | None = None
    """The field of the response that is the ETag."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the request besides the arguments, or other types of theirs."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Fields whose arguments have other names, with these names."""
    omits: tuple[str, ...] = ()
    """Arguments that no field gives."""
    in_query: tuple[str, ...] = ()
    """Arguments in the query of a request that has a body."""
    prepare: Callable[[Caller, Values], None] | None = None
    """Turns the fields into arguments."""
    show: Callable[[Caller, Any, Values], Any] | None = None
    """Turns the result and the fields into the content of the response."""
    model: Any = None
    """The model of the response, if `show` is given."""
    creates: bool = False
    """Whether a call of a session creates the session, with its attributes."""
    summary: str | None = None
    example: Mapping[str, Any] | None = None

    @property
    def id(self) -> str:
        """The name of the route in the OpenAPI document."""
        path = _PATH_NAME.sub(lambda found: f"by_{found[1]}", self.path)
        return f"{self.method.lower()}{re.sub('[^a-z0-9]+', '_', path.removeprefix('/v1'))}"

    @property
    def holder(self) -> str:
        return self.call.rpartition(".")[0]

    @property
    def is_of_stores(self) -> bool:
        """Whether the call concerns the stores, and so other tenants too."""
        return concerns_stores(self.call)

    @property
    def function(self) -> Callable[..., Any]:
        return function_of(self.call)

    @property
    def handle(self) -> tuple[str, ...]:
        """The arguments of `Memory.session` that the call of a session has too."""
        if self.holder.partition(".")[0] != "session":
            return ()
        return tuple(_HANDLE_HINTS) if self.creates else tuple(_WHO)

    @property
    def path_names(self) -> list[str]:
        return _PATH_NAME.findall(self.path)


_READERS: Final[dict[str, Operation]] = {}
"""The operations that return a record with its ETag, by their paths."""
_NAMES: Final = ("session_id", "scope", "key", *_WHO)
"""The arguments that name such a record."""


def add_operations(router: APIRouter, operations: tuple[Operation, ...]) -> None:
    """Add the route of each operation to a router."""
    _READERS.update({one.path: one for one in operations if one.method == "GET" and one.etag is not None})
    for operation in operations:
        note_request(operation.call, operation.method, operation.path)
        route = _Route(operation)
        router.add_api_route(
            operation.path,
            route.endpoint(),
            methods=[operation.method],
            status_code=operation.status,
            response_model=None,
            summary=operation.summary or route.documentation.summary,
            description=route.documentation.text or route.documentation.summary,
            operation_id=operation.id,
            responses={operation.status: {"model": operation.model or route.result_model}},
        )


class _Route:
    """The parts of one route: its fields, its documentation and its endpoint."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._hints = hints_of(operation.call)
        self.documentation = Documentation.of(inspect.getdoc(operation.function) or "")
        self.result_model = model_of_result(self._hints["return"], operation.result, bool(operation.kind))
        signature = inspect.signature(operation.function)
        self._parameters = dict(list(signature.parameters.items())[1:])
        self._has_body = operation.method in ("POST", "PUT", "PATCH")
        fields = self._fields()
        in_query = {
            name: fields.pop(name)
            for name in list(fields)
            if not self._has_body or name in operation.in_query
        }
        name = "".join(part.title() for part in re.split(r"[._]", operation.call))
        self._query = create_model(f"{name}Query", **in_query) if in_query else None
        self._body = create_model(f"{name}Body", __base__=RequestBody, **fields) if fields else None
        if self._body is not None and operation.example:
            self._body.model_config["json_schema_extra"] = {"examples": [dict(operation.example)]}

    def _fields(self) -> Values:
        """Return type and default of each field of the request, by name."""
        operation, found = self._operation, dict[str, Any]()
        names = {argument: name for name, argument in operation.renames.items()}
        taken = {"request_id", "expected_version", *operation.omits}
        taken |= {name for name in operation.path_names if name not in names}
        for argument, parameter in self._parameters.items():
            name = names.get(argument, argument)
            if argument in taken or parameter.kind is parameter.VAR_KEYWORD or name in operation.fields:
                continue
            described = self.documentation.arguments.get(argument)
            required = parameter.default is parameter.empty
            found[name] = self._field(name, self._hints[argument], required=required, description=described)
        for name in operation.handle:
            described = _WHO.get(name) or _OF_SESSION.arguments.get(name)
            found[name] = self._field(name, _HANDLE_HINTS[name], required=False, description=described)
        for name, kind in operation.fields.items():
            found[name] = kind if isinstance(kind, tuple) else (kind, ...)
        if self._takes_length(found):
            found["expires_in"] = (ExpiresIn, None)
        return found

    def _takes_length(self, fields: Values) -> bool:
        """Return whether the call takes a length of time as `expires_at`."""
        hint = self._hints.get("expires_at", _HANDLE_HINTS["expires_at"])
        return "expires_at" in fields and timedelta in get_args(hint)

    def _field(self, name: str, hint: Any, *, required: bool, description: str | None) -> tuple[Any, Any]:
        in_query = not self._has_body or name in self._operation.in_query
        kind = field_type(hint, in_query=in_query)
        limits = limits_of(self._operation.call, name)
        if "enum" in limits and not in_query and type(None) in get_args(kind):
            limits["enum"].append(None)
        text = description or _TEXTS.get(name) or f"The {name.replace('_', ' ')}."
        described = Field(description=text, json_schema_extra=limits)
        return Annotated[kind, described], ... if required else None

    def endpoint(self) -> Callable[..., Any]:
        """Return the endpoint, with the signature that FastAPI reads."""

        async def endpoint(**given: Any) -> Response:
            return await self._answer(**given)

        named = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("request", named, annotation=Request)]
        for name in self._operation.path_names:
            text = self.documentation.arguments.get(name) or _TEXTS.get(name)
            described = Path(description=text or f"The {name.replace('_', ' ')}.")
            parameters.append(inspect.Parameter(name, named, annotation=Annotated[str, described]))
        if self._query is not None:
            parameters.append(inspect.Parameter("query", named, annotation=Annotated[self._query, Query()]))
        if self._body is not None:
            needed = any(one.is_required() for one in self._body.model_fields.values())
            kind, default = (self._body, named) if needed else (self._body | None, None)
            parameters.append(
                inspect.Parameter(
                    "body", named, annotation=kind, default=inspect.Parameter.empty if needed else default
                )
            )
        for name, kind in self._headers.items():
            parameters.append(inspect.Parameter(name, named, annotation=kind, default=None))
        endpoint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        endpoint.__name__ = self._operation.call.replace(".", "_")
        endpoint.role = self._operation.role  # type: ignore[attr-defined] # `ApiRoute` checks it
        return endpoint

    @cached_property
    def _headers(self) -> Values:
        operation, found = self._operation, dict[str, Any]()
        if "request_id" in self._parameters:
            found["idempotency_key"] = IdempotencyKey
        elif operation.method == "POST":
            found["idempotency_key"] = UnstoredKey
        if "expected_version" in self._parameters and "expected_version" not in operation.omits:
            found["if_match"] = IfMatch
            if "ABSENT" in str(self._hints["expected_version"]):
                found["if_none_match"] = IfNoneMatch
        elif operation.method == "GET" and operation.etag is not None:
            found["if_none_match"] = IfNoneMatch
        if "consistency" in self._parameters:
            found["prefer"] = Prefer
        return found

    async def _answer(
        self,
        request: Request,
        query: BaseModel | None = None,
        body: BaseModel | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
        if_none_match: str | None = None,
        prefer: str | None = None,
        **values: Any,
    ) -> Response:
        operation, caller = self._operation, request.scope["caller"]
        for part in (query, body):
            if part is not None:
                values |= {name: getattr(part, name) for name in part.model_fields_set}
        if "expires_in" in values and "expires_in" not in self._parameters:
            values = with_expiry(values)
        if values.get("cursor") is not None:
            values["cursor"] = inner_cursor(caller, values["cursor"])
        if "request_id" in self._parameters and idempotency_key is not None:
            values["request_id"] = request_id_of(caller, idempotency_key)
        if wait_of(prefer) is not None:
            values.setdefault("consistency", "replicated")
        await _resolve_ids(caller, operation, values)
        if "expected_version" in self._parameters:
            expected = await self._expected_version(caller, values, if_match)
            if expected is None and operation.method != "GET":
                expected = expects_absence(if_none_match)
            if expected is not None:
                values["expected_version"] = expected
        documents = [*values.get("changes", ()), *values.get("puts", ())]
        named = [(name, getattr(one, name)) for one in documents for name in ("scope", "key")]
        request.scope["audit_targets"] = [*targets_of(values), *named]
        request.scope["is_deletion"] = any(one.op == "delete" for one in values.get("changes", ()))
        asked = dict(values)
        if operation.prepare is not None:
            operation.prepare(caller, values)
        memory = caller.memory
        if operation.is_of_stores:
            require_whole_tenant(caller)
            memory = request.app.state.memory
        result = await call_facade(
            memory,
            operation.call,
            values,
            renames=operation.renames,
            handle=operation.handle,
            creates=operation.creates,
        )
        return await self._response(request, caller, asked, result, if_none_match)

    async def _expected_version(self, caller: Caller, values: Values, if_match: str | None) -> Any:
        operation = self._operation

        async def read() -> str | None:
            reader = _READERS[operation.path]
            named = {name: values[name] for name in _NAMES if name in values}
            found = await call_facade(
                caller.memory, reader.call, named, renames={}, handle=reader.handle, creates=False
            )
            return None if found is None else str(getattr(found, str(reader.etag)))

        creates = "ABSENT" in str(self._hints["expected_version"]) and operation.method == "PUT"
        return await expected_version(if_match, read, values.get("request_id"), creates=creates)

    async def _response(
        self, request: Request, caller: Caller, asked: Values, result: Any, if_none_match: str | None
    ) -> Response:
        operation = self._operation
        if operation.kind is not None and (result is None or result is False):
            named = [str(asked[name]) for name in operation.path_names] or [str(asked.get("key", ""))]
            raise NotFound(named[-1], operation.kind)
        if isinstance(result, Session):
            result = await result.info()
        if operation.show is not None:
            content = operation.show(caller, result, asked)
        else:
            content = shown_result(result, operation.result)
        headers: dict[str, str] = {}
        cursor = content.get("cursor") if isinstance(content, dict) else None
        if cursor is not None:
            content["cursor"] = cursor = outer_cursor(caller, cursor)
        if operation.etag is not None and content.get(operation.etag) is not None:
            version = str(content[operation.etag])
            headers["ETag"] = etag_of(version)
            if operation.method == "GET" and is_unchanged(if_none_match, version):
                return Response(status_code=304, headers=headers)
        if operation.method == "GET":
            headers |= next_link(request, cursor)
        return json_response(content, operation.status, headers=headers)


async def _resolve_ids(caller: Caller, operation: Operation, values: Values) -> None:
    """Replace the short ids of entries by full ones."""
    request = values.get("request_id")
    if "entry_id" in operation.path_names:
        values["entry_id"] = await full_id(caller, values["entry_id"], request_id=request)
    for at, one in enumerate(values.get("entry_ids") or ()):
        with suppress(Problem):  # the call says what is missing
            values["entry_ids"][at] = await full_id(caller, one, request_id=request)


def require_whole_tenant(caller: Caller) -> None:
    """Refuse the callers of some scopes."""
    if caller.scopes is not None:
        raise Problem(403, "forbidden", "this call concerns all scopes, and this key has some scopes only")
