# Made by tools/blocking_stub.py from the async classes. Do not edit.
# ruff: noqa: A002

from __future__ import annotations

import builtins
import os
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager
from datetime import timedelta
from os import PathLike
from types import TracebackType
from typing import (
    Any,
    ClassVar,
    Literal,
    Self,
    Unpack,
    overload,
)

from memory.agents.manager.extraction import Model
from memory.agents.manager.gates import StoreRecallGate, StoreWriteGate
from memory.agents.manager.injection import Injection
from memory.agents.manager.recording import Attachment
from memory.agents.manager.spool import Spool
from memory.agents.manager.stores import NamedStore
from memory.agents.manager.tools import (
    AddTool,
    SearchTool,
)
from memory.agents.providers.provider import (
    Messages,
)
from memory.agents.providers.summarizing import Summariser
from memory.agents.providers.turn import Emit, Turn
from memory.domain.agent_results import ProviderEntry, Result, StoreEntry
from memory.domain.artifact import Artifact, ArtifactPage
from memory.domain.blocked_source import BlockedSource, LaterWrites
from memory.domain.conflicts import ConflictReport
from memory.domain.delegation import Delegation
from memory.domain.document import (
    Document,
    DocumentChange,
    DocumentInfo,
    DocumentOrder,
    DocumentPage,
    DocumentPut,
    IfDocumentExists,
    Value,
)
from memory.domain.enrichment import Enrichment, WriteReport
from memory.domain.entry import (
    Entry,
    EntryDraft,
    EntryType,
)
from memory.domain.import_reports import ImportReport
from memory.domain.legal_hold import LegalHold
from memory.domain.maintenance_reports import ReindexReport, RolledBackStore, StoreComparison, SweepReport
from memory.domain.message import Message, Role
from memory.domain.plan import Plan, RouteReport, WhyReport
from memory.domain.promotion_report import PromotionReport
from memory.domain.provenance import Provenance
from memory.domain.relation import Density, Expansion, Graph, Relation, RelationPage
from memory.domain.revert_report import RevertReport
from memory.domain.scope import Scope, ScopeKind, Subtree
from memory.domain.scopes import ScopePage
from memory.domain.scratchpad import Scratchpad
from memory.domain.search_results import EntryPage, MixedResult, SearchResult
from memory.domain.session import (
    Compaction,
    Context,
    DeletedEntries,
    DeletedEntry,
    ErasedScope,
    ErasedTenant,
    ErasedUser,
    FoundMessages,
    HistoryItem,
    HistoryPage,
    SessionInfo,
    SessionPage,
    SessionState,
)
from memory.domain.shapes.tools import ToolFormat
from memory.domain.short_id import NumberedItem, NumberedKind
from memory.domain.store_reports import Backup, CopyLocation, Stats, StoreAudit, StoreReport, VacuumReport
from memory.domain.task import Run, RunPage, Task, TaskPage
from memory.domain.versions import ExpectedVersion
from memory.facade.arguments import (
    EntryData,
    Metadata,
    Moment,
)
from memory.facade.config.settings import MemoryConfig
from memory.facade.memory import (
    AdviseFunction,
    CountFunction,
    EmbedFunction,
    Memory,
    ScoreFunction,
)
from memory.facade.resources.artifacts import (
    ArtifactRef,
    Data,
)
from memory.facade.resources.commands import Profile
from memory.facade.resources.session import (
    MessageLike,
)
from memory.facade.runtime.access import (
    Access,
    Scopes,
)
from memory.facade.search_options import (
    BrowseOptions,
    FilterInput,
    Include,
    RetrieveOptions,
    SearchOptions,
)
from memory.facade.session_options import SessionOptions
from memory.facade.transfer.importer import Progress, Source
from memory.facade.write_options import (
    EntryPatch,
    IfExists,
    WriteOptions,
)
from memory.orchestrator.conversations.conversation import Checkpoint, Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.window.compaction import Summarise
from memory.orchestrator.conversations.window.streaming import StreamedMessage
from memory.orchestrator.enrichment.conflicts import Resolver
from memory.orchestrator.entries.derivation import Callback
from memory.orchestrator.storage.deliveries import Consistency
from memory.orchestrator.trust.gates import RecallGate, WriteGate
from memory.policies.compaction_thresholds import WindowPolicy
from memory.policies.list_compaction import CompactionSettings
from memory.policies.promotion import Policy
from memory.policies.window_exit import WindowExitFunction
from memory.ports.advisor import Advisor, Prompt, Reranker
from memory.ports.clock import Clock
from memory.ports.embedder import Embedder
from memory.ports.tokens import TokenCounter

class BlockingMemory:
    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | MemoryConfig | Memory | None = ...,
        *,
        tenant: str | None = ...,
        embedder: Embedder | EmbedFunction | Mapping[str, str] | str | None = ...,
        token_counter: TokenCounter | CountFunction | str | None = ...,
        clock: Clock = ...,
        on_window_exit: WindowExitFunction | Literal["elsewhere"] | None = ...,
        advisor: Advisor | AdviseFunction | None = ...,
        reranker: Reranker | Advisor | ScoreFunction | None = ...,
        policies: Sequence[Policy | str] = ...,
        write_gate: WriteGate | None = ...,
        recall_gate: RecallGate | None = ...,
        **settings: Any,
    ) -> None: ...
    @property
    def config(self) -> MemoryConfig: ...
    @property
    def tenant(self) -> str: ...
    @property
    def entries(self) -> BlockingEntries: ...
    @property
    def relations(self) -> BlockingRelations: ...
    @property
    def short_ids(self) -> BlockingShortIds: ...
    @property
    def sessions(self) -> BlockingSessions: ...
    @property
    def scratchpads(self) -> BlockingScratchpads: ...
    @property
    def documents(self) -> BlockingDocuments: ...
    @property
    def scopes(self) -> BlockingScopeListing: ...
    @property
    def commands(self) -> BlockingCommands: ...
    @property
    def artifacts(self) -> BlockingArtifacts: ...
    def session(
        self, session_id: str, *, create: bool = ..., **options: Unpack[SessionOptions]
    ) -> BlockingSession: ...
    @property
    def admin(self) -> BlockingAdmin: ...
    def open(self, *, reindex: bool = ...) -> Self: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def for_tenant(self, tenant: str) -> BlockingMemory: ...
    def scoped(self, scope: Scope | str) -> BlockingScopedMemory: ...
    def restrict(
        self,
        scopes: Scope | Subtree | str | Sequence[Scope | Subtree | str] | None = ...,
        *,
        role: Literal["reader", "writer"] | None = ...,
        origin: str | None = ...,
    ) -> BlockingMemory: ...
    def write(self, content: str = ..., *, scope: Scope | str, **options: Unpack[WriteOptions]) -> Entry: ...
    def write_with_report(
        self,
        content: str = ...,
        *,
        scope: Scope | str,
        wait: timedelta | float | str | None = ...,
        **options: Unpack[WriteOptions],
    ) -> WriteReport: ...
    def enrichment(self, entry_id: str) -> Enrichment: ...
    def write_many(
        self,
        drafts: Iterable[EntryDraft | Mapping[str, Any]],
        *,
        revive: bool = ...,
        if_exists: IfExists = ...,
        consistency: Consistency | None = ...,
        request_id: str | None = ...,
    ) -> list[Entry]: ...
    def update(
        self,
        entry_id: str | None = ...,
        *,
        scope: Scope | str | None = ...,
        key: str | None = ...,
        **options: Unpack[EntryPatch],
    ) -> Entry: ...
    def delete(
        self,
        entry_id: str | None = ...,
        *,
        scope: Scope | str | None = ...,
        key: str | None = ...,
        expected_version: str | None = ...,
        request_id: str | None = ...,
    ) -> DeletedEntry: ...
    def get(
        self,
        entry_id: str | None = ...,
        *,
        scope: Scope | str | None = ...,
        key: str | None = ...,
        as_of: Moment | None = ...,
        known_at: Moment | None = ...,
        include: Include | None = ...,
    ) -> Entry | None: ...
    def get_many(
        self,
        entry_ids: Sequence[str] | None = ...,
        *,
        scope: Scope | str | None = ...,
        keys: Sequence[str] | None = ...,
        include: Include | None = ...,
    ) -> list[Entry | None]: ...
    def retrieve(self, scope: Scopes, **options: Unpack[RetrieveOptions]) -> EntryPage: ...
    def browse(self, scope: Scopes | None = ..., **options: Unpack[BrowseOptions]) -> EntryPage: ...
    @overload
    def search(
        self, query: str, *, scope: Scopes, messages: Literal[False] = ..., **options: Unpack[SearchOptions]
    ) -> SearchResult: ...
    @overload
    def search(
        self, query: str, *, scope: Scopes, messages: Literal[True], **options: Unpack[SearchOptions]
    ) -> MixedResult: ...
    @overload
    def search(
        self, query: str, *, scope: Scopes, messages: bool, **options: Unpack[SearchOptions]
    ) -> SearchResult | MixedResult: ...
    def search_messages(
        self,
        query: str,
        *,
        user: str | None = ...,
        agent: str | None = ...,
        namespace: str | None = ...,
        since: Moment | None = ...,
        until: Moment | None = ...,
        mode: Literal["hybrid", "lexical", "semantic"] = ...,
        limit: int | None = ...,
        min_relevance: float | None = ...,
    ) -> FoundMessages: ...
    def promote(
        self,
        entry_id: str,
        to: Scope | str,
        *,
        content: str = ...,
        tags: Sequence[str] = ...,
        metadata: Metadata = ...,
        data: EntryData | None = ...,
        delete_original: bool = ...,
        consistency: Consistency | None = ...,
        request_id: str | None = ...,
    ) -> Entry: ...
    def compact(
        self,
        entry_ids: Sequence[str],
        callback: Callback,
        *,
        target_scope: Scope | str | None = ...,
        tags: Sequence[str] | None = ...,
        metadata: Metadata | None = ...,
        data: EntryData | None = ...,
        delete_sources: bool = ...,
        consistency: Consistency | None = ...,
        request_id: str | None = ...,
    ) -> Entry: ...
    def maintain(self, *, budget: timedelta | str | float = ..., rate: float | None = ...) -> SweepReport: ...

class BlockingScopedMemory:
    def __init__(self, access: Access, scope: Scope) -> None: ...
    @property
    def scope(self) -> Scope: ...
    def write(self, content: str = ..., **options: Unpack[WriteOptions]) -> Entry: ...
    def write_with_report(
        self,
        content: str = ...,
        *,
        wait: timedelta | float | str | None = ...,
        **options: Unpack[WriteOptions],
    ) -> WriteReport: ...
    def get(
        self,
        entry_id: str | None = ...,
        *,
        key: str | None = ...,
        as_of: Moment | None = ...,
        known_at: Moment | None = ...,
        include: Include | None = ...,
    ) -> Entry | None: ...
    def get_many(
        self,
        entry_ids: Sequence[str] | None = ...,
        *,
        keys: Sequence[str] | None = ...,
        include: Include | None = ...,
    ) -> list[Entry | None]: ...
    def update(
        self, entry_id: str | None = ..., *, key: str | None = ..., **options: Unpack[EntryPatch]
    ) -> Entry: ...
    def delete(
        self,
        entry_id: str | None = ...,
        *,
        key: str | None = ...,
        expected_version: str | None = ...,
        request_id: str | None = ...,
    ) -> DeletedEntry: ...
    def retrieve(self, **options: Unpack[RetrieveOptions]) -> EntryPage: ...
    def browse(self, **options: Unpack[BrowseOptions]) -> EntryPage: ...
    @overload
    def search(
        self, query: str, *, messages: Literal[False] = ..., **options: Unpack[SearchOptions]
    ) -> SearchResult: ...
    @overload
    def search(
        self, query: str, *, messages: Literal[True], **options: Unpack[SearchOptions]
    ) -> MixedResult: ...
    @overload
    def search(
        self, query: str, *, messages: bool, **options: Unpack[SearchOptions]
    ) -> SearchResult | MixedResult: ...
    def erase(self, *, dry_run: bool = ...) -> ErasedScope: ...

class BlockingEntries:
    def __init__(self, access: Access) -> None: ...
    def iterate(
        self,
        scope: Scope | Subtree | str | None = ...,
        *,
        filter: FilterInput | None = ...,
        include_retired: bool = ...,
        include: Include | None = ...,
    ) -> Iterator[Entry]: ...
    def delete_many(
        self,
        filter: FilterInput,
        *,
        scope: Scope | Subtree | str | None = ...,
        include_retired: bool = ...,
        request_id: str | None = ...,
    ) -> DeletedEntries: ...
    def history(
        self,
        entry_id: str | None = ...,
        *,
        scope: Scope | str | None = ...,
        key: str | None = ...,
        superseded: bool = ...,
        include: Include | None = ...,
    ) -> list[Entry]: ...
    def source_messages(self, entry_id: str) -> list[HistoryItem]: ...
    def invalidate(
        self,
        entry_id: str | None = ...,
        when: Moment | None = ...,
        *,
        scope: Scope | str | None = ...,
        key: str | None = ...,
        expected_version: str | None = ...,
        consistency: Consistency | None = ...,
        request_id: str | None = ...,
    ) -> bool: ...

class BlockingRelations:
    def __init__(self, access: Access) -> None: ...
    def relate(
        self, source_id: str, label: str, target_id: str, *, request_id: str | None = ...
    ) -> Relation: ...
    def find(
        self,
        *,
        source_id: str | None = ...,
        target_id: str | None = ...,
        label: str | None = ...,
        limit: int | None = ...,
        active: bool = ...,
        as_of: Moment | None = ...,
        known_at: Moment | None = ...,
        cursor: str | None = ...,
    ) -> RelationPage: ...
    def expand(
        self, entry_id: str, *, depth: int = ..., scope: Scopes | None = ..., superseded: bool = ...
    ) -> Expansion: ...
    def density(self, entry_id: str, *, scope: Scopes | None = ...) -> Density: ...
    def graph(
        self,
        scope: Scopes | None = ...,
        *,
        types: Sequence[EntryType | str] | None = ...,
        limit: int | None = ...,
        as_of: Moment | None = ...,
        known_at: Moment | None = ...,
    ) -> Graph: ...
    def all(self) -> Iterator[Relation]: ...
    def unrelate(self, relation_id: str, *, request_id: str | None = ...) -> bool: ...

class BlockingShortIds:
    def __init__(self, access: Access) -> None: ...
    def of(self, ids: Sequence[str], *, kind: NumberedKind = ...) -> dict[str, int]: ...
    def resolve(self, text: str, *, request_id: str | None = ...) -> NumberedItem | None: ...
    def resolve_many(self, texts: Sequence[str]) -> list[NumberedItem | None]: ...

class BlockingScopeListing:
    def __init__(self, access: Access) -> None: ...
    def list(
        self,
        prefix: Scope | Subtree | str | None = ...,
        *,
        kind: ScopeKind | str | None = ...,
        max_depth: int | None = ...,
        limit: int | None = ...,
        cursor: str | None = ...,
    ) -> ScopePage: ...

class BlockingScratchpads:
    def __init__(self, access: Access) -> None: ...
    def append(self, text: str, agent: str | None = ..., *, request_id: str | None = ...) -> int: ...
    def read(self, agent: str | None = ...) -> Scratchpad: ...
    def clear(self, agent: str | None = ..., *, request_id: str | None = ...) -> bool: ...

class BlockingDocuments:
    def __init__(self, access: Access) -> None: ...
    def put(
        self,
        scope: Scope | str,
        key: str,
        value: Value,
        *,
        metadata: Metadata | None = ...,
        expires_in: timedelta | float | str | None = ...,
        refresh_on_read: bool = ...,
        expected_version: ExpectedVersion | None = ...,
        if_exists: IfDocumentExists = ...,
        request_id: str | None = ...,
    ) -> DocumentInfo: ...
    def put_many(
        self, puts: Sequence[DocumentPut], *, request_id: str | None = ...
    ) -> list[DocumentInfo]: ...
    def edit(
        self, scope: Scope | str, key: str, change: Callable[[Document | None], Value]
    ) -> DocumentInfo: ...
    def get(self, scope: Scope | str, key: str) -> Document | None: ...
    def get_many(self, scope: Scope | str, keys: Sequence[str]) -> list[Document | None]: ...
    def delete(
        self,
        scope: Scope | str,
        key: str,
        *,
        expected_version: ExpectedVersion | None = ...,
        request_id: str | None = ...,
    ) -> bool: ...
    def delete_many(
        self,
        scope: Scope | str,
        *,
        prefix: str = ...,
        start: str | None = ...,
        stop: str | None = ...,
        filter: FilterInput | None = ...,
        request_id: str | None = ...,
    ) -> int: ...
    def apply(
        self, changes: Sequence[DocumentChange], *, atomic: bool = ..., request_id: str | None = ...
    ) -> list[DocumentInfo | None]: ...
    def find(
        self,
        scope: Scope | Subtree | str,
        key: str,
        *,
        values: bool = ...,
        limit: int | None = ...,
        cursor: str | None = ...,
    ) -> DocumentPage: ...
    def list(
        self,
        scope: Scope | Subtree | str,
        *,
        prefix: str = ...,
        start: str | None = ...,
        stop: str | None = ...,
        order: DocumentOrder = ...,
        reverse: bool = ...,
        filter: FilterInput | None = ...,
        values: bool = ...,
        limit: int | None = ...,
        cursor: str | None = ...,
    ) -> DocumentPage: ...
    def iterate(
        self,
        scope: Scope | Subtree | str,
        *,
        prefix: str = ...,
        start: str | None = ...,
        stop: str | None = ...,
        order: DocumentOrder = ...,
        reverse: bool = ...,
        filter: FilterInput | None = ...,
        values: bool = ...,
        at_first: int | None = ...,
        skip_damaged: bool = ...,
    ) -> Iterator[DocumentInfo]: ...

class BlockingCommands:
    def __init__(self, access: Access) -> None: ...
    def run(
        self,
        text: str,
        *,
        scope: Scope | str,
        reads: Scopes | None = ...,
        conversation: str | None = ...,
        agent: str | None = ...,
        profile: Profile | None = ...,
        advisor: Advisor | Callable[[Prompt], Any] | None = ...,
        request_id: str | None = ...,
    ) -> list[Result]: ...
    def schema(self, format: ToolFormat = ...) -> dict[str, Any]: ...

class BlockingArtifacts:
    def __init__(self, access: Access) -> None: ...
    def put(
        self, session_id: str, path: str, data: Data, *, media_type: str = ..., request_id: str | None = ...
    ) -> Artifact: ...
    def get(self, artifact: ArtifactRef) -> Artifact | None: ...
    def stream(
        self, artifact: ArtifactRef, *, start: int = ..., end: int | None = ..., sha256: str | None = ...
    ) -> Iterator[bytes]: ...
    def read(self, artifact: ArtifactRef, limit: int = ...) -> bytes: ...
    def list(self, session_id: str, *, limit: int | None = ..., cursor: str | None = ...) -> ArtifactPage: ...
    def delete(self, artifact: ArtifactRef, *, request_id: str | None = ...) -> bool: ...

class BlockingSession:
    def __init__(self, access: Access, draft: SessionDraft, *, create: bool) -> None: ...
    @property
    def id(self) -> str: ...
    @property
    def tasks(self) -> BlockingTasks: ...
    @property
    def runs(self) -> BlockingRuns: ...
    def append(
        self,
        message: MessageLike | Sequence[MessageLike],
        *,
        format: str = ...,
        id: str | Sequence[str | None] | None = ...,
        in_history: bool = ...,
        state: Mapping[str, Any] | None = ...,
        expected_version: ExpectedVersion | None = ...,
        request_id: str | None = ...,
    ) -> list[Message]: ...
    def state(self) -> SessionState: ...
    def pop(self, n: int = ..., *, request_id: str | None = ...) -> list[dict[str, Any]]: ...
    def update(self, message_id: str, *, request_id: str | None = ..., **changes: Any) -> Message: ...
    def stream(
        self, *, role: Literal["assistant", "user"] = ..., message_id: str | None = ...
    ) -> BlockingMessageStream: ...
    def exclude(self, message_id: str, reason: str = ..., *, request_id: str | None = ...) -> bool: ...
    def erase(self, message_id: str, *, request_id: str | None = ...) -> bool: ...
    def restore(self, message_id: str, *, request_id: str | None = ...) -> bool: ...
    def clear(self, *, request_id: str | None = ...) -> int: ...
    def replace(
        self,
        messages: Sequence[MessageLike],
        *,
        revive: bool = ...,
        expected_version: str | None = ...,
        request_id: str | None = ...,
    ) -> list[Message]: ...
    def checkpoint(self, name: str | None = ..., *, request_id: str | None = ...) -> Checkpoint: ...
    def roll_back(
        self, checkpoint: Checkpoint, reason: str = ..., *, request_id: str | None = ...
    ) -> int: ...
    def repair_tool_calls(self, *, request_id: str | None = ...) -> list[Message]: ...
    def info(self) -> SessionInfo: ...
    def context(
        self,
        budget: int | None = ...,
        *,
        last: int | None = ...,
        tools: Sequence[Mapping[str, Any]] = ...,
        by: Literal["blocks", "turns"] = ...,
        slack: float = ...,
        layered: bool = ...,
        recall: str | None = ...,
        start: Literal["any", "user"] | None = ...,
        min_relevance: float | None = ...,
    ) -> Context: ...
    def window(self, last: int | None = ...) -> Context: ...
    def history(
        self,
        *,
        ids: Sequence[str] | None = ...,
        first: int | None = ...,
        last: int | None = ...,
        roles: Sequence[Role | str] = ...,
        summaries: bool = ...,
        archived_by: str | None = ...,
        order: Literal["oldest", "newest"] = ...,
        limit: int | None = ...,
        offset: int = ...,
        cursor: str | None = ...,
    ) -> HistoryPage: ...
    def search(
        self,
        query: str,
        *,
        mode: Literal["hybrid", "lexical", "semantic"] = ...,
        limit: int | None = ...,
        min_relevance: float | None = ...,
    ) -> FoundMessages: ...
    def compact(
        self,
        summarise: Summarise,
        *,
        keep_last: int,
        reason: str = ...,
        trigger_id: str | None = ...,
        request_id: str | None = ...,
    ) -> Compaction: ...
    def compact_if_needed(
        self,
        policy: WindowPolicy | CompactionSettings,
        summarise: Summarise = ...,
        *,
        tools: Sequence[Mapping[str, Any]] = ...,
        request_id: str | None = ...,
    ) -> Compaction | None: ...
    def compactions(self) -> list[Compaction]: ...
    def end(self, *, request_id: str | None = ...) -> PromotionReport: ...
    def archive(self, *, request_id: str | None = ...) -> bool: ...
    def resume(self, *, request_id: str | None = ...) -> bool: ...
    def fork(
        self, at: str | None = ..., session_id: str | None = ..., *, request_id: str | None = ...
    ) -> BlockingSession: ...
    def delete(self, *, request_id: str | None = ...) -> bool: ...

class BlockingSessions:
    def __init__(self, access: Access) -> None: ...
    def create(
        self, session_id: str | None = ..., *, request_id: str | None = ..., **options: Unpack[SessionOptions]
    ) -> BlockingSession: ...
    def get(self, session_id: str) -> SessionInfo | None: ...
    def delegation(
        self, session_id: str | None, *, scope: Scopes | None = ..., limit: int | None = ...
    ) -> Delegation: ...
    def update(
        self,
        session_id: str,
        *,
        system: str = ...,
        title: str | None = ...,
        tags: Sequence[str] = ...,
        metadata: Metadata = ...,
        expires_at: Moment | timedelta | None = ...,
        expected_version: str | None = ...,
        request_id: str | None = ...,
    ) -> SessionInfo: ...
    def list(
        self,
        *,
        status: str | None = ...,
        user: str | None = ...,
        agent: str | None = ...,
        namespace: str | None = ...,
        tags: Sequence[str] = ...,
        since: Moment | None = ...,
        until: Moment | None = ...,
        by: Literal["updated", "created"] = ...,
        order: Literal["newest", "oldest"] = ...,
        limit: int | None = ...,
        cursor: str | None = ...,
    ) -> SessionPage: ...
    def runs(
        self,
        *,
        run_id: str | None = ...,
        session_id: str | None = ...,
        child_id: str | None = ...,
        status: str | None = ...,
        mode: str | None = ...,
        order: Literal["newest", "oldest"] = ...,
        limit: int | None = ...,
        cursor: str | None = ...,
    ) -> RunPage: ...
    def end(self, session_id: str, *, request_id: str | None = ...) -> PromotionReport: ...
    def delete(self, session_id: str, *, request_id: str | None = ...) -> bool: ...

class BlockingTasks:
    def __init__(
        self, access: Access, conversation: Callable[..., Awaitable[Conversation]], session_id: str
    ) -> None: ...
    def save(
        self,
        task_id: str,
        *,
        title: str = ...,
        status: str = ...,
        parent_id: str | None = ...,
        result: str | None = ...,
        metadata: Metadata | None = ...,
        request_id: str | None = ...,
    ) -> Task: ...
    def get(self, task_id: str) -> Task | None: ...
    def list(
        self,
        *,
        status: str | None = ...,
        parent_id: str | None = ...,
        order: Literal["newest", "oldest"] = ...,
        limit: int | None = ...,
        cursor: str | None = ...,
    ) -> TaskPage: ...
    def delete(self, task_id: str, *, request_id: str | None = ...) -> bool: ...
    def replace_all(
        self, tasks: Sequence[Mapping[str, Any]], *, request_id: str | None = ...
    ) -> Sequence[Task]: ...

class BlockingRuns:
    def __init__(
        self, access: Access, conversation: Callable[..., Awaitable[Conversation]], session_id: str
    ) -> None: ...
    def save(
        self,
        run_id: str,
        *,
        child_id: str,
        status: str = ...,
        mode: str = ...,
        messages: Sequence[Any] = ...,
        message_count: int | None = ...,
        metadata: Metadata | None = ...,
        request_id: str | None = ...,
    ) -> Run: ...
    def get(self, run_id: str) -> Run | None: ...
    def list(
        self,
        *,
        child_id: str | None = ...,
        status: str | None = ...,
        mode: str | None = ...,
        order: Literal["newest", "oldest"] = ...,
        limit: int | None = ...,
        cursor: str | None = ...,
    ) -> RunPage: ...
    def delete(self, run_id: str, *, request_id: str | None = ...) -> bool: ...

class BlockingMessageStream:
    def __init__(
        self,
        begin: Callable[[str], Awaitable[StreamedMessage]],
        message_id: str,
        check_process: Callable[[], None],
        check_claims: Callable[[Mapping[str, Any]], None],
        refuse_blocked: Callable[[], Awaitable[None]],
    ) -> None: ...
    @property
    def id(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def write(self, text: str) -> None: ...
    def finish(self, **changes: Any) -> Message | None: ...

class BlockingAdmin:
    def __init__(self, access: Access) -> None: ...
    @property
    def legal_holds(self) -> BlockingLegalHolds: ...
    def erase(self, scope: Scope | Subtree | str, *, dry_run: bool = ...) -> ErasedScope: ...
    def erase_tenant(self, *, dry_run: bool = ...) -> ErasedTenant: ...
    def erase_user(self, user: str | Scope, *, dry_run: bool = ...) -> ErasedUser: ...
    def block_source(
        self,
        *,
        source: str | None = ...,
        agent: str | None = ...,
        run: str | None = ...,
        since: Moment | None = ...,
        later_writes: LaterWrites = ...,
        reason: str,
        blocked_by: str | None = ...,
        request_id: str | None = ...,
    ) -> list[BlockedSource]: ...
    def unblock_source(
        self,
        *,
        source: str | None = ...,
        agent: str | None = ...,
        run: str | None = ...,
        request_id: str | None = ...,
    ) -> list[BlockedSource]: ...
    def blocked_sources(self) -> list[BlockedSource]: ...
    def revert_source(
        self,
        *,
        source: str | None = ...,
        agent: str | None = ...,
        run: str | None = ...,
        since: Moment | None = ...,
        erase: bool = ...,
        derived: bool = ...,
        dry_run: bool = ...,
        request_id: str | None = ...,
    ) -> RevertReport: ...
    def export(
        self, scope: Scope | Subtree | str | None = ..., *, filter: FilterInput | None = ...
    ) -> Iterator[dict[str, Any]]: ...
    def import_(
        self,
        source: Source,
        *,
        name: str | None = ...,
        scope: Scope | str | None = ...,
        messages_to: Scope | str | None = ...,
        same_ids: bool = ...,
        revive: bool = ...,
        skip_bad: bool = ...,
        progress: Progress | None = ...,
    ) -> ImportReport: ...
    def embed_messages(self) -> int: ...
    def move(self, entry_ids: Sequence[str], to: str) -> PromotionReport: ...
    def where(self, entry_id: str) -> list[CopyLocation]: ...
    def route(self, scope: Scope | str, collection: str = ...) -> RouteReport: ...
    def why(self, entry_id: str) -> WhyReport: ...
    def stats(self) -> Stats: ...
    def flush(self) -> None: ...
    def sweep(self) -> SweepReport: ...
    def plan(self) -> Plan: ...
    def check(self) -> list[StoreReport]: ...
    def audit(self, *, repair: bool = ...) -> list[StoreAudit]: ...
    def rolled_back_stores(self) -> list[RolledBackStore]: ...
    def forget_store(self, name: str) -> int: ...
    def compare(self, *, repair: bool = ..., progress: Progress | None = ...) -> StoreComparison: ...
    def backup(self, file: str | PathLike[str]) -> Backup: ...
    def reindex(self, *, progress: Progress | None = ...) -> ReindexReport: ...
    def vacuum(self) -> list[VacuumReport]: ...

class BlockingLegalHolds:
    def __init__(self, access: Access) -> None: ...
    def add(
        self,
        name: str,
        *,
        reason: str,
        scope: Scope | Subtree | str | None = ...,
        user: str | Scope | None = ...,
        entry_id: str | None = ...,
        tenant: bool = ...,
        placed_by: str | None = ...,
        request_id: str | None = ...,
    ) -> LegalHold: ...
    def remove(self, name: str, *, request_id: str | None = ...) -> builtins.list[LegalHold]: ...
    def list(self) -> builtins.list[LegalHold]: ...

class BlockingBufferProvider:
    def turn(
        self,
        user: MessageLike | Sequence[MessageLike],
        session_id: str = ...,
        *,
        system: str | None = ...,
        limit: int | None = ...,
        query: str | None = ...,
        tags: Sequence[str] = ...,
        agent: str | None = ...,
        emit: Emit | None = ...,
    ) -> AbstractContextManager[Turn]: ...
    type: ClassVar[str]
    takes_new: ClassVar[bool]
    def __init__(
        self,
        memory: BlockingMemory,
        *,
        namespace: str | None = ...,
        user: str | None = ...,
        max_messages: int = ...,
        max_tokens: int | None = ...,
        seed: Mapping[str, Messages] | None = ...,
    ) -> None: ...
    def read(
        self,
        session_id: str = ...,
        *,
        limit: int | None = ...,
        query: str | None = ...,
        tags: Sequence[str] = ...,
    ) -> list[Message]: ...
    def write(
        self,
        messages: Messages,
        session_id: str = ...,
        *,
        tags: Sequence[str] = ...,
        agent: str | None = ...,
        new: bool = ...,
    ) -> list[str]: ...
    def clear(self, session_id: str | None = ...) -> None: ...
    def entries(self, session_id: str | None = ...) -> list[ProviderEntry]: ...
    def session_count(self) -> int: ...

class BlockingSlidingWindowProvider:
    def turn(
        self,
        user: MessageLike | Sequence[MessageLike],
        session_id: str = ...,
        *,
        system: str | None = ...,
        limit: int | None = ...,
        query: str | None = ...,
        tags: Sequence[str] = ...,
        agent: str | None = ...,
        emit: Emit | None = ...,
    ) -> AbstractContextManager[Turn]: ...
    type: ClassVar[str]
    takes_new: ClassVar[bool]
    def __init__(
        self,
        memory: BlockingMemory,
        *,
        namespace: str | None = ...,
        user: str | None = ...,
        max_turns: int = ...,
        max_tokens: int | None = ...,
    ) -> None: ...
    def read(
        self,
        session_id: str = ...,
        *,
        limit: int | None = ...,
        query: str | None = ...,
        tags: Sequence[str] = ...,
    ) -> list[Message]: ...
    def write(
        self,
        messages: Messages,
        session_id: str = ...,
        *,
        tags: Sequence[str] = ...,
        agent: str | None = ...,
        new: bool = ...,
    ) -> list[str]: ...
    def clear(self, session_id: str | None = ...) -> None: ...
    def entries(self, session_id: str | None = ...) -> list[ProviderEntry]: ...
    def stats(self, session_id: str = ...) -> dict[str, int] | None: ...

class BlockingSummarizingProvider:
    def turn(
        self,
        user: MessageLike | Sequence[MessageLike],
        session_id: str = ...,
        *,
        system: str | None = ...,
        limit: int | None = ...,
        query: str | None = ...,
        tags: Sequence[str] = ...,
        agent: str | None = ...,
        emit: Emit | None = ...,
    ) -> AbstractContextManager[Turn]: ...
    type: ClassVar[str]
    takes_new: ClassVar[bool]
    def __init__(
        self,
        memory: BlockingMemory,
        summarise: Summariser,
        *,
        namespace: str | None = ...,
        user: str | None = ...,
        active_tokens: int = ...,
        summary_tokens: int = ...,
        prompt: str = ...,
    ) -> None: ...
    def read(
        self,
        session_id: str = ...,
        *,
        limit: int | None = ...,
        query: str | None = ...,
        tags: Sequence[str] = ...,
    ) -> list[Message]: ...
    def write(
        self,
        messages: Messages,
        session_id: str = ...,
        *,
        tags: Sequence[str] = ...,
        agent: str | None = ...,
        new: bool = ...,
    ) -> list[str]: ...
    def clear(self, session_id: str | None = ...) -> None: ...
    def entries(self, session_id: str | None = ...) -> list[ProviderEntry]: ...
    def summary(self, session_id: str = ...) -> str | None: ...

class BlockingSemanticProvider:
    def turn(
        self,
        user: MessageLike | Sequence[MessageLike],
        session_id: str = ...,
        *,
        system: str | None = ...,
        limit: int | None = ...,
        query: str | None = ...,
        tags: Sequence[str] = ...,
        agent: str | None = ...,
        emit: Emit | None = ...,
    ) -> AbstractContextManager[Turn]: ...
    type: ClassVar[str]
    takes_new: ClassVar[bool]
    def __init__(
        self,
        memory: BlockingMemory,
        *,
        namespace: str | None = ...,
        user: str | None = ...,
        last: int = ...,
        found: int = ...,
    ) -> None: ...
    def read(
        self,
        session_id: str = ...,
        *,
        limit: int | None = ...,
        query: str | None = ...,
        tags: Sequence[str] = ...,
    ) -> list[Message]: ...
    def write(
        self,
        messages: Messages,
        session_id: str = ...,
        *,
        tags: Sequence[str] = ...,
        agent: str | None = ...,
        new: bool = ...,
    ) -> list[str]: ...
    def clear(self, session_id: str | None = ...) -> None: ...
    def entries(self, session_id: str | None = ...) -> list[ProviderEntry]: ...

class BlockingCompositeProvider:
    def turn(
        self,
        user: MessageLike | Sequence[MessageLike],
        session_id: str = ...,
        *,
        system: str | None = ...,
        limit: int | None = ...,
        query: str | None = ...,
        tags: Sequence[str] = ...,
        agent: str | None = ...,
        emit: Emit | None = ...,
    ) -> AbstractContextManager[Turn]: ...
    type: ClassVar[str]
    takes_new: ClassVar[bool]
    def __init__(self, parts: Sequence[Any], *, read: Literal["first-hit", "merge"] = ...) -> None: ...
    def read(
        self,
        session_id: str = ...,
        *,
        limit: int | None = ...,
        query: str | None = ...,
        tags: Sequence[str] = ...,
    ) -> list[Message]: ...
    def write(
        self,
        messages: Messages,
        session_id: str = ...,
        *,
        tags: Sequence[str] = ...,
        agent: str | None = ...,
        new: bool = ...,
    ) -> list[str]: ...
    def clear(self, session_id: str | None = ...) -> None: ...
    def entries(self, session_id: str | None = ...) -> list[ProviderEntry]: ...

class BlockingMemoryManager:
    def __init__(
        self,
        stores: Sequence[NamedStore],
        *,
        search_tool: bool | SearchTool = ...,
        add_tool: bool | AddTool = ...,
        injection: bool | Injection = ...,
        memory: BlockingMemory | None = ...,
        model: Model | None = ...,
        attributes: Mapping[str, str] | None = ...,
        provenance: Provenance = ...,
        write_gate: StoreWriteGate | None = ...,
        recall_gate: StoreRecallGate | None = ...,
        detect_conflicts: bool = ...,
        resolve: Resolver | None = ...,
    ) -> None: ...
    @property
    def stores(self) -> list[NamedStore]: ...
    @property
    def injection(self) -> Injection | None: ...
    def open(self) -> None: ...
    def close(self, *, within: timedelta = ...) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def search(
        self, query: str, *, stores: Sequence[str] | None = ..., limit: int | None = ...
    ) -> list[StoreEntry]: ...
    def add(
        self,
        content: str,
        metadata: Metadata | None = ...,
        *,
        stores: Sequence[str] | None = ...,
        provenance: Provenance | None = ...,
    ) -> dict[str, ConflictReport]: ...
    def flush(self) -> None: ...
    def record(
        self,
        session: BlockingSession | None = ...,
        *,
        run_id: str | None = ...,
        user: str | None = ...,
        model: Model | None = ...,
    ) -> BlockingRecording: ...
    def resume(self) -> int: ...
    @property
    def tools(self) -> list[BlockingTool]: ...
    def schemas(self, format: ToolFormat = ...) -> list[dict[str, Any]]: ...
    def dispatch(
        self, name: str, arguments: Mapping[str, Any] | None = ..., *, provenance: Provenance | None = ...
    ) -> Any: ...
    def inject(self, messages: Sequence[Any]) -> list[Any]: ...

class BlockingTool:
    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]
    def __call__(self, **arguments: Any) -> Any: ...
    def schema(self, format: ToolFormat = ...) -> dict[str, Any]: ...

class BlockingRecording:
    def __init__(
        self,
        context: dict[str, Any],
        spool: Spool,
        attachments: Sequence[Attachment],
        *,
        behind: Callable[[Coroutine[Any, Any, None]], None],
        leaves: Callable[[], None],
        lets_go: Callable[[timedelta], Awaitable[bool]],
    ) -> None: ...
    @property
    def run_id(self) -> str: ...
    def take(self, model: Model | None) -> None: ...
    def add(self, message: MessageLike | Sequence[MessageLike]) -> None: ...
    def turn_ended(self) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> bool: ...
