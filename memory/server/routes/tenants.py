"""Tenants: `DELETE /v1/admin/tenants/{tenant}`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from memory.domain.results import as_json
from memory.server.callers import Admin
from memory.server.identity import KeyStore, is_reserved
from memory.server.rendering import json_response
from memory.server.requests import not_found
from memory.server.routing import ApiRoute

router = APIRouter(prefix="/v1/admin", tags=["administration"], route_class=ApiRoute)


@router.delete("/tenants/{tenant:text}", response_model=dict[str, Any])
async def erase_tenant(request: Request, tenant: str, caller: Admin) -> Response:
    """Erase everything of a tenant. An operator may name any, and others their own.

    The keys of the tenant are revoked. The key of the call itself comes last, if the
    tenant is its own.
    """
    memory = caller.memory
    if tenant != caller.tenant:
        if not caller.may("operator") or is_reserved(tenant):
            raise not_found("tenant", tenant)
        memory = request.app.state.memory.for_tenant(tenant)
    keys: KeyStore = request.app.state.keys
    revoked = await keys.revoke_all(tenant, but=caller.key_id)
    erased = as_json(await memory.admin.erase_tenant())
    if tenant == caller.tenant:
        request.scope["ends_own_key"] = True
        revoked += await keys.revoke_all(tenant)
    return json_response({**erased, "keys_revoked": revoked})
