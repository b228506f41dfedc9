"""The OpenAPI document of the API, against which the tests compare every answer."""

from __future__ import annotations

import functools
import re
from typing import Any, cast

import httpx
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from memory import Memory
from memory.server.app import create_app
from memory.server.settings import ServerSettings


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
    is_described = path != "/openapi.json" and response.content
    if is_described and response.headers.get("content-type") == "application/json":
        wrong = [
            one.message for one in _validator(template_of(path), method, status).iter_errors(response.json())
        ]
        assert not wrong, (method, path, status, wrong)


def template_of(path: str) -> str:
    """The path of the document that a path matches; the one with the fewest parameters."""
    fitting = [one for one in document()["paths"] if re.fullmatch(re.sub("{.*?}", "[^/]+", one), path)]
    return str(min(fitting, key=lambda one: one.count("{")))
