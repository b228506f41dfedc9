# Made by tools/blocking_stub.py from memory.py and view.py. Do not edit.
# ruff: noqa: A002
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self

from memory.domain.entry import Entry, EntryDraft, EntryType
from memory.domain.scope import Scope
from memory.facade.config import MemoryConfig
from memory.facade.explain import RouteReport
from memory.facade.reports import Copy, Stats, StoreAudit, StoreReport, Vacuumed
from memory.orchestrator.browsing import Retrieved
from memory.orchestrator.derivation import Callback
from memory.orchestrator.maintenance import SweepReport
from memory.orchestrator.promotion import PromotionReport
from memory.orchestrator.relations import Relation
from memory.orchestrator.searching import SearchResult
from memory.policies.routing import Route
from memory.ports.clock import Clock
from memory.ports.embedder import Embedder

EmbedFunction = Callable[[Sequence[str]], Any]
Moment = datetime | str | int | float

class BlockingMemory:
    config: MemoryConfig
    tenant: str
    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | MemoryConfig | None = ...,
        *,
        tenant: str | None = ...,
        embedder: Embedder | EmbedFunction | str | None = ...,
        clock: Clock = ...,
        **settings: Any,
    ) -> None: ...
    def open(self) -> Self: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
    def for_tenant(self, tenant: str) -> BlockingMemory: ...
    def scoped(self, scope: Scope | str) -> BlockingScopedMemory: ...
    def write(
        self,
        content: str = ...,
        *,
        scope: Scope | str,
        type: EntryType | str = ...,
        title: str | None = ...,
        source: str | None = ...,
        tags: Sequence[str] = ...,
        metadata: Mapping[str, Any] | None = ...,
        created_at: Moment | None = ...,
        expires_at: Moment | timedelta | None = ...,
        key: str | None = ...,
        revive: bool = ...,
    ) -> Entry: ...
    def write_many(self, drafts: Iterable[EntryDraft | Mapping[str, Any]], *, revive: bool = ...) -> list[Entry]: ...
    def update(
        self,
        entry_id: str,
        *,
        content: str = ...,
        title: str | None = ...,
        type: EntryType | str = ...,
        source: str | None = ...,
        tags: Sequence[str] = ...,
        metadata: Mapping[str, Any] = ...,
        expires_at: Moment | timedelta | None = ...,
    ) -> Entry: ...
    def invalidate(self, entry_id: str, when: Moment | None = ...) -> bool: ...
    def delete(self, entry_id: str) -> bool: ...
    def delete_scope(self, scope: Scope | str) -> int: ...
    def get(self, entry_id: str, *, as_of: Moment | None = ..., known_at: Moment | None = ...) -> Entry | None: ...
    def retrieve(
        self,
        scope: Scope | str,
        *,
        tags: Sequence[str] | None = ...,
        types: Sequence[EntryType | str] | None = ...,
        since: Moment | None = ...,
        limit: int | None = ...,
        order: Literal["newest", "oldest"] = ...,
        include_narrower: bool = ...,
        session_id: str | None = ...,
        as_of: Moment | None = ...,
        known_at: Moment | None = ...,
    ) -> Retrieved: ...
    def search(
        self,
        query: str,
        *,
        scope: Scope | str | Sequence[Scope | str],
        limit: int | None = ...,
        tags: Sequence[str] | None = ...,
        types: Sequence[EntryType | str] | None = ...,
        since: Moment | None = ...,
        include_narrower: bool = ...,
        session_id: str | None = ...,
        as_of: Moment | None = ...,
        known_at: Moment | None = ...,
        explain: bool = ...,
    ) -> SearchResult: ...
    def history(self, entry_id: str) -> list[Entry]: ...
    def entries(self, scope: Scope | str | None = ..., *, retired: bool = ...) -> Iterator[Entry]: ...
    def promote(
        self,
        entry_id: str,
        to: Scope | str,
        *,
        content: str = ...,
        tags: Sequence[str] = ...,
        metadata: Mapping[str, Any] = ...,
        delete_original: bool = ...,
    ) -> Entry: ...
    def compact(
        self,
        entry_ids: Sequence[str],
        callback: Callback,
        *,
        target_scope: Scope | str | None = ...,
        tags: Sequence[str] | None = ...,
        metadata: Mapping[str, Any] | None = ...,
        delete_sources: bool = ...,
    ) -> Entry: ...
    def relate(self, source_id: str, label: str, target_id: str) -> Relation: ...
    def relations(
        self, *, source_id: str | None = ..., target_id: str | None = ..., label: str | None = ..., limit: int | None = ...
    ) -> list[Relation]: ...
    def every_relation(self) -> Iterator[Relation]: ...
    def restore_relation(self, source_id: str, label: str, target_id: str, created_at: Moment) -> bool: ...
    def unrelate(self, relation_id: str) -> bool: ...
    def end_session(self, session_id: str) -> PromotionReport: ...
    def move(self, entry_ids: Sequence[str], to: str) -> PromotionReport: ...
    def route(self, scope: Scope | str) -> Route: ...
    def explain_route(self, scope: Scope | str, collection: str = ...) -> RouteReport: ...
    def where(self, entry_id: str) -> list[Copy]: ...
    def sweep(self) -> SweepReport: ...
    def stats(self) -> Stats: ...
    def check(self) -> list[StoreReport]: ...
    def audit(self, *, repair: bool = ...) -> list[StoreAudit]: ...
    def vacuum(self) -> list[Vacuumed]: ...

class BlockingScopedMemory:
    scope: Scope
    def write(self, content: str = ..., **arguments: Any) -> Entry: ...
    def retrieve(self, **arguments: Any) -> Retrieved: ...
    def search(self, query: str, **arguments: Any) -> SearchResult: ...
    def delete_all(self) -> int: ...
