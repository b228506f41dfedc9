"""Queries for many records."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from memory.domain.filters import Filter
from memory.domain.scope import Scope
from memory.policies.ranking.preferences import Preferences
from memory.ports.query import Condition, Tenant, Where, within
from memory.ports.record import Partition

SearchMode: TypeAlias = Literal["hybrid", "lexical", "semantic"]
"""How a search finds: by shared words, by embeddings, or by both."""


@dataclass(frozen=True, slots=True)
class EntryQuery:
    """A query for entries: scopes of one tenant, and filters, applied before the limit.

    Browsing without a scope covers the whole tenant.
    """

    tenant: str
    scopes: tuple[Scope, ...]
    tags: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    since: datetime | None = None
    as_of: datetime | None = None
    known_at: datetime | None = None
    order: Literal["newest", "oldest"] = "newest"
    limit: int = 20
    mode: SearchMode = "hybrid"
    min_relevance: float | None = None
    """The minimum `hit.relevance` that a search shows, 0 to 1. None shows all hits."""
    preferred: Preferences = field(default_factory=Preferences)
    any_tags: tuple[str, ...] = ()
    """An entry has at least one of these tags."""
    filter: Filter | None = None
    """Stores apply as much of it as they can. Each record is checked with it."""
    before: datetime | None = None
    pinned_to: str | None = None
    """Only entries of this conversation are returned."""
    messages: bool = False
    """Whether messages of the sessions of these scopes are searched too."""
    along: Literal["created_at", "updated_at"] = "created_at"
    """The time by which browsing orders."""
    updated_before: datetime | None = None
    conversation: str | None = None
    """Entries of other conversations are left out; those without one are not."""
    include_retired: bool = False
    """Whether browsing also shows entries whose validity has ended."""
    after: tuple[datetime, int, str] | None = None
    """The place after which browsing continues, in its order.

    It is the time, the sequence (-1 for none) and the id of an entry.
    """

    vector: bytes | None = None
    """The caller's vector, which is searched in place of that of the text."""
    trusted: Condition | None = None
    """Selects entries that come from no blocked source; None for all entries."""

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(Partition(self.tenant, s.text) for s in self.scopes)

    @property
    def where(self) -> Where:
        """The partitions to search, or the whole tenant.

        It is the tenant if no scope is named. It is also the tenant if a conversation
        is named: its entries are few, and an index finds them.
        """
        return within(*self.partitions) if self.scopes and self.pinned_to is None else Tenant(self.tenant)
