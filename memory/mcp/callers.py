"""Who calls a tool, and which part of the memory that caller has.

Scope, provenance and rights come from here: from the configuration over stdio, from the
key of a request over HTTP. No argument of a tool, URI or prompt changes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from memory.domain.errors import Forbidden
from memory.domain.scope import Scope, ScopeKind, is_subtree_text

if TYPE_CHECKING:
    from memory.facade.memory import Memory
    from memory.mcp.settings import McpSettings


@dataclass(frozen=True)
class Caller:
    """The view of a caller, and the scopes that its calls cover."""

    memory: Memory
    """A restricted view: it has the scopes and the origin of the caller, no others."""
    scopes: tuple[str, ...]
    target: str | None
    """The scope of new entries; None if the caller only reads."""
    note_error: Callable[[Exception], None] = lambda _: None
    """Called with the error of each call that fails."""

    @property
    def readable(self) -> list[str]:
        """The scopes that a search covers."""
        return list(self.scopes)

    @property
    def write_scope(self) -> str:
        """The scope of new entries.

        Raises:
            Forbidden: The caller only reads.
        """
        if self.target is None:
            raise Forbidden("scope", "this server has no scope to write to. Ask its owner for one")
        return self.target

    @property
    def user(self) -> str | None:
        """The user to whom new sessions belong; None if no scope is of a user."""
        return next((one.id for one in self.exact_scopes if one.kind is ScopeKind.USER), None)

    @property
    def exact_scopes(self) -> list[Scope]:
        """The scope of new entries, and those that are no subtrees, in order."""
        named = (self.target, *self.scopes)
        return [Scope.parse(one) for one in named if one is not None and not is_subtree_text(one)]


Callers: TypeAlias = Callable[[Any], Awaitable[Caller]]
"""Maps the context of a request to its caller. It raises errors of the memory."""


def restrict_to_settings(memory: Memory, settings: McpSettings) -> Caller:
    """Return the caller that the settings describe."""
    role: Literal["reader", "writer"] = "reader" if settings.read_only else "writer"
    view = memory.restrict(settings.scopes, role=role, origin=settings.provenance)
    return Caller(view, settings.scopes, None if settings.read_only else settings.target)
