"""Tiered memory for AI agents, on the stores that a team already runs.

The names here are the public API. Each is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from memory.agents.manager import AddTool as AddTool
    from memory.agents.manager import Extraction as Extraction
    from memory.agents.manager import Injection as Injection
    from memory.agents.manager import JsonStore as JsonStore
    from memory.agents.manager import MarkdownStore as MarkdownStore
    from memory.agents.manager import MemoryManager as MemoryManager
    from memory.agents.manager import MemoryStore as MemoryStore
    from memory.agents.manager import ModelExtractor as ModelExtractor
    from memory.agents.manager import NamedStore as NamedStore
    from memory.agents.manager import Recording as Recording
    from memory.agents.manager import SearchTool as SearchTool
    from memory.agents.manager import Tool as Tool
    from memory.agents.providers import BufferProvider as BufferProvider
    from memory.agents.providers import CompositeProvider as CompositeProvider
    from memory.agents.providers import Provider as Provider
    from memory.agents.providers import SemanticProvider as SemanticProvider
    from memory.agents.providers import SlidingWindowProvider as SlidingWindowProvider
    from memory.agents.providers import SummarizingProvider as SummarizingProvider
    from memory.domain.agent_results import StoreEntry as StoreEntry
    from memory.domain.artifact import Artifact as Artifact
    from memory.domain.artifact import ArtifactPage as ArtifactPage
    from memory.domain.blocked_source import BlockedSource as BlockedSource
    from memory.domain.conflicts import ConflictReport as ConflictReport
    from memory.domain.conflicts import Resolution as Resolution
    from memory.domain.document import Document as Document
    from memory.domain.document import DocumentDelete as DocumentDelete
    from memory.domain.document import DocumentInfo as DocumentInfo
    from memory.domain.document import DocumentPage as DocumentPage
    from memory.domain.document import DocumentPut as DocumentPut
    from memory.domain.enrichment import Enrichment as Enrichment
    from memory.domain.enrichment import WriteReport as WriteReport
    from memory.domain.entry import Entry as Entry
    from memory.domain.entry import EntryDraft as EntryDraft
    from memory.domain.entry import EntryType as EntryType
    from memory.domain.errors import CompactionError as CompactionError
    from memory.domain.errors import ConfigError as ConfigError
    from memory.domain.errors import Conflict as Conflict
    from memory.domain.errors import CorruptRecord as CorruptRecord
    from memory.domain.errors import EmbedderMismatch as EmbedderMismatch
    from memory.domain.errors import EmbedderTimeout as EmbedderTimeout
    from memory.domain.errors import Forbidden as Forbidden
    from memory.domain.errors import ForkedProcess as ForkedProcess
    from memory.domain.errors import FormatMismatch as FormatMismatch
    from memory.domain.errors import InvalidInput as InvalidInput
    from memory.domain.errors import InvalidScopePromotion as InvalidScopePromotion
    from memory.domain.errors import LegalHoldActive as LegalHoldActive
    from memory.domain.errors import MemoryTiersError as MemoryTiersError
    from memory.domain.errors import NotFound as NotFound
    from memory.domain.errors import NotOpen as NotOpen
    from memory.domain.errors import PartialWrite as PartialWrite
    from memory.domain.errors import ProviderFailure as ProviderFailure
    from memory.domain.errors import QuotaExceeded as QuotaExceeded
    from memory.domain.errors import RejectedByGate as RejectedByGate
    from memory.domain.errors import RequestIdReused as RequestIdReused
    from memory.domain.errors import ScratchpadFull as ScratchpadFull
    from memory.domain.errors import SessionOwnerMismatch as SessionOwnerMismatch
    from memory.domain.errors import StoreAddFailure as StoreAddFailure
    from memory.domain.errors import StoreError as StoreError
    from memory.domain.errors import StoreFull as StoreFull
    from memory.domain.errors import StoreTimeout as StoreTimeout
    from memory.domain.errors import StoreUnavailable as StoreUnavailable
    from memory.domain.errors import TooMuchContention as TooMuchContention
    from memory.domain.errors import Unsupported as Unsupported
    from memory.domain.errors import VersionConflict as VersionConflict
    from memory.domain.errors import WrongArguments as WrongArguments
    from memory.domain.errors import WrongEventLoop as WrongEventLoop
    from memory.domain.filters import Filter as Filter
    from memory.domain.legal_hold import LegalHold as LegalHold
    from memory.domain.message import Message as Message
    from memory.domain.message import ToolCall as ToolCall
    from memory.domain.provenance import Provenance as Provenance
    from memory.domain.revert_report import RevertReport as RevertReport
    from memory.domain.scope import Scope as Scope
    from memory.domain.scope import ScopeKind as ScopeKind
    from memory.domain.scope import Subtree as Subtree
    from memory.domain.scopes import ScopeInfo as ScopeInfo
    from memory.domain.scopes import ScopePage as ScopePage
    from memory.domain.search_results import FoundEntry as FoundEntry
    from memory.domain.search_results import MixedResult as MixedResult
    from memory.domain.search_results import SearchResult as SearchResult
    from memory.domain.session import FoundMessage as FoundMessage
    from memory.domain.session import SessionInfo as SessionInfo
    from memory.domain.versions import ABSENT as ABSENT
    from memory.facade.config.settings import MemoryConfig as MemoryConfig
    from memory.facade.memory import Memory as Memory
    from memory.facade.resources.session import Session as Session
    from memory.facade.scoped import ScopedMemory as ScopedMemory
    from memory.facade.search_options import SearchBoost as SearchBoost
    from memory.facade.search_options import SearchFilter as SearchFilter
    from memory.policies.compaction_thresholds import MessageThreshold as MessageThreshold
    from memory.policies.compaction_thresholds import TurnThreshold as TurnThreshold
    from memory.policies.conditions import RuleCondition as RuleCondition
    from memory.policies.extraction import EveryNTurns as EveryNTurns
    from memory.policies.extraction import EveryTurn as EveryTurn
    from memory.policies.extraction import ExtractedFact as ExtractedFact
    from memory.policies.extraction import MessageFilter as MessageFilter
    from memory.policies.list_compaction import CompactionSettings as CompactionSettings
    from memory.policies.promotion import Decision as Decision
    from memory.policies.promotion import Policy as Policy
    from memory.policies.promotion import PromotionRule as PromotionRule
    from memory.policies.quotas import Quota as Quota
    from memory.policies.ranking.fusion import fuse as fuse
    from memory.policies.record_facts import RecordFacts as RecordFacts
    from memory.policies.retention import RetentionRule as RetentionRule
    from memory.policies.single_conditions import AccessCountAtLeast as AccessCountAtLeast
    from memory.policies.single_conditions import ConfidenceAtLeast as ConfidenceAtLeast
    from memory.policies.single_conditions import HasTag as HasTag
    from memory.policies.single_conditions import IdleFor as IdleFor
    from memory.policies.single_conditions import OlderThan as OlderThan
    from memory.policies.single_conditions import ScopeExceeds as ScopeExceeds
    from memory.policies.single_conditions import ScopeKindIs as ScopeKindIs
    from memory.policies.single_conditions import TenantIs as TenantIs
    from memory.policies.single_conditions import TierIs as TierIs
    from memory.policies.single_conditions import TypeIs as TypeIs
    from memory.policies.window import TokenThreshold as TokenThreshold
    from memory.policies.window_exit import ExitedMessages as ExitedMessages
    from memory.sync.blocking import BlockingBufferProvider as BlockingBufferProvider
    from memory.sync.blocking import BlockingCompositeProvider as BlockingCompositeProvider
    from memory.sync.blocking import BlockingMemory as BlockingMemory
    from memory.sync.blocking import BlockingMemoryManager as BlockingMemoryManager
    from memory.sync.blocking import BlockingScopedMemory as BlockingScopedMemory
    from memory.sync.blocking import BlockingSemanticProvider as BlockingSemanticProvider
    from memory.sync.blocking import BlockingSlidingWindowProvider as BlockingSlidingWindowProvider
    from memory.sync.blocking import BlockingSummarizingProvider as BlockingSummarizingProvider

_HOMES = {
    "memory.domain.artifact": ("Artifact", "ArtifactPage"),
    "memory.domain.conflicts": ("ConflictReport", "Resolution"),
    "memory.domain.blocked_source": ("BlockedSource",),
    "memory.domain.document": (
        "Document",
        "DocumentDelete",
        "DocumentInfo",
        "DocumentPage",
        "DocumentPut",
    ),
    "memory.domain.enrichment": ("Enrichment", "WriteReport"),
    "memory.domain.entry": ("Entry", "EntryDraft", "EntryType"),
    "memory.domain.errors": (
        "StoreAddFailure",
        "CompactionError",
        "ConfigError",
        "Conflict",
        "TooMuchContention",
        "CorruptRecord",
        "EmbedderMismatch",
        "EmbedderTimeout",
        "Forbidden",
        "ForkedProcess",
        "FormatMismatch",
        "LegalHoldActive",
        "InvalidInput",
        "InvalidScopePromotion",
        "MemoryTiersError",
        "NotFound",
        "NotOpen",
        "PartialWrite",
        "ProviderFailure",
        "QuotaExceeded",
        "RejectedByGate",
        "RequestIdReused",
        "ScratchpadFull",
        "SessionOwnerMismatch",
        "StoreError",
        "StoreFull",
        "StoreTimeout",
        "StoreUnavailable",
        "Unsupported",
        "VersionConflict",
        "WrongArguments",
        "WrongEventLoop",
    ),
    "memory.domain.legal_hold": ("LegalHold",),
    "memory.domain.message": ("Message", "ToolCall"),
    "memory.domain.provenance": ("Provenance",),
    "memory.domain.revert_report": ("RevertReport",),
    "memory.domain.scope": ("Scope", "ScopeKind", "Subtree"),
    "memory.domain.scopes": ("ScopeInfo", "ScopePage"),
    "memory.domain.session": ("FoundMessage", "SessionInfo"),
    "memory.domain.versions": ("ABSENT",),
    "memory.agents.manager": (
        "AddTool",
        "Extraction",
        "Injection",
        "JsonStore",
        "MarkdownStore",
        "MemoryManager",
        "MemoryStore",
        "ModelExtractor",
        "NamedStore",
        "Recording",
        "SearchTool",
        "Tool",
    ),
    "memory.policies.extraction": ("EveryNTurns", "EveryTurn", "ExtractedFact", "MessageFilter"),
    "memory.facade.memory": ("Memory",),
    "memory.sync.blocking": (
        "BlockingBufferProvider",
        "BlockingCompositeProvider",
        "BlockingMemory",
        "BlockingMemoryManager",
        "BlockingScopedMemory",
        "BlockingSemanticProvider",
        "BlockingSlidingWindowProvider",
        "BlockingSummarizingProvider",
    ),
    "memory.facade.config.settings": ("MemoryConfig",),
    "memory.agents.providers": (
        "BufferProvider",
        "CompositeProvider",
        "Provider",
        "SemanticProvider",
        "SlidingWindowProvider",
        "SummarizingProvider",
    ),
    "memory.domain.filters": ("Filter",),
    "memory.facade.resources.session": ("Session",),
    "memory.facade.scoped": ("ScopedMemory",),
    "memory.facade.search_options": ("SearchBoost", "SearchFilter"),
    "memory.domain.agent_results": ("StoreEntry",),
    "memory.domain.search_results": ("FoundEntry", "MixedResult", "SearchResult"),
    "memory.policies.window_exit": ("ExitedMessages",),
    "memory.policies.list_compaction": ("CompactionSettings",),
    "memory.policies.single_conditions": (
        "ConfidenceAtLeast",
        "IdleFor",
        "TierIs",
        "ScopeKindIs",
        "TenantIs",
        "TypeIs",
        "OlderThan",
        "AccessCountAtLeast",
        "ScopeExceeds",
        "HasTag",
    ),
    "memory.policies.promotion": ("Decision", "Policy", "PromotionRule"),
    "memory.policies.quotas": ("Quota",),
    "memory.policies.retention": ("RetentionRule",),
    "memory.policies.conditions": ("RuleCondition",),
    "memory.policies.ranking.fusion": ("fuse",),
    "memory.policies.record_facts": ("RecordFacts",),
    "memory.policies.compaction_thresholds": ("MessageThreshold", "TurnThreshold"),
    "memory.policies.window": ("TokenThreshold",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:
    # A type checker would take `__getattr__` for leave to ask for any name. It reads no
    # computed `__all__`, so `import *` would have no name for it.
    __all__ = sorted([*_HOME_OF, "__version__"])

    def __getattr__(name):
        if name not in _HOME_OF:
            if name.startswith("_"):
                raise AttributeError(f"module 'memory' has no attribute '{name}'")
            from memory.domain.corrections import unknown_export

            raise AttributeError(unknown_export(name, __all__))
        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
