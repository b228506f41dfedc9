"""What is asked of many records at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from memory.domain.scope import Scope
from memory.policies.ranking.preferences import Preferences
from memory.ports.query import Condition, Tenant, Where, within
from memory.ports.record import Partition

SearchMode: TypeAlias = Literal["hybrid", "lexical", "semantic"]
"""How a search finds: by shared words, by embeddings, or by both."""
Scalar: TypeAlias = str | int | float | bool | None
"""A JSON value that holds no other."""


@dataclass(frozen=True, slots=True)
class EntryQuery:
    """What is wanted: scopes of one tenant and filters, all of which apply before the
    limit. Browsing without one is of the whole tenant.
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
    """The least `hit.relevance` that a search shows, 0 to 1. None shows all hits.
    """
    preferred: Preferences = field(default_factory=Preferences)
    any_tags: tuple[str, ...] = ()
    """Of which an entry has one at least."""
    metadata: tuple[tuple[str, Scalar], ...] = ()
    """Keys of an entry's metadata, each with its value. Stores do not index them: they
    are judged on the record.
    """
    before: datetime | None = None
    pinned_to: str | None = None
    """The conversation whose own entries alone are asked for."""
    messages: bool = False
    """Whether what was said in the sessions of these scopes is asked for too."""
    along: Literal["created_at", "updated_at"] = "created_at"
    """The moment by which browsing orders."""
    updated_before: datetime | None = None
    conversation: str | None = None
    """Entries of any other conversation are left out; those of none are not."""
    include_retired: bool = False
    """Whether browsing shows entries whose validity has ended too."""
    after: tuple[datetime, int, str] | None = None
    """That moment, the sequence (-1 for none) and the id of the entry behind which a
    browse goes on, in its order.
    """

    trusted: Condition | None = None
    """Selects entries that come from no blocked source; None for all entries."""

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(Partition(self.tenant, s.text) for s in self.scopes)

    @property
    def where(self) -> Where:
        """The partitions, or all of the tenant's where no scope is named, or a
        conversation is: its entries are few, and an index finds those.
        """
        return within(*self.partitions) if self.scopes and self.pinned_to is None else Tenant(self.tenant)
