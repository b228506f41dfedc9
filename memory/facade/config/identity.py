"""Settings of the server's callers: `[server.jwt]` and `[server.audit]`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from memory.facade.config.values import Duration, SettingsTable

Name = Annotated[str, Field(min_length=1, max_length=255)]
Role = Literal["reader", "writer", "admin", "operator"]
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Addresses that only this machine reaches."""


class JwtSettings(SettingsTable):
    """Tokens of an identity provider that the server accepts beside keys."""

    issuer: Name
    """The `iss` of the tokens, exactly."""
    audience: Name
    """The `aud` that the tokens must name."""
    jwks: Name
    """The public keys of the issuer: an https address, or the path of a file."""
    tenant_claim: Name = "tenant"
    role_claim: Name = "role"
    scopes_claim: Name = "memory_scopes"
    """The claim with a list of scopes and subtrees."""
    require_scopes: bool = False
    """Refuse readers and writers without the claim: they had the whole tenant."""
    default_role: Role = "reader"
    """The role of tokens without the claim."""
    roles: Annotated[tuple[Role, ...], Field(min_length=1, validate_default=True)] = (
        "reader",
        "writer",
        "admin",
    )
    """The roles that a token can give."""
    leeway: Duration = timedelta(seconds=30)
    """How far the clocks of the issuer and the server may differ."""

    @field_validator("roles", mode="after")
    @classmethod
    def _have_the_default(cls, value: tuple[Role, ...], info: ValidationInfo) -> tuple[Role, ...]:
        default = info.data.get("default_role")
        if default != cls.model_fields["default_role"].default and default not in value:
            raise ValueError(f"should have default_role, '{default}'")
        return value

    @field_validator("jwks", mode="after")
    @classmethod
    def _is_safe(cls, value: str) -> str:
        if "://" not in value:
            return value
        parts = urlsplit(value)
        if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK):
            return value
        raise ValueError("should be an https address, or the path of a file")


class AuditSettings(SettingsTable):
    """The audit log of the server."""

    reads: bool = False
    """Record reads too."""
    keep: Duration = timedelta(days=365)
    """How long a record is kept."""
