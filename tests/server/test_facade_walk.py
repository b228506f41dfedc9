"""Every public call of the facade has a route, or stands here with the reason."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import memory.server.routes as routes
from memory.server.facade_calls import CLASSES
from memory.server.operations import Operation
from tests.server.description import document

NOT_SERVED = {
    "memory.open": "the server opens its memory",
    "memory.close": "the server closes its memory",
    "memory.restrict": "a key has its scopes",
    "memory.scoped": "every call names its scope",
    "memory.session": "a handle; its calls are routes below /v1/sessions/{session_id}",
    "sessions.get": "GET /v1/sessions/{session_id} returns exact counts, by session.info",
    "sessions.delete": "DELETE /v1/sessions/{session_id} checks the owner too, by session.delete",
    "sessions.end": "POST /v1/sessions/{session_id}/end checks the owner too, by session.end",
    "session.stream": "an append with the id of a message replaces it, piece by piece",
    "artifacts.read": "GET /v1/memory/artifacts/{artifact_id}/raw streams the bytes",
    "short_ids.resolve": "POST /v1/memory/short-ids/resolve takes several, by short_ids.resolve_many",
    "entries.iterate": "GET /v1/admin/export streams all entries",
    "relations.all": "GET /v1/admin/export streams all relations",
    "documents.iterate": "documents.list serves its pages",
    "documents.edit": "a request carries no function; a put with If-Match tells who was faster",
    "admin.sweep": "POST /v1/admin/sweep has a budget, by memory.maintain",
    "admin.backup": "it writes a file of the server's machine: `memory backup`",
    "admin.reindex": "it takes long and needs another configuration: `memory reindex`",
}
BY_HAND = Path(routes.__file__).parent


def operations() -> list[Operation]:
    modules = [inspect.getmodule(router) or router for router in vars(routes).values()]
    return [one for module in modules for one in getattr(module, "OPERATIONS", ())]


def calls_by_hand() -> set[str]:
    """The calls of the memory in the sources of the routes, such as `entries.history`."""
    found = set()
    for file in BY_HAND.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                path = ast.unparse(node)
                if ".memory." in f".{path}":
                    found.add(f".{path}".rpartition(".memory.")[2])
    return found


def test_every_call_of_the_facade_has_a_route_or_a_reason() -> None:
    public = {
        f"{holder}.{name}"
        for holder, kind in CLASSES.items()
        for name, _ in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }
    by_hand = {name if "." in name else f"memory.{name}" for name in calls_by_hand()}
    served = {one.call for one in operations()} | ((by_hand & public) - NOT_SERVED.keys())
    assert served <= public, served - public
    assert public - served == set(NOT_SERVED), (public - served) ^ set(NOT_SERVED)


def test_every_route_is_in_the_document_with_its_role_s_answers() -> None:
    paths = document()["paths"]
    for one in operations():
        template = one.path.replace(":text}", "}")
        described = paths[template][one.method.lower()]
        assert described["summary"].endswith(".")
        assert str(one.status) in described["responses"]
        names = {parameter["name"] for parameter in described.get("parameters", ())}
        assert set(one.path_names) <= names


def test_every_example_of_a_body_fits_its_schema() -> None:
    paths = document()["paths"]
    for one in operations():
        if one.example is None:
            continue
        described = paths[one.path.replace(":text}", "}")][one.method.lower()]
        schema = described["requestBody"]["content"]["application/json"]["schema"]
        Draft202012Validator({"components": document()["components"], **schema}).validate(dict(one.example))
