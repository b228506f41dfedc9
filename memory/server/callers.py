"""Callers: who makes a request, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final, Protocol, get_args

from fastapi import Depends, Request
from starlette.datastructures import Headers

from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope, Subtree
from memory.facade.config.identity import Role as Role
from memory.facade.memory import Memory
from memory.server.problems import Problem

ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""The roles, each with all rights of those before it."""


@dataclass(frozen=True)
class Caller:
    """Who makes a request."""

    tenant: str
    role: Role
    key_id: str
    memory: Memory = field(repr=False)
    """The view of the memory that this caller may use."""
    scopes: tuple[Scope | Subtree, ...] | None = None
    """The scopes of the caller; None for all of its tenant's."""
    default_scope: Scope | None = None
    """The scope of what the caller writes without naming one."""

    @property
    def limits_key(self) -> str:
        """The caller in limits: the subject of a token may be one of two tenants."""
        return f"{self.tenant}\0{self.key_id}"

    def may(self, role: Role) -> bool:
        """Return whether the caller has a role, or one with more rights."""
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def write_scope(self) -> Scope:
        """The scope of a write that names none.

        Raises:
            InvalidInput: There is none.
        """
        if self.default_scope is not None:
            return self.default_scope
        for scope in self.scopes or ():
            return scope.root if isinstance(scope, Subtree) else scope
        raise InvalidInput(
            "scope", "is missing. Name one, such as user:ada, or set default_scope in [server]"
        )


class Unauthenticated(Problem):
    """Raised by an authenticator for a request without a valid credential."""

    def __init__(self, problem: str = "a valid key is needed. Send it as: Authorization: Bearer KEY") -> None:
        super().__init__(401, "unauthenticated", problem, headers={"WWW-Authenticate": "Bearer"})


class Authenticator(Protocol):
    """Finds out who makes a request."""

    async def authenticate(self, headers: Headers) -> Caller:
        """Return the caller of a request with these headers.

        Raises:
            Unauthenticated: The request has no valid credential.
        """
        ...


class DevAuthenticator:
    """Takes every request as one of the operator, for development on one machine."""

    def __init__(self, memory: Memory, default_scope: Scope | None = None) -> None:
        self._caller = Caller(memory.tenant, "operator", "dev", memory, default_scope=default_scope)

    async def authenticate(self, headers: Headers) -> Caller:
        return self._caller


def require_role(request: Request, role: Role) -> Caller:
    """Return the caller of a request, if it has the role.

    Raises:
        Problem: 403: it has not.
    """
    caller: Caller = request.scope["caller"]
    request.scope["role_needed"] = role  # for the audit log
    if not caller.may(role):
        raise Problem(
            403, "forbidden", f"this call needs the role '{role}', and this key has '{caller.role}'"
        )
    return caller


class _Need:
    """A dependency of a route: the caller, if it has the role."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, request: Request) -> Caller:
        return require_role(request, self.role)


Reader = Annotated[Caller, Depends(_Need("reader"))]
Writer = Annotated[Caller, Depends(_Need("writer"))]
Admin = Annotated[Caller, Depends(_Need("admin"))]
Operator = Annotated[Caller, Depends(_Need("operator"))]
"""The caller of a route that needs this role."""
