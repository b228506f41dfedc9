"""What was renamed: the full path of each class, and its new name."""

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
    "memory.policies.extracting.Extracted": "ExtractedFact",
    "memory.policies.facts.Facts": "RecordFacts",
    "memory.policies.onward.Leaving": "ExitedMessages",
    "memory.policies.onward.Onward": "WindowExitFunction",
    "memory.policies.single_conditions.InTier": "TierIs",
    "memory.policies.single_conditions.OfScopeKind": "ScopeKindIs",
    "memory.policies.single_conditions.OfTenant": "TenantIs",
    "memory.policies.single_conditions.OfType": "TypeIs",
    "memory.policies.single_conditions.ReadAtLeast": "AccessCountAtLeast",
    "memory.policies.single_conditions.ScopeOver": "ScopeExceeds",
    "memory.policies.single_conditions.Tagged": "HasTag",
    "memory.policies.window.Threshold": "TokenThreshold",
}

CONVERSATION_FUNCTIONS = {
    "memory.domain.shapes.given_as": "export_messages",
    "memory.domain.shapes.langchain_messages": "export_langchain",
    "memory.domain.shapes.messages_of": "import_message",
    "memory.domain.shapes.messages_of_each": "import_messages",
    "memory.domain.shapes.system_of": "system_prompt",
}

FUNCTIONS: dict[str, str] = {**CONVERSATION_FUNCTIONS}
"""Functions of modules. Documents call them by their new names already."""

CONVERSATION_KEYWORDS = {
    "memory.facade.memory.Memory": {"onward": "on_window_exit"},
    "memory.facade.blocking.BlockingMemory": {"onward": "on_window_exit"},
}

KEYWORDS: dict[str, dict[str, str]] = {**CONVERSATION_KEYWORDS}
"""Arguments of classes and functions, by the full path of what is called."""

CONVERSATION_MEMBERS = {"mend_tool_calls": "repair_tool_calls"}

MEMBERS: dict[str, str] = {**CONVERSATION_MEMBERS}
"""Attributes and methods. Only names that no other library has: their owner is unknown."""
