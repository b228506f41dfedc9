"""Tiered memory for AI agents, on the stores that a team already runs.

The names here are the public API. Each is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from memory.domain.artifact import Artifact as Artifact
    from memory.domain.artifact import ArtifactPage as ArtifactPage
    from memory.domain.checked import ConflictReport as ConflictReport
    from memory.domain.checked import Resolution as Resolution
    from memory.domain.distrust import BlockedSource as BlockedSource
    from memory.domain.enriched import Enrichment as Enrichment
    from memory.domain.enriched import WriteReport as WriteReport
    from memory.domain.entry import Entry as Entry
    from memory.domain.entry import EntryDraft as EntryDraft
    from memory.domain.entry import EntryType as EntryType
    from memory.domain.errors import CompactionError as CompactionError
    from memory.domain.errors import ConfigError as ConfigError
    from memory.domain.errors import Conflict as Conflict
    from memory.domain.errors import CorruptRecord as CorruptRecord
    from memory.domain.errors import EmbedderMismatch as EmbedderMismatch
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
    from memory.domain.errors import ScratchpadFull as ScratchpadFull
    from memory.domain.errors import SessionOwnerMismatch as SessionOwnerMismatch
    from memory.domain.errors import StoreAddFailure as StoreAddFailure
    from memory.domain.errors import StoreError as StoreError
    from memory.domain.errors import StoreFull as StoreFull
    from memory.domain.errors import StoreTimeout as StoreTimeout
    from memory.domain.errors import StoreUnavailable as StoreUnavailable
    from memory.domain.errors import TooMuchContention as TooMuchContention
    from memory.domain.errors import Unsupported as Unsupported
    from memory.domain.errors import WrongArguments as WrongArguments
    from memory.domain.errors import WrongEventLoop as WrongEventLoop
    from memory.domain.hold import LegalHold as LegalHold
    from memory.domain.message import Message as Message
    from memory.domain.message import ToolCall as ToolCall
    from memory.domain.provenance import Provenance as Provenance
    from memory.domain.rolled_back import RevertReport as RevertReport
    from memory.domain.scope import Scope as Scope
    from memory.domain.scope import ScopeKind as ScopeKind
    from memory.domain.session import FoundMessage as FoundMessage
    from memory.facade.blocking import BlockingBufferProvider as BlockingBufferProvider
    from memory.facade.blocking import BlockingCompositeProvider as BlockingCompositeProvider
    from memory.facade.blocking import BlockingMemory as BlockingMemory
    from memory.facade.blocking import BlockingMemoryManager as BlockingMemoryManager
    from memory.facade.blocking import BlockingScopedMemory as BlockingScopedMemory
    from memory.facade.blocking import BlockingSemanticProvider as BlockingSemanticProvider
    from memory.facade.blocking import BlockingSlidingWindowProvider as BlockingSlidingWindowProvider
    from memory.facade.blocking import BlockingSummarizingProvider as BlockingSummarizingProvider
    from memory.facade.config import MemoryConfig as MemoryConfig
    from memory.facade.manager import AddTool as AddTool
    from memory.facade.manager import Extraction as Extraction
    from memory.facade.manager import Injection as Injection
    from memory.facade.manager import JsonStore as JsonStore
    from memory.facade.manager import MarkdownStore as MarkdownStore
    from memory.facade.manager import MemoryManager as MemoryManager
    from memory.facade.manager import MemoryStore as MemoryStore
    from memory.facade.manager import ModelExtractor as ModelExtractor
    from memory.facade.manager import NamedStore as NamedStore
    from memory.facade.manager import Recording as Recording
    from memory.facade.manager import SearchTool as SearchTool
    from memory.facade.manager import StoreEntry as StoreEntry
    from memory.facade.manager import Tool as Tool
    from memory.facade.memory import Memory as Memory
    from memory.facade.providers import BufferProvider as BufferProvider
    from memory.facade.providers import CompositeProvider as CompositeProvider
    from memory.facade.providers import Provider as Provider
    from memory.facade.providers import SemanticProvider as SemanticProvider
    from memory.facade.providers import SlidingWindowProvider as SlidingWindowProvider
    from memory.facade.providers import SummarizingProvider as SummarizingProvider
    from memory.facade.session import Session as Session
    from memory.facade.view import ScopedMemory as ScopedMemory
    from memory.facade.wanted import SearchBoost as SearchBoost
    from memory.facade.wanted import SearchFilter as SearchFilter
    from memory.orchestrator.retrieval.search import FoundEntry as FoundEntry
    from memory.orchestrator.retrieval.search import MixedResult as MixedResult
    from memory.orchestrator.retrieval.search import SearchResult as SearchResult
    from memory.policies.compacting import CompactionSettings as CompactionSettings
    from memory.policies.conditions import RuleCondition as RuleCondition
    from memory.policies.extracting import EveryNTurns as EveryNTurns
    from memory.policies.extracting import EveryTurn as EveryTurn
    from memory.policies.extracting import ExtractedFact as ExtractedFact
    from memory.policies.extracting import MessageFilter as MessageFilter
    from memory.policies.facts import RecordFacts as RecordFacts
    from memory.policies.onward import ExitedMessages as ExitedMessages
    from memory.policies.promotion import Decision as Decision
    from memory.policies.promotion import Policy as Policy
    from memory.policies.promotion import PromotionRule as PromotionRule
    from memory.policies.quotas import Quota as Quota
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
    from memory.policies.thresholds import MessageThreshold as MessageThreshold
    from memory.policies.thresholds import TurnThreshold as TurnThreshold
    from memory.policies.window import TokenThreshold as TokenThreshold

_HOMES = {
    "memory.domain.artifact": ("Artifact", "ArtifactPage"),
    "memory.domain.checked": ("ConflictReport", "Resolution"),
    "memory.domain.distrust": ("BlockedSource",),
    "memory.domain.enriched": ("Enrichment", "WriteReport"),
    "memory.domain.entry": ("Entry", "EntryDraft", "EntryType"),
    "memory.domain.errors": (
        "StoreAddFailure",
        "CompactionError",
        "ConfigError",
        "Conflict",
        "TooMuchContention",
        "CorruptRecord",
        "EmbedderMismatch",
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
        "ScratchpadFull",
        "SessionOwnerMismatch",
        "StoreError",
        "StoreFull",
        "StoreTimeout",
        "StoreUnavailable",
        "Unsupported",
        "WrongArguments",
        "WrongEventLoop",
    ),
    "memory.domain.hold": ("LegalHold",),
    "memory.domain.message": ("Message", "ToolCall"),
    "memory.domain.provenance": ("Provenance",),
    "memory.domain.rolled_back": ("RevertReport",),
    "memory.domain.scope": ("Scope", "ScopeKind"),
    "memory.domain.session": ("FoundMessage",),
    "memory.facade.manager": (
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
        "StoreEntry",
        "Tool",
    ),
    "memory.policies.extracting": ("EveryNTurns", "EveryTurn", "ExtractedFact", "MessageFilter"),
    "memory.facade.memory": ("Memory",),
    "memory.facade.blocking": (
        "BlockingBufferProvider",
        "BlockingCompositeProvider",
        "BlockingMemory",
        "BlockingMemoryManager",
        "BlockingScopedMemory",
        "BlockingSemanticProvider",
        "BlockingSlidingWindowProvider",
        "BlockingSummarizingProvider",
    ),
    "memory.facade.config": ("MemoryConfig",),
    "memory.facade.providers": (
        "BufferProvider",
        "CompositeProvider",
        "Provider",
        "SemanticProvider",
        "SlidingWindowProvider",
        "SummarizingProvider",
    ),
    "memory.facade.session": ("Session",),
    "memory.facade.view": ("ScopedMemory",),
    "memory.facade.wanted": ("SearchBoost", "SearchFilter"),
    "memory.orchestrator.retrieval.search": ("FoundEntry", "MixedResult", "SearchResult"),
    "memory.policies.onward": ("ExitedMessages",),
    "memory.policies.compacting": ("CompactionSettings",),
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
    "memory.policies.facts": ("RecordFacts",),
    "memory.policies.thresholds": ("MessageThreshold", "TurnThreshold"),
    "memory.policies.window": ("TokenThreshold",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AccessCountAtLeast",
    "AddTool",
    "Artifact",
    "ArtifactPage",
    "BlockedSource",
    "BlockingBufferProvider",
    "BlockingCompositeProvider",
    "BlockingMemory",
    "BlockingMemoryManager",
    "BlockingScopedMemory",
    "BlockingSemanticProvider",
    "BlockingSlidingWindowProvider",
    "BlockingSummarizingProvider",
    "BufferProvider",
    "CompactionError",
    "CompactionSettings",
    "CompositeProvider",
    "ConfidenceAtLeast",
    "ConfigError",
    "Conflict",
    "ConflictReport",
    "CorruptRecord",
    "Decision",
    "EmbedderMismatch",
    "Enrichment",
    "Entry",
    "EntryDraft",
    "EntryType",
    "EveryNTurns",
    "EveryTurn",
    "ExitedMessages",
    "ExtractedFact",
    "Extraction",
    "ForkedProcess",
    "FormatMismatch",
    "FoundEntry",
    "FoundMessage",
    "HasTag",
    "IdleFor",
    "Injection",
    "InvalidInput",
    "InvalidScopePromotion",
    "JsonStore",
    "LegalHold",
    "LegalHoldActive",
    "MarkdownStore",
    "Memory",
    "MemoryConfig",
    "MemoryManager",
    "MemoryStore",
    "MemoryTiersError",
    "Message",
    "MessageFilter",
    "MessageThreshold",
    "MixedResult",
    "ModelExtractor",
    "NamedStore",
    "NotFound",
    "NotOpen",
    "OlderThan",
    "PartialWrite",
    "Policy",
    "PromotionRule",
    "Provenance",
    "Provider",
    "ProviderFailure",
    "Quota",
    "QuotaExceeded",
    "RecordFacts",
    "Recording",
    "RejectedByGate",
    "Resolution",
    "RetentionRule",
    "RevertReport",
    "RuleCondition",
    "Scope",
    "ScopeExceeds",
    "ScopeKind",
    "ScopeKindIs",
    "ScopedMemory",
    "ScratchpadFull",
    "SearchBoost",
    "SearchFilter",
    "SearchResult",
    "SearchTool",
    "SemanticProvider",
    "Session",
    "SessionOwnerMismatch",
    "SlidingWindowProvider",
    "StoreAddFailure",
    "StoreEntry",
    "StoreError",
    "StoreFull",
    "StoreTimeout",
    "StoreUnavailable",
    "SummarizingProvider",
    "TenantIs",
    "TierIs",
    "TokenThreshold",
    "TooMuchContention",
    "Tool",
    "ToolCall",
    "TurnThreshold",
    "TypeIs",
    "Unsupported",
    "WriteReport",
    "WrongArguments",
    "WrongEventLoop",
    "__version__",
]

if not TYPE_CHECKING:  # a type checker would take it for leave to ask for any name

    def __getattr__(name):
        if name not in _HOME_OF:
            if name.startswith("_"):
                raise AttributeError(f"module 'memory' has no attribute '{name}'")
            from memory.domain.corrections import unknown_export

            raise AttributeError(unknown_export(name, __all__))
        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
