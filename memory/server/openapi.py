"""The description of the API: OpenAPI 3.1 at `/openapi.json`."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from memory.server.problems import MEDIA_TYPE, ProblemDocument

PROBLEM: Final = {
    "description": "A problem document (RFC 9457)",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
}
SCHEMES: Final = {
    "key": {"type": "http", "scheme": "bearer", "description": "A key of `memory keys create`, or a JWT."},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
DESCRIPTION: Final = (
    "Tiered memory of agents over HTTP. Every error is a problem document. A POST, PATCH or DELETE with an"
    " Idempotency-Key may be repeated: it changes nothing twice and returns the first outcome."
)
PUBLIC: Final = ("/health/live", "/health/ready")
LINKS: Final = {
    ("post", "/v1/memory/entries"): ("entry_id", "/v1/memory/entries/{entry_id}", ("get", "patch", "delete")),
    ("post", "/v1/memory/relations"): ("relation_id", "/v1/memory/relations/{relation_id}", ("delete",)),
    ("post", "/v1/sessions"): ("session_id", "/v1/sessions/{session_id}", ("get", "patch", "delete")),
    ("put", "/v1/memory/artifacts"): ("artifact_id", "/v1/memory/artifacts/{artifact_id}", ("get", "delete")),
}
"""The calls that take the id of a created thing."""


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the description of an application, made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title="memory-tiers",
            version="1",
            description=DESCRIPTION,
            routes=app.routes,
            openapi_version="3.1.0",
        )
        components = made.setdefault("components", {})
        schema = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        components.setdefault("schemas", {}).update(schema.pop("$defs"), ProblemDocument=schema)
        components["securitySchemes"] = SCHEMES
        for path, operations in made["paths"].items():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                operation["responses"] |= {"4XX": PROBLEM, "5XX": PROBLEM}
                if path not in PUBLIC:
                    operation["security"] = [{name: []} for name in SCHEMES]
        for unused in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(unused, None)
        _add_links(made["paths"])
        _show_tuples_as_lists(made)
        app.openapi_schema = made
    return app.openapi_schema


def _show_tuples_as_lists(schema: Any) -> None:
    """Describe tuples of one type as lists, which every tool reads."""
    if isinstance(schema, dict):
        if first := schema.pop("prefixItems", None):
            schema["items"] = first[0]
        for one in schema.values():
            _show_tuples_as_lists(one)
    elif isinstance(schema, list):
        for one in schema:
            _show_tuples_as_lists(one)


def _add_links(paths: dict[str, Any]) -> None:
    """Say which calls take the id of what a call creates."""
    for (method, path), (parameter, target, methods) in LINKS.items():
        links = {}
        for one in methods:
            operation = paths[target][one]["operationId"]
            links[operation] = {"operationId": operation, "parameters": {parameter: "$response.body#/id"}}
        paths[path][method]["responses"]["201"]["links"] = links
