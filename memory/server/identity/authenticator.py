"""Finds out who makes a request, by an API key or by a token."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from starlette.datastructures import Headers

from memory.domain.scope import Scope, Subtree
from memory.domain.view import View
from memory.facade.memory import Memory
from memory.server.callers import Caller, Role, Unauthenticated
from memory.server.identity.jwt import TokenVerifier
from memory.server.identity.key_store import KeyStore

MOST_CHARS = 16 * 1024
"""The longest credential."""
MOST_CALLERS = 1_000
"""Callers whose views are kept. A view has no state, so requests may share it."""


class KeyAuthenticator:
    """Authenticates requests by `Authorization: Bearer`, or by `X-API-Key`.

    A caller works through a view of its tenant: restricted to its scopes, to reading if
    it is a reader, and with the origin `key:` and its id.

    Args:
        memory: The open memory, no view.
        keys: The API keys.
        tokens: Verifies tokens; without it, only keys are accepted.
        default_scope: The scope of what callers that have it write without naming one.
    """

    def __init__(
        self,
        memory: Memory,
        keys: KeyStore,
        *,
        tokens: TokenVerifier | None = None,
        default_scope: Scope | None = None,
    ) -> None:
        self._memory = memory
        self._keys = keys
        self._tokens = tokens
        self._default_scope = default_scope
        self._caller = lru_cache(MOST_CALLERS)(self._new_caller)

    async def authenticate(self, headers: Headers) -> Caller:
        """Return the caller of a request with these headers.

        Raises:
            Unauthenticated: There is no valid credential, or more than one.
        """
        credential = _credential_of(headers)
        if not credential.startswith("mt_") and self._tokens is not None:
            claims = await self._tokens.verify(credential)
            return self._caller(claims.tenant, claims.role, f"jwt:{claims.subject}", claims.scopes)
        key = await self._keys.verify(credential)
        if key is None:
            raise Unauthenticated
        return self._caller(key.tenant, key.role, key.id, key.scope_objects)

    def _new_caller(
        self, tenant: str, role: Role, key_id: str, scopes: tuple[Scope | Subtree, ...] | None
    ) -> Caller:
        acts: Literal["reader", "writer"] | None = "reader" if role == "reader" else "writer"
        if role == "operator":
            acts = None  # no restriction: operators reach stores and tenants
        view = self._memory.for_tenant(tenant).restrict(scopes, role=acts, origin=f"key:{key_id}")
        default = self._default_scope
        has_default = default is not None and View(scopes).contains(default)
        return Caller(tenant, role, key_id, view, scopes, default if has_default else None)


def _credential_of(headers: Headers) -> str:
    """Return the one credential of a request.

    Raises:
        Unauthenticated: There is none, or there are several.
    """
    found = [value.strip() for value in headers.getlist("x-api-key")]
    for value in headers.getlist("authorization"):
        scheme, _, credential = value.strip().partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated
        found.append(credential.strip())
    if len(found) != 1 or not 0 < len(found[0]) <= MOST_CHARS:
        raise Unauthenticated
    return found[0]
