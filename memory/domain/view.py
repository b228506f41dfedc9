"""Restricted views: the scopes that a view of a memory has, and what it may do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Literal, TypeAlias

from memory.domain.errors import Forbidden
from memory.domain.provenance import mcp_source
from memory.domain.scope import Scope, ScopeKind, Subtree

ViewRole: TypeAlias = Literal["reader", "writer"]
"""A reader changes nothing; a writer also makes changes."""
_NAMED = 8
"""How many of its scopes a view names in an error."""


@dataclass(frozen=True)
class View:
    """The restrictions of a view, as `Memory.restrict` makes them."""

    scopes: tuple[Scope | Subtree, ...] | None = None
    """The scopes of the view; None for all of the tenant's."""
    role: ViewRole = "writer"
    origin: str | None = None
    """The source that the view adds to its writes, such as `key:3kTMd9Xq`."""
    is_restricted: bool = True
    """False for a view with an origin alone: it reaches stores and other tenants."""

    @cached_property
    def exact(self) -> frozenset[str]:
        """The texts of the scopes that are named one by one."""
        return frozenset(scope.text for scope in self._all_scopes if isinstance(scope, Scope))

    @cached_property
    def subtrees(self) -> tuple[Subtree, ...]:
        """The subtrees of the view by their texts, none inside another."""
        found = [scope for scope in self._all_scopes if isinstance(scope, Subtree)]
        wide = [one for one in found if not any(o.contains(one) for o in found if o != one)]
        return tuple(sorted(wide, key=lambda one: one.text))

    @cached_property
    def users(self) -> tuple[str, ...]:
        """The users whose scope is in the view. Their sessions are visible."""
        return self._ids_of(ScopeKind.USER)

    @cached_property
    def sessions(self) -> tuple[str, ...]:
        """The sessions whose scope is in the view."""
        return self._ids_of(ScopeKind.SESSION)

    @cached_property
    def caller(self) -> str:
        """The text that separates the request ids of this view from those of others."""
        if self.scopes is None and self.origin is None:
            return ""
        named = sorted({one.text for one in self._all_scopes})
        said: list[object] = [*named]
        if self.origin is not None:
            said = [self.origin, self.scopes is None, *named]
        return sha256(json.dumps(said).encode()).hexdigest()[:32]

    @property
    def _all_scopes(self) -> tuple[Scope | Subtree, ...]:
        return self.scopes or ()

    def _ids_of(self, kind: ScopeKind) -> tuple[str, ...]:
        named = (one for one in self._all_scopes if isinstance(one, Scope) and one.kind is kind)
        return tuple(sorted({one.id for one in named}))

    def contains(self, scope: Scope | Subtree) -> bool:
        """Return whether a scope, or every scope of a subtree, is in the view."""
        if self.scopes is None or any(subtree.contains(scope) for subtree in self.subtrees):
            return True
        return isinstance(scope, Scope) and scope.text in self.exact

    def contains_text(self, scope: str) -> bool:
        """Return whether the scope with this canonical text is in the view."""
        return (
            self.scopes is None
            or scope in self.exact
            or any(scope.startswith(subtree.prefix) for subtree in self.subtrees)
        )

    def require(self, field: str, scopes: Iterable[Scope | Subtree]) -> None:
        """Raise `Forbidden` unless the view has all of these scopes."""
        for scope in scopes:
            if not self.contains(scope):
                raise Forbidden(
                    field, f"{scope.text[:80]!r} is outside of this view, which has {self.description}"
                )

    @property
    def description(self) -> str:
        """The scopes of the view, for messages."""
        named = [one.text[:80] for one in self._all_scopes[:_NAMED]]
        more = f" and {len(self._all_scopes) - _NAMED} more" if len(self._all_scopes) > _NAMED else ""
        return ", ".join(named) + more

    def narrow(
        self, scopes: Sequence[Scope | Subtree] | None, role: ViewRole | None, origin: str | None = None
    ) -> View:
        """Return a view of some of these scopes with this role; None keeps each.

        Raises:
            Forbidden: It would have more scopes, a reader would become a writer, or the
                origin would change.
        """
        if origin is not None and not _is_same_actor(self.origin, origin):
            raise Forbidden("origin", "is set by the server that made this view, and cannot be replaced")
        if role == "writer" and self.role == "reader":
            raise Forbidden("role", "'writer' is more than this view has, which is restricted to 'reader'")
        self.require("scopes", scopes or ())
        kept = self.scopes if scopes is None else tuple(dict.fromkeys(scopes))
        return replace(
            self,
            scopes=kept,
            role=role or self.role,
            origin=origin or self.origin,
            is_restricted=self.is_restricted or scopes is not None or role is not None,
        )


def _is_same_actor(before: str | None, origin: str) -> bool:
    """Return whether a view with one origin may get another one.

    The key of a server may act over MCP too: `key:3kTMd9Xq` becomes `mcp:3kTMd9Xq`.
    """
    return before in (None, origin) or mcp_source(before) == origin
