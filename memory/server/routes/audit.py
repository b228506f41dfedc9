"""The audit log: `/v1/admin/audit`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from memory.domain import validation
from memory.server.callers import Admin
from memory.server.identity import AuditLog
from memory.server.requests import Cursor, Limit, inner_cursor, next_link, not_found, outer_cursor
from memory.server.routes.keys import TenantName
from memory.server.routing import ApiRoute

router = APIRouter(prefix="/v1/admin/audit", tags=["audit"], route_class=ApiRoute)
_LIMIT = 100


class RecordDocument(BaseModel):
    """One recorded request."""

    at: datetime
    tenant: str = Field(description="The tenant of the caller; empty without a valid key.")
    key_id: str = Field(examples=["3kTMd9XqB1"])
    action: str = Field(examples=["DELETE /v1/memory/entries/{entry_id}"])
    outcome: int = Field(description="The HTTP status.", examples=[204])
    request_id: str
    targets: list[str] = Field(description="Ids of records. Everything else is hashed.")
    count: int = Field(description="How many requests without a valid key it stands for.")


class RecordList(BaseModel):
    """Records, newest first."""

    records: list[RecordDocument]
    cursor: str | None


@router.get("")
async def list_records(
    request: Request,
    response: Response,
    caller: Admin,
    tenant: TenantName = None,
    since: Annotated[str | None, Query(description="Only records from this moment on.")] = None,
    key: Annotated[str | None, Query(description="Only records of this key id.")] = None,
    limit: Limit = None,
    cursor: Cursor = None,
) -> RecordList:
    """List what was done, newest first.

    Operators see every tenant, and admins their own.
    """
    if not caller.may("operator"):
        if tenant not in (None, caller.tenant):
            raise not_found("tenant", str(tenant))
        tenant = caller.tenant
    audit: AuditLog = request.app.state.audit
    page = await audit.list(
        tenant=tenant,
        key_id=key,
        since=None if since is None else validation.time("since", since),
        limit=_LIMIT if limit is None else limit,
        cursor=inner_cursor(caller, cursor),
    )
    following = outer_cursor(caller, page.cursor)
    response.headers.update(next_link(request, following))
    return RecordList(records=[RecordDocument(**one.to_dict()) for one in page.records], cursor=following)
