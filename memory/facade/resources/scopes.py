"""`memory.scopes`: the scopes that hold something."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput
from memory.domain.scope import MAX_LABELS, Scope, ScopeKind, Subtree
from memory.domain.scopes import ScopePage
from memory.facade.arguments import scope_or_subtree
from memory.facade.runtime.access import Access
from memory.facade.runtime.cursors import CursorSeal
from memory.facade.runtime.view_guard import guard_calls
from memory.orchestrator.storage.partial_answers import AnswerGaps

LIST_LIMIT = 100


@guard_calls
@explain_guesses
class ScopeListing:
    """The scopes of a tenant that hold something.

        page = await memory.scopes.list(prefix=Scope.path("users"), max_depth=2)
        for one in page.scopes:
            print(one.scope, one.entries, one.documents)

    A restricted view lists its own scopes.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def list(
        self,
        prefix: Scope | Subtree | str | None = None,
        *,
        kind: ScopeKind | str | None = None,
        max_depth: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ScopePage:
        """List the scopes that hold a live entry, document or session, with counts.

        They come in the order of their texts. An erased scope is not listed, nor is one
        where everything has expired.

        Args:
            prefix: Only this path and the paths below it: a path, its subtree, or the
                text of one. Whole labels match.
            kind: Only scopes of this kind, such as `"user"`.
            max_depth: Show paths with more labels than this as one path with so many,
                counted with everything below it.
            limit: At most this many scopes: 1 to 1,000, and 100 by default.
            cursor: The `cursor` that the previous page returned. Keep the other
                arguments the same.

        Raises:
            StoreUnavailable: A store did not answer.
        """
        most = validation.whole_limit(limit, default=LIST_LIMIT)
        depth = None if max_depth is None else _depth(max_depth)
        prefixes, view = _prefixes(prefix, kind), self._access.view
        seal = CursorSeal("scopes", self._access.tenant, prefixes, depth)
        place = seal.unseal(cursor)
        exact: frozenset[str] = frozenset()
        if view is not None and view.scopes is not None:
            if prefix is not None:
                view.require("prefix", [Subtree(root=Scope.parse(prefixes[0]))])
            else:
                below = tuple(one.prefix for one in view.subtrees)
                exact = frozenset(one for one in view.exact if not one.startswith(below))
                prefixes = sorted(one for one in (*exact, *below) if one.startswith(tuple(prefixes)))
        page = await self._access.engine.scopes.page(
            self._access.tenant, prefixes, limit=most, max_depth=depth, cursor=place, exact=exact
        )
        return replace(page, cursor=seal.seal(page.cursor))

    async def _list_reachable(self, limit: int) -> tuple[ScopePage, tuple[str, ...]]:
        view, gaps = self._access.view, AnswerGaps()
        if view is not None and view.scopes is not None:
            raise InvalidInput("scope", "must be named: this caller reads only some scopes")
        scopes = self._access.engine.scopes
        page = await scopes.page(self._access.tenant, _prefixes(None, None), limit=limit, gaps=gaps)
        gaps.require_answer()
        return page, tuple(gaps.notes)


class HasScopes(Protocol):
    """A memory, or a view of it."""

    @property
    def scopes(self) -> ScopeListing: ...


async def list_reachable(memory: HasScopes, *, limit: int) -> tuple[ScopePage, tuple[str, ...]]:
    """List the scopes of a tenant in the stores that answer, with notes on the others.

    Searches use it: they may leave out what a store would hold that is away.

    Args:
        memory: A memory, or a view that is not restricted to scopes.
        limit: At most this many scopes.

    Raises:
        StoreUnavailable: No store answered.
    """
    return await memory.scopes._list_reachable(limit)


def _prefixes(prefix: object, kind: object) -> list[str]:
    """Return the beginnings of the listed texts, in order."""
    kinds = sorted(ScopeKind) if kind is None else [validation.one_of("kind", kind, ScopeKind)]
    if prefix is None:
        return [f"{one}:" for one in kinds]
    root = scope_or_subtree(prefix)
    if root.kind is not ScopeKind.PATH:
        raise InvalidInput(
            "prefix",
            f"must be a path such as Scope.path('users'), not {root.text[:80]!r}. For all scopes of one kind,"
            f" pass kind={str(root.kind)!r}",
        )
    if ScopeKind.PATH not in kinds:
        raise InvalidInput("kind", f"is {str(kinds[0])!r}, and only paths have a prefix. Omit one of the two")
    return [root.prefix if isinstance(root, Subtree) else root.text]


def _depth(max_depth: object) -> int:
    if isinstance(max_depth, bool) or not isinstance(max_depth, int) or not 1 <= max_depth <= MAX_LABELS:
        raise InvalidInput("max_depth", f"must be a whole number from 1 to {MAX_LABELS}, not {max_depth!r}")
    return max_depth
