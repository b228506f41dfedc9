"""Queries for many records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from memory.domain.filters import Filter
from memory.domain.scope import Scope, Subtree
from memory.policies.ranking.preferences import Preferences
from memory.ports.query import Condition, In, Or, StartsWith, Tenant, Under, Where, within
from memory.ports.record import Partition

SearchMode: TypeAlias = Literal["hybrid", "lexical", "semantic"]
"""How a search finds: by shared words, by embeddings, or by both."""


@dataclass(frozen=True, slots=True)
class EntryQuery:
    """A query for entries: scopes of one tenant, and filters, applied before the limit.

    Browsing without a scope covers the whole tenant.
    """

    tenant: str
    scopes: tuple[Scope | Subtree, ...]
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
    sessions: tuple[str, ...] | None = None
    """Their sessions, so that the words of others count nowhere; None to find them."""
    along: Literal["created_at", "updated_at"] = "created_at"
    """The time by which browsing orders."""
    updated_before: datetime | None = None
    conversation: str | None = None
    """Entries of other conversations are left out; those without one are not."""
    include_retired: bool = False
    """Whether browsing also shows entries whose validity has ended."""
    left_out: frozenset[str] = frozenset()
    """The parts that are removed from the entries in the result."""
    after: tuple[datetime, int, str] | None = None
    """The place after which browsing continues, in its order.

    It is the time, the sequence (-1 for none) and the id of an entry.
    """

    vector: bytes | None = None
    """The caller's vector, which is searched in place of that of the text."""
    trusted: Condition | None = None
    """Selects entries that come from no blocked source; None for all entries."""

    def is_by_vector_alone(self, text: str) -> bool:
        """Return whether only the caller's vector counts, and no word of the query."""
        return self.vector is not None and (self.mode == "semantic" or not text.strip())

    @property
    def place(self) -> Where:
        """The named scopes; the whole tenant if none is named."""
        return where_of(self.tenant, self.scopes)

    @property
    def where(self) -> Where:
        """The place to search.

        It is the tenant if a conversation is named: its entries are few, and an index
        finds them.
        """
        return self.place if self.pinned_to is None else Tenant(self.tenant)


def where_of(tenant: str, scopes: Collection[Scope | Subtree]) -> Where:
    """Return the place of these scopes and subtrees; the tenant if there are none."""
    texts = [scope.text for scope in scopes if isinstance(scope, Scope)]
    prefixes = tuple(scope.prefix for scope in scopes if isinstance(scope, Subtree))
    if prefixes:
        return Under(tenant, prefixes, tuple(texts))
    return within(*(Partition(tenant, text) for text in texts)) if texts else Tenant(tenant)


def scope_condition(scopes: Collection[Scope | Subtree]) -> Condition:
    """Return the condition of records in these scopes and subtrees."""
    exact = In("scope", tuple(scope.text for scope in scopes if isinstance(scope, Scope)))
    return Or((exact, *(StartsWith("scope", scope.prefix) for scope in scopes if isinstance(scope, Subtree))))
