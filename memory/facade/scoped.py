"""A view of one scope: `Memory`'s calls without naming the scope each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, Unpack, overload

from memory.domain.corrections import explain_guesses
from memory.domain.enrichment import WriteReport
from memory.domain.entry import Entry, EntryDraft, EntryType
from memory.domain.scope import Scope
from memory.domain.session import ErasedScope
from memory.facade.arguments import Metadata, Moment, flag
from memory.facade.erasure import erase_scope
from memory.facade.runtime.access import BROWSE_LIMIT, RETRIEVE_LIMIT, Access
from memory.facade.search_options import SearchBoost, SearchFilter, SearchOptions, preferences
from memory.facade.write_options import WriteMode, WriteOptions
from memory.orchestrator.enrichment.conflicts import Resolver
from memory.orchestrator.entries.browsing import EntryPage
from memory.orchestrator.retrieval.search import MixedResult, SearchResult
from memory.orchestrator.storage.deliveries import Consistency
from memory.policies.entry_query import Scalar


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

    async def write(
        self,
        content: str = "",
        *,
        type: EntryType | str = EntryType.CONTEXT,  # noqa: A002 - the field's own name
        title: str | None = None,
        source: str | None = None,
        tags: Sequence[str] = (),
        metadata: Metadata | None = None,
        confidence: float | None = None,
        created_at: Moment | None = None,
        expires_at: Moment | timedelta | None = None,
        conversation_id: str | None = None,
        number_in_conversation: int | None = None,
        speaker: str | None = None,
        artifact_id: str | None = None,
        agent: str | None = None,
        run: str | None = None,
        origins: Sequence[str] = (),
        key: str | None = None,
        revive: bool = False,
        consistency: Consistency | None = None,
        supersedes: str | Sequence[str] = (),
        if_exists: Literal["error", "replace"] = "error",
        detect_conflicts: bool = False,
        resolve: Resolver | None = None,
        auto_tag: bool | None = None,
        auto_supersede: bool | None = None,
    ) -> Entry:
        """Store one entry in this scope; see `Memory.write`.

        `supersedes` names entries of this scope.
        """
        draft = EntryDraft(
            scope=self._scope,
            content=content,
            type=type,
            title=title,
            source=source,
            tags=tags,
            metadata=metadata,
            confidence=confidence,
            created_at=created_at,
            expires_at=expires_at,
            conversation_id=conversation_id,
            number_in_conversation=number_in_conversation,
            speaker=speaker,
            artifact_id=artifact_id,
            agent=agent,
            run=run,
            origins=origins,
            key=key,
        )
        mode: WriteMode = {
            "revive": revive,
            "consistency": consistency,
            "supersedes": supersedes,
            "if_exists": if_exists,
            "detect_conflicts": detect_conflicts,
            "resolve": resolve,
            "auto_tag": auto_tag,
            "auto_supersede": auto_supersede,
        }
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

    async def retrieve(
        self,
        *,
        tags: Sequence[str] | None = None,
        any_tags: Sequence[str] | None = None,
        types: Sequence[EntryType | str] | None = None,
        metadata: Mapping[str, Scalar] | None = None,
        since: Moment | None = None,
        before: Moment | None = None,
        limit: int | None = None,
        order: Literal["newest", "oldest"] = "newest",
        include_narrower: bool = False,
        session_id: str | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        cursor: str | None = None,
    ) -> EntryPage:
        """List the entries of the scope by age; see `Memory.retrieve`."""
        asked = self._access.entry_query(
            self._scope,
            tags=tags,
            any_tags=any_tags,
            types=types,
            metadata=metadata,
            since=since,
            before=before,
            limit=limit,
            unless_told=RETRIEVE_LIMIT,
            order=order,
            include_narrower=include_narrower,
            session_id=session_id,
            as_of=as_of,
            known_at=known_at,
            cursor=cursor,
        )
        return await self._access.engine.browser.browse(asked)

    async def browse(
        self,
        *,
        conversation: str | None = None,
        types: Sequence[EntryType | str] | None = None,
        tags: Sequence[str] | None = None,
        since: Moment | None = None,
        updated_before: Moment | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        include_retired: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> EntryPage:
        """List the entries of the scope by their last change; see `Memory.browse`."""
        asked = self._access.entry_query(
            self._scope,
            limit=limit,
            unless_told=BROWSE_LIMIT,
            along="updated_at",
            conversation=conversation,
            types=types,
            tags=tags,
            since=since,
            updated_before=updated_before,
            as_of=as_of,
            known_at=known_at,
            include_retired=include_retired,
            cursor=cursor,
        )
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
        self,
        query: str,
        *,
        limit: int | None = None,
        mode: Literal["hybrid", "lexical", "semantic"] = "hybrid",
        boost: SearchBoost | None = None,
        filter: SearchFilter | None = None,  # noqa: A002 - the usual word for it
        min_relevance: float | None = None,
        since: Moment | None = None,
        include_narrower: bool = False,
        session_id: str | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        intent: bool = True,
        age_decay: bool = True,
        half_life: timedelta | float | None = None,
        decay_floor: float | None = None,
        explain: bool = False,
        expand: bool = False,
        rerank: bool | Literal["two-stage"] = False,
        messages: bool = False,
    ) -> SearchResult | MixedResult:
        """Return the entries of the scope that answer best; see `Memory.search`."""
        return await self._access.search(
            query,
            self._scope,
            limit=limit,
            mode=mode,
            filter=filter,
            min_relevance=min_relevance,
            preferred=preferences(
                boost,
                intent=intent,
                age_decay=age_decay,
                half_life=half_life,
                decay_floor=decay_floor,
            ),
            since=since,
            include_narrower=include_narrower,
            session_id=session_id,
            as_of=as_of,
            known_at=known_at,
            explain=explain,
            expand=expand,
            rerank=rerank,
            messages=messages,
        )

    async def erase(self, *, dry_run: bool = False) -> ErasedScope:
        """Erase every entry of the scope; see `Admin.erase`.

        Returns:
            The number of entries.
        """
        return await erase_scope(
            self._access.engine, self._access.tenant, self._scope, dry_run=flag("dry_run", dry_run)
        )
