"""Results of listing scopes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from memory.domain.results import Page, ResultMixin
from memory.domain.scope import Scope


@dataclass(frozen=True, slots=True, repr=False)
class ScopeInfo(ResultMixin):
    """A scope and what it holds now.

    `entries` counts entries that have not expired, retired ones too, and `documents`
    documents that have not expired. `sessions` is 1 if the scope is that of a session
    with a conversation. In a listing with `max_depth`, a path with so many labels is
    counted with everything below it.
    """

    scope: Scope
    entries: int = 0
    documents: int = 0
    sessions: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON; the scope as its text."""
        return {**ResultMixin.to_dict(self), "scope": self.scope.text}


@dataclass(frozen=True, slots=True, repr=False)
class ScopePage(Page[ScopeInfo]):
    """A page of scopes in the order of their texts.

    `cursor` is None on the last page.
    """

    scopes: list[ScopeInfo] = field(default_factory=list)
    cursor: str | None = None
