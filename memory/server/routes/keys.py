"""API keys: `/v1/admin/keys`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from memory.domain.errors import RequestIdReused
from memory.server.bodies import RequestBody
from memory.server.callers import ROLES, Admin, Caller, Role
from memory.server.identity import ApiKey, KeyStore, check_tenant
from memory.server.identity.key_text import key_id_of_request, length_of
from memory.server.paths import prefix_of
from memory.server.problems import Problem, bad_request
from memory.server.requests import IdempotencyKey, UnstoredKey, not_found
from memory.server.routing import ApiRoute

router = APIRouter(prefix="/v1/admin/keys", tags=["keys"], route_class=ApiRoute)
TenantName = Annotated[
    str | None, Query(description="Another tenant than the caller's; for operators.", max_length=255)
]


class NewKey(RequestBody):
    """A key to create."""

    role: Role = Field(description="What the key may do.", examples=["writer"])
    scopes: list[str] = Field(
        default_factory=list,
        description="What a reader or writer sees. Without this field, it sees the whole tenant.",
        examples=[["user:ada", "path:teams/red/**"]],
        max_length=100,
        json_schema_extra={"minItems": 1},
    )
    name: str | None = Field(default=None, description="A name for people.", examples=["ada's agent"])
    expires: str | None = Field(
        default=None, description="How long the key is valid; for ever by default.", examples=["90d"]
    )
    tenant: str | None = Field(
        default=None, description="Another tenant than the caller's; for operators.", examples=["acme"]
    )


class Rotation(RequestBody):
    """How a key is rotated."""

    overlap: str = Field(
        default="1d", description="How long the earlier secret stays valid; 0s ends it.", examples=["1d"]
    )


class KeyDocument(BaseModel):
    """A key, without its text."""

    id: str = Field(examples=["3kTMd9XqB1"])
    tenant: str = Field(examples=["acme"])
    role: Role
    scopes: list[str]
    name: str | None
    created_at: str | None
    expires_at: str | None
    revoked_at: str | None


class ShownKey(KeyDocument):
    """A key with its text, which is shown only in this answer."""

    key: str = Field(description="The secret of the key. It is stored nowhere: keep it.")


class KeyList(BaseModel):
    """The keys of a tenant."""

    keys: list[KeyDocument]


@router.get("")
async def list_keys(request: Request, caller: Admin, tenant: TenantName = None) -> KeyList:
    """List the keys of the tenant, oldest first, revoked ones too."""
    named = _tenant_of(caller, tenant)
    found = await _keys(request).list(named)
    return KeyList(keys=[_document(one) for one in found if _may_manage(caller, one)])


@router.post("", status_code=201)
async def create_key(
    request: Request, response: Response, caller: Admin, body: NewKey, key: IdempotencyKey = None
) -> ShownKey:
    """Create a key. Its text is in the response, and nowhere else.

    A repeat with the same `Idempotency-Key` creates no second key. It answers 409 with
    the id of the first one, whose text can be rotated, or 422 for another body.
    """
    named = _tenant_of(caller, body.tenant) or caller.tenant
    if not caller.may(body.role):
        raise Problem(403, "forbidden", f"a key with role '{caller.role}' cannot create one with more rights")
    if "scopes" in body.model_fields_set and not body.scopes:
        raise bad_request("scopes", "is empty. Name what the key sees, or leave it out for the whole tenant")
    key_id = None if key is None else key_id_of_request(caller.tenant, caller.key_id, key)
    try:
        made, text = await _keys(request).create(
            named,
            body.role,
            scopes=body.scopes,
            name=body.name,
            expires_in=None if body.expires is None else length_of("expires", body.expires),
            key_id=key_id,
        )
    except RequestIdReused:
        raise RequestIdReused(str(key)) from None
    response.headers["Location"] = f"{prefix_of(request.scope)}/v1/admin/keys/{made.id}"
    response.headers["Cache-Control"] = "no-store"
    return ShownKey(**made.to_dict(), key=text)


@router.post("/{key_id}/rotate")
async def rotate_key(
    request: Request,
    response: Response,
    key_id: str,
    caller: Admin,
    body: Rotation | None = None,
    key: UnstoredKey = None,
) -> ShownKey:
    """Give a key a new secret. The id stays, and the earlier secret for the overlap.

    The call can be repeated: each repeat gives the key one more secret, and the latest
    one holds. So an `Idempotency-Key` changes nothing.
    """
    await _check_managed(request, caller, key_id)
    overlap = length_of("overlap", (body or Rotation()).overlap)
    made, text = await _keys(request).rotate(key_id, overlap=overlap)
    response.headers["Cache-Control"] = "no-store"
    return ShownKey(**made.to_dict(), key=text)


@router.delete("/{key_id}", status_code=204, response_class=Response)
async def revoke_key(request: Request, key_id: str, caller: Admin) -> None:
    """Revoke a key. Every server process obeys within two seconds."""
    await _check_managed(request, caller, key_id)
    request.scope["ends_own_key"] = key_id == caller.key_id
    await _keys(request).revoke(key_id)


def _keys(request: Request) -> KeyStore:
    keys: KeyStore = request.app.state.keys
    return keys


def _tenant_of(caller: Caller, tenant: str | None) -> str | None:
    """Return the tenant that a call is about; None for all.

    Raises:
        Problem: 404, because the caller does not administer it.
    """
    if caller.may("operator"):
        return None if tenant is None else check_tenant(tenant)
    if tenant not in (None, caller.tenant):
        raise not_found("tenant", str(tenant))
    return caller.tenant


def _may_manage(caller: Caller, key: ApiKey) -> bool:
    """Return whether a caller may see and change a key: none with more rights."""
    own = caller.may("operator") or key.tenant == caller.tenant
    return own and ROLES.index(key.role) <= ROLES.index(caller.role)


async def _check_managed(request: Request, caller: Caller, key_id: str) -> None:
    found = await _keys(request).get(key_id)
    if found is None or found.revoked_at is not None or not _may_manage(caller, found):
        raise not_found("key", key_id)


def _document(key: ApiKey) -> KeyDocument:
    return KeyDocument(**key.to_dict())
