"""A view of one scope: `Memory`'s calls without naming the scope each time."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Unpack, overload

from memory.domain.corrections import explain_guesses
from memory.domain.enrichment import WriteReport
from memory.domain.entry import Entry
from memory.domain.scope import Scope
from memory.domain.session import ErasedScope
from memory.facade.arguments import flag
from memory.facade.erasure import erase_scope
from memory.facade.runtime.access import BROWSE_LIMIT, RETRIEVE_LIMIT, Access
from memory.facade.search_options import BrowseOptions, RetrieveOptions, SearchOptions, split_search
from memory.facade.write_options import WriteOptions, split_options
from memory.orchestrator.entries.browsing import EntryPage
from memory.orchestrator.retrieval.search import MixedResult, SearchResult


@explain_guesses
class ScopedMemory:
    """A view of one scope, as returned by `memory.scoped(Scope.user("ada"))`.

    Each method is that of the same name of `Memory`, in this scope.
    """

    def __init__(self, access: Access, scope: Scope) -> None:
        self._access = access
        self._scope = scope

    @property
    def scope(self) -> Scope:
        """The scope of this view."""
        return self._scope

    def __repr__(self) -> str:
        return f"<ScopedMemory tenant={self._access.tenant!r} scope={self._scope.text!r}>"

    async def write(self, content: str = "", **options: Unpack[WriteOptions]) -> Entry:
        """Store one entry in this scope; see `Memory.write`.

        `supersedes` names entries of this scope.
        """
        draft, mode = split_options(self._scope, content, options)
        return await self._access.write(draft, mode, self._scope)

    async def write_with_report(
        self,
        content: str = "",
        *,
        wait: timedelta | float | str | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Write one entry, and report what was done for it.

        See `Memory.write_with_report`. `supersedes` names entries of this scope.
        """
        return await self._access.write_with_report(content, self._scope, options, wait, self._scope)

    async def retrieve(self, **options: Unpack[RetrieveOptions]) -> EntryPage:
        """List the entries of the scope by age; see `Memory.retrieve`."""
        asked = self._access.entry_query(self._scope, unless_told=RETRIEVE_LIMIT, **options)
        return await self._access.engine.browser.browse(asked)

    async def browse(self, **options: Unpack[BrowseOptions]) -> EntryPage:
        """List the entries of the scope by their last change; see `Memory.browse`."""
        asked = self._access.entry_query(self._scope, unless_told=BROWSE_LIMIT, along="updated_at", **options)
        return await self._access.engine.browser.browse(asked)

    @overload
    async def search(
        self, query: str, *, messages: Literal[False] = False, **options: Unpack[SearchOptions]
    ) -> SearchResult: ...

    @overload
    async def search(
        self, query: str, *, messages: bool, **options: Unpack[SearchOptions]
    ) -> SearchResult | MixedResult: ...

    async def search(
        self, query: str, *, messages: bool = False, **options: Unpack[SearchOptions]
    ) -> SearchResult | MixedResult:
        """Return the entries of the scope that answer best; see `Memory.search`."""
        preferred, others = split_search(options)
        return await self._access.search(query, self._scope, preferred=preferred, messages=messages, **others)

    async def erase(self, *, dry_run: bool = False) -> ErasedScope:
        """Erase every entry of the scope; see `Admin.erase`.

        Returns:
            The number of entries.
        """
        return await erase_scope(
            self._access.engine, self._access.tenant, self._scope, dry_run=flag("dry_run", dry_run)
        )
