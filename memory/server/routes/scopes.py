"""Routes that list the scopes of a tenant."""

from __future__ import annotations

from fastapi import APIRouter

from memory.server.operations import Operation, add_operations

router = APIRouter(tags=["scopes"])

OPERATIONS = (Operation("GET", "/v1/scopes", "scopes.list", "reader"),)

add_operations(router, OPERATIONS)
