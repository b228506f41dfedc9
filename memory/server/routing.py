"""The routes of the API: what each of them checks before its endpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute

from memory.domain.json_values import RepeatedKey, distinct_keys
from memory.facade.runtime.request_ids import requests_with
from memory.server.bodies import unknown_name
from memory.server.callers import Role, require_role
from memory.server.problems import Problem, bad_request

_CONDITIONS: Final = frozenset({"if-match", "if-none-match"})


class ApiRoute(APIRoute):
    """A route that refuses unknown parameters, and conditions that it does not check.

    An endpoint may have an attribute `role`: the role that its callers need. As
    dependencies of FastAPI these checks would take a third of the time of a short
    request.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        known, checked = _parameters_of(self), {one.alias.lower() for one in self.dependant.header_params}
        unchecked = sorted(_CONDITIONS - checked)
        role: Role | None = getattr(self.endpoint, "role", None)
        is_repeatable = "idempotency-key" in checked and "GET" not in (self.methods or ())

        async def handle(request: Request) -> Response:
            request = _JsonRequest(request.scope, request.receive)
            if request.scope["query_string"]:
                _refuse_unknown_parameters(request, known)
            if request.method not in ("GET", "HEAD"):  # a read returns what it would return anyway
                _refuse_unchecked_conditions(request, unchecked)
            if role is not None:
                require_role(request, role)
            if not is_repeatable or "idempotency-key" not in request.headers:
                return await answer(request)
            with requests_with(await _content_of(request)):
                return await answer(request)

        return handle


class _JsonRequest(Request):
    """A request whose JSON has each key of an object once."""

    async def json(self) -> Any:
        if not hasattr(self, "_parsed"):
            try:
                self._parsed = json.loads(await self.body(), object_pairs_hook=distinct_keys)
            except RepeatedKey as error:
                raise bad_request(error.key, "occurs more than once in one object. Send it once") from None
        return self._parsed


async def _content_of(request: Request) -> str | None:
    """Return a digest of the JSON of a body; None for another body."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not media_type.endswith(("/json", "+json")):
        return None
    try:
        text = json.dumps(await request.json(), sort_keys=True)
    except Problem:
        raise
    except Exception:  # noqa: BLE001 - the route reads the body too, and says what is wrong
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_unknown_parameters(request: Request, known: Mapping[str, bool]) -> None:
    """Refuse query parameters that the route does not have, or that are repeated.

    Raises:
        Problem: 400, naming the right parameter.
    """
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    wrong = [unknown_name("parameter", name, known) for name in dict.fromkeys(names) if name not in known]
    if wrong:
        raise Problem(
            400,
            "invalid_input",
            "; ".join(f"{one['field']}: {one['message']}" for one in wrong),
            errors=[(one["field"], one["message"]) for one in wrong],
        )
    for name in dict.fromkeys(names):
        if names.count(name) > 1 and not known[name]:
            raise bad_request(name, "is given more than once. Give it once")


def _refuse_unchecked_conditions(request: Request, unchecked: list[str]) -> None:
    """Refuse a condition of a change that the route does not check.

    Raises:
        Problem: 400, naming the header.
    """
    for header in unchecked:
        if header in request.headers:
            name = header.title()
            raise bad_request(name, "cannot be checked by this call. Send the request without it")


def _parameters_of(route: APIRoute) -> Mapping[str, bool]:
    """Return the query parameters of a route, and which of them may be repeated."""
    found, left = dict[str, bool](), [route.dependant]
    while left:
        dependant = left.pop()
        left += dependant.dependencies
        for one in dependant.query_params:
            kind = one.field_info.annotation
            fields = getattr(kind, "model_fields", None) or {one.alias: one.field_info}
            found |= {name: "list" in str(field.annotation) for name, field in fields.items()}
    described = (route.openapi_extra or {}).get("parameters", ())
    return found | {one["name"]: one["schema"].get("type") == "array" for one in described}
