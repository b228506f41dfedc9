"""Quotas: how much a scope or a tenant may hold, and what becomes of a write beyond it.
Pure.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from memory.domain import validation
from memory.domain.scope import Scope, ScopeKind
from memory.policies.named import Named

Oldest = Literal["oldest", "least_read", "least_confident"]


class Quota(Named):
    """Each scope, or the tenant as a whole (`per`), holds at most so many `entries`, or
    `bytes`, of scopes of `scope_kinds` where these are named.

    What is written beyond it is refused, or has others of its scope go (`then =
    "evict"`): the `oldest`, the `least_read` or the `least_confident`, those without a
    confidence first. What is expired or retired counts until it is deleted.

    `artifact_bytes` is for a tenant's artifacts and for the texts of its messages that
    are stored apart from them (of more than 64 KiB), what is being uploaded and what
    was replaced and is not deleted yet included. Beyond it uploads, and messages with
    such texts, are refused; what messages are changed to, streams bring and compactions
    sum up counts, and is not.
    """

    setting = "quotas"

    per: Literal["scope", "tenant"] = "scope"
    tenants: tuple[str, ...] = ()
    scope_kinds: tuple[ScopeKind, ...] = ()
    entries: int | None = Field(default=None, ge=1, strict=True)
    bytes: int | None = Field(default=None, ge=1, strict=True)
    artifact_bytes: int | None = Field(default=None, ge=1, strict=True)
    then: Literal["refuse", "evict"] = "refuse"
    evict: Oldest = "oldest"

    @model_validator(mode="after")
    def _can_be_kept(self) -> Quota:
        if sum(given is not None for given in (self.entries, self.bytes, self.artifact_bytes)) != 1:
            raise self._field_error(
                "entries",
                "exactly one of entries, bytes and artifact_bytes is needed. For several limits, write one quota each",
            )
        if self.artifact_bytes is not None and (self.per == "scope" or self.scope_kinds):
            raise self._field_error(
                "artifact_bytes", 'applies to a whole tenant. Set per = "tenant", and omit scope_kinds'
            )
        if self.then == "evict" and self.per == "tenant":
            raise self._field_error(
                "then", "'evict' needs a quota per scope: it evicts entries of the scope that was written to"
            )
        for tenant in self.tenants:
            validation.identifier(f"quotas.{self.name}.tenants", tenant)
        if self.then == "refuse" and "evict" in self.model_fields_set:
            raise self._field_error("evict", 'applies only to then = "evict"')
        return self

    @property
    def most(self) -> int:
        return self.entries or self.bytes or self.artifact_bytes or 0

    @property
    def measure(self) -> Literal["entries", "bytes", "bytes of artifacts"]:
        if self.artifact_bytes is not None:
            return "bytes of artifacts"
        return "entries" if self.entries is not None else "bytes"

    def is_for(self, tenant: str, scope: str) -> bool:
        """Whether it counts entries of this scope."""
        return (not self.tenants or tenant in self.tenants) and (
            not self.scope_kinds or Scope.parse(scope).kind in self.scope_kinds
        )

    def describe(self) -> str:
        """The quota in words, for people."""
        whose = f" of tenant {' or '.join(self.tenants)}" if self.tenants else ""
        kinds = f" ({', '.join(self.scope_kinds)})" if self.scope_kinds else ""
        beyond = (
            "beyond it writes are refused"
            if self.then == "refuse"
            else f"beyond it the {self.evict.replace('_', ' ')} entries are evicted"
        )
        return f"at most {self.most:,} {self.measure} per {self.per}{kinds}{whose}; {beyond}"
