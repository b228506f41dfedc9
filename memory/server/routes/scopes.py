"""Routes that list the scopes of a tenant."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from memory.server.operations import Operation, add_operations
from memory.server.routing import ApiRoute

router = APIRouter(tags=["scopes"], route_class=ApiRoute)


class ScopeView(BaseModel):
    """A scope, and how much it holds."""

    scope: str
    entries: int
    documents: int
    sessions: int


class ScopeList(BaseModel):
    """A page of scopes, in the order of their texts."""

    scopes: list[ScopeView]
    cursor: str | None


OPERATIONS = (Operation("GET", "/v1/scopes", "scopes.list", "reader", model=ScopeList),)

add_operations(router, OPERATIONS)
