"""Quotas: how much a scope or a tenant may hold, and what happens to writes beyond it.

Pure functions.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope, ScopeKind
from memory.policies.named_model import NamedModel

Oldest = Literal["oldest", "least_read", "least_confident"]


class Quota(NamedModel):
    """A limit on the entries or bytes of a scope or a tenant.

    `per` says whether the limit is for each scope or for the tenant as a whole.
    `scope_kinds` and `tenants` limit the quota to these. Exactly one of `entries`,
    `bytes` (of entries), `artifact_bytes` and `document_bytes` is given.

    A write beyond the limit is refused. With `then="evict"`, which needs `per="scope"`,
    the write evicts other entries of its scope: the `oldest`, the `least_read` or the
    `least_confident` ones, those without a confidence first. Expired and retired
    entries count until they are deleted.

    `artifact_bytes` needs `per="tenant"`. It limits the artifacts of a tenant and the
    texts of more than 64 KiB, which are stored apart from their messages. Uploads under
    way count, and so does replaced data that is not deleted yet. Beyond the limit,
    uploads and messages with such texts are refused. Changed messages, streamed
    messages and summaries of compactions count, but are not refused.

    With `under`, such as `"path:teams/red/"`, the quota counts the path with everything
    below it, as one amount for each tenant.

    `document_bytes` limits documents, with their keys, values and metadata. A put that
    does not enlarge its document is never refused. It evicts nothing.

    Raises:
        InvalidInput: the quota cannot work. The message names the field.
    """

    setting = "quotas"

    per: Literal["scope", "tenant"] = "scope"
    tenants: tuple[str, ...] = ()
    scope_kinds: tuple[ScopeKind, ...] = ()
    under: str | None = Field(default=None, strict=True)
    entries: int | None = Field(default=None, ge=1, strict=True)
    bytes: int | None = Field(default=None, ge=1, strict=True)
    artifact_bytes: int | None = Field(default=None, ge=1, strict=True)
    document_bytes: int | None = Field(default=None, ge=1, strict=True)
    then: Literal["refuse", "evict"] = "refuse"
    evict: Oldest = "oldest"

    @model_validator(mode="after")
    def _can_be_kept(self) -> Quota:
        limits = (self.entries, self.bytes, self.artifact_bytes, self.document_bytes)
        if sum(given is not None for given in limits) != 1:
            raise self._field_error(
                "entries",
                "exactly one of entries, bytes, artifact_bytes and document_bytes is needed. For several"
                " limits, write one quota each",
            )
        if self.under is not None:
            self._check_under(self.under)
        if self.document_bytes is not None and self.then == "evict":
            raise self._field_error("then", "'evict' applies to entries. Omit it for document_bytes")
        if self.document_bytes is not None and self.per == "tenant" and self.scope_kinds:
            raise self._field_error(
                "document_bytes", 'of a whole tenant has no scope_kinds. Omit them, or set per = "scope"'
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

    def _check_under(self, path: str) -> None:
        try:
            kind = Scope.parse(path).kind
        except InvalidInput as error:
            raise self._field_error("under", f"must be a path such as path:teams/red/: {error}") from None
        if kind is not ScopeKind.PATH:
            raise self._field_error("under", f"must be a path such as path:teams/red/, not a {kind} scope")
        for name in ("per", "scope_kinds", "artifact_bytes"):
            if name in self.model_fields_set:
                raise self._field_error(
                    name, "cannot be combined with under, which counts one subtree. Omit it"
                )
        if self.then == "evict":
            raise self._field_error(
                "then", "'evict' needs a quota per scope: it evicts entries of the scope that was written to"
            )

    @property
    def most(self) -> int:
        return self.entries or self.bytes or self.artifact_bytes or self.document_bytes or 0

    @property
    def measure(self) -> Literal["entries", "bytes", "bytes of artifacts", "bytes of documents"]:
        if self.artifact_bytes is not None:
            return "bytes of artifacts"
        if self.document_bytes is not None:
            return "bytes of documents"
        return "entries" if self.entries is not None else "bytes"

    def is_for(self, tenant: str, scope: str) -> bool:
        """Return whether the quota counts entries of this scope."""
        return (
            (not self.tenants or tenant in self.tenants)
            and (not self.scope_kinds or Scope.parse(scope).kind in self.scope_kinds)
            and (self.under is None or scope.startswith(self.under))
        )

    def describe(self) -> str:
        """Return the quota in words, for people."""
        whose = f" of tenant {' or '.join(self.tenants)}" if self.tenants else ""
        kinds = f" ({', '.join(self.scope_kinds)})" if self.scope_kinds else ""
        beyond = (
            "beyond it writes are refused"
            if self.then == "refuse"
            else f"beyond it the {self.evict.replace('_', ' ')} entries are evicted"
        )
        of = f"per {self.per}" if self.under is None else f"under {self.under}"
        return f"at most {self.most:,} {self.measure} {of}{kinds}{whose}; {beyond}"
