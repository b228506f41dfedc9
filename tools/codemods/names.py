"""What was renamed: classes by their full path, methods and arguments by their names."""

from __future__ import annotations

PUBLIC = "memory"
"""The package whose `__init__` exports them too."""

CLASSES = {
    "memory.domain.checked.Verdict": "Resolution",
    "memory.domain.distrust.Distrust": "BlockedSource",
    "memory.domain.enriched.Written": "WriteReport",
    "memory.domain.errors.AddFailed": "StoreAddFailure",
    "memory.domain.errors.Contended": "TooMuchContention",
    "memory.domain.errors.Held": "LegalHoldActive",
    "memory.domain.errors.PartsFailed": "ProviderFailure",
    "memory.domain.errors.Refused": "RejectedByGate",
    "memory.policies.compacting.CompactingSettings": "CompactionSettings",
    "memory.policies.conditions.Condition": "RuleCondition",
    "memory.policies.facts.Facts": "RecordFacts",
    "memory.policies.onward.Leaving": "ExitedMessages",
    "memory.policies.single_conditions.InTier": "TierIs",
    "memory.policies.single_conditions.OfScopeKind": "ScopeKindIs",
    "memory.policies.single_conditions.OfTenant": "TenantIs",
    "memory.policies.single_conditions.OfType": "TypeIs",
    "memory.policies.single_conditions.ReadAtLeast": "AccessCountAtLeast",
    "memory.policies.single_conditions.ScopeOver": "ScopeExceeds",
    "memory.policies.single_conditions.Tagged": "HasTag",
    "memory.policies.window.Threshold": "TokenThreshold",
}

SEARCHING_CLASSES = {
    "memory.adapters.qdrant.engine.Condition": "QdrantCondition",
    "memory.adapters.sql.conditions.Condition": "SqlCondition",
    "memory.Only": "SearchFilter",  # here and not above: in documents it is a word
    "memory.adapters.redis.forms.Forms": "PartitionIndexes",
    "memory.facade.wanted.Only": "SearchFilter",
    "memory.orchestrator.conversations.candidates.Heard": "MessageQuery",
    "memory.orchestrator.conversations.history.HistoryAsked": "HistoryQuery",
    "memory.orchestrator.conversations.reading.Asked": "WindowExtent",
    "memory.orchestrator.meaning.Meaning": "Embeddings",
    "memory.orchestrator.passages.Form": "PassageSpec",
    "memory.orchestrator.passages.Making": "PassageBuilder",
    "memory.orchestrator.retrieval.forms.Forms": "PartitionIndexes",
    "memory.orchestrator.rolling_back.Wanted": "RevertRequest",
    "memory.policies.asked.Asked": "EntryQuery",
    "memory.policies.reading.ContextAsked": "ContextRequest",
    "memory.ports.asking.Condition": "Predicate",
    "memory.ports.query.Filter": "Condition",
    "memory.ports.scored.Form": "PartitionIndex",
}

INNER_CLASSES: dict[str, str] = {**SEARCHING_CLASSES}
"""Classes that `memory` does not export. Documents keep these names: a word there may
mean something else.
"""

METHODS = {"remember": "write_with_report"}
"""Methods, renamed where they are called in a source that imports `memory`."""

_WRITE = {"on_conflict": "if_exists", "check": "detect_conflicts", "decide": "resolve"}
_CHECKS = {"check": "detect_conflicts", "decide": "resolve"}

_SEARCH = {"by": "mode", "only": "filter"}

ARGUMENTS = {
    "write": _WRITE,
    "write_with_report": _WRITE,
    "add": _CHECKS,
    "MemoryManager": _CHECKS,
    "search": _SEARCH,
    "search_messages": _SEARCH,
}
"""Keyword arguments by the method or class that takes them, under its new name."""

VALUES = {
    "if_exists": {"refuse": "error", "update": "replace"},
    "mode": {"words": "lexical", "meaning": "semantic", "both": "hybrid"},
}
"""Texts that an argument took, by its new name."""

DRAFT = ("content", _WRITE)
"""The arguments of a write as a dictionary, which has this key."""

GATHERED = {"search": ("boost", ("types", "tags", "conversation_id"))}
"""Keyword arguments that became the keys of one dictionary, by the method: the name of
that argument, and the keys.
"""
