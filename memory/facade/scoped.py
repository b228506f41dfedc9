"""A view of one scope: `Memory`'s calls without naming the scope each time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, Unpack, overload

from memory.domain.corrections import explain_guesses
from memory.domain.enrichment import WriteReport
from memory.domain.entry import Entry
from memory.domain.errors import NotFound
from memory.domain.scope import Scope
from memory.domain.search_results import EntryPage, MixedResult, SearchResult
from memory.domain.session import DeletedEntry, ErasedScope
from memory.facade.arguments import Moment, flag
from memory.facade.erasure import erase_scope
from memory.facade.runtime.access import BROWSE_LIMIT, RETRIEVE_LIMIT, Access
from memory.facade.runtime.view_guard import guard_calls
from memory.facade.search_options import (
    BrowseOptions,
    Include,
    RetrieveOptions,
    SearchOptions,
    split_search,
)
from memory.facade.write_options import EntryPatch, WriteOptions, split_options


@guard_calls
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

    async def get(
        self,
        entry_id: str | None = None,
        *,
        key: str | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        include: Include | None = None,
    ) -> Entry | None:
        """Return one entry of the scope by id or key, or None; see `Memory.get`."""
        wanted = self._entry_id(entry_id, key)
        return await self._access.get(
            wanted, self._scope, as_of=as_of, known_at=known_at, include=include, within=self._scope
        )

    async def get_many(
        self,
        entry_ids: Sequence[str] | None = None,
        *,
        keys: Sequence[str] | None = None,
        include: Include | None = None,
    ) -> list[Entry | None]:
        """Return entries of the scope by ids or keys; see `Memory.get_many`."""
        scope = None if keys is None else self._scope
        wanted = self._access.entry_ids(entry_ids, scope, keys)
        return await self._access.get_many(wanted, self._scope, include=include, within=self._scope)

    async def update(
        self, entry_id: str | None = None, *, key: str | None = None, **options: Unpack[EntryPatch]
    ) -> Entry:
        """Change an active entry of the scope; see `Memory.update`.

        Raises:
            NotFound: The scope has no such entry.
        """
        changed = self._entry_id(entry_id, key)
        if key is None and not await self._holds(changed):
            raise NotFound(changed)
        return await self._access.update(changed, options)

    async def delete(
        self,
        entry_id: str | None = None,
        *,
        key: str | None = None,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> DeletedEntry:
        """Delete an entry of the scope; see `Memory.delete`."""
        deleted, is_within = self._entry_id(entry_id, key), self._holds if key is None else None
        return await self._access.delete(deleted, expected_version, request_id, is_within)

    def _entry_id(self, entry_id: str | None, key: str | None) -> str:
        return self._access.entry_id(entry_id, None if key is None else self._scope, key)

    async def _holds(self, entry_id: str) -> bool:
        """Return whether the scope has an entry with this id, also a retired one."""
        try:
            if await self._access.outside([entry_id]):
                return False
            scope = await self._access.engine.entry_scopes.of_entry(self._access.tenant, entry_id)
            return scope == self._scope.text
        except NotFound:
            return False

    async def retrieve(self, **options: Unpack[RetrieveOptions]) -> EntryPage:
        """List the entries of the scope by age; see `Memory.retrieve`."""
        asked = self._access.entry_query(self._scope, unless_told=RETRIEVE_LIMIT, **options)
        return await self._access.browse(asked)

    async def browse(self, **options: Unpack[BrowseOptions]) -> EntryPage:
        """List the entries of the scope by their last change; see `Memory.browse`."""
        asked = self._access.entry_query(self._scope, unless_told=BROWSE_LIMIT, along="updated_at", **options)
        return await self._access.browse(asked)

    @overload
    async def search(
        self, query: str, *, messages: Literal[False] = False, **options: Unpack[SearchOptions]
    ) -> SearchResult: ...

    @overload
    async def search(
        self, query: str, *, messages: Literal[True], **options: Unpack[SearchOptions]
    ) -> MixedResult: ...

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
        only_count = flag("dry_run", dry_run)
        return await erase_scope(self._access.engine, self._access.tenant, self._scope, dry_run=only_count)
