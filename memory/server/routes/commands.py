"""Routes of the `/mem` command language."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from memory.server.callers import Caller
from memory.server.facade_calls import Values
from memory.server.operations import Operation, add_operations
from memory.server.routing import ApiRoute

router = APIRouter(tags=["commands"], route_class=ApiRoute)


def _prepare_run(caller: Caller, values: Values) -> None:
    if values.get("scope") is None:
        values["scope"] = caller.write_scope


_SCOPE = Annotated[
    str | None,
    Field(description="The scope of added entries; by default that of the key or of the server."),
]

OPERATIONS = (
    Operation("POST", "/v1/commands", "commands.run", "reader", result="results", omits=("advisor",),
              fields={"scope": (_SCOPE, None)}, prepare=_prepare_run,
              example={"text": "/mem search tea", "scope": "user:ada"}),
    Operation("GET", "/v1/commands/schema", "commands.schema", "reader"),
)  # fmt: skip

add_operations(router, OPERATIONS)
