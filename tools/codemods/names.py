"""What was renamed: classes by their full path, methods and arguments by their names."""

from __future__ import annotations

PUBLIC = "memory"
"""The package whose `__init__` exports them too."""

CLASSES = {
    "memory.domain.checked.Checked": "ConflictReport",
    "memory.domain.checked.Verdict": "Resolution",
    "memory.domain.distrust.Distrust": "BlockedSource",
    "memory.domain.enriched.Written": "WriteReport",
    "memory.domain.errors.AddFailed": "StoreAddFailure",
    "memory.domain.errors.Contended": "TooMuchContention",
    "memory.domain.errors.Held": "LegalHoldActive",
    "memory.domain.errors.PartsFailed": "ProviderFailure",
    "memory.domain.errors.Refused": "RejectedByGate",
    "memory.policies.compacting.CompactingSettings": "CompactionSettings",
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

WRITING_CLASSES = {
    "memory.facade.written.HowWritten": "WriteMode",
    "memory.facade.written.OnConflict": "IfExists",
    "memory.orchestrator.births.Births": "EntryWriter",
    "memory.orchestrator.births.Newborn": "PendingEntry",
    "memory.orchestrator.checking.Checking": "ConflictDetector",
    "memory.orchestrator.checking.Decide": "Resolver",
    "memory.orchestrator.checking.Decider": "AsyncResolver",
    "memory.orchestrator.enriching.Enriching": "Enricher",
    "memory.orchestrator.lives.Birth": "PreparedPut",
    "memory.orchestrator.lives.Lives": "IdReuse",
    "memory.orchestrator.admission.Newcomer": "NewEntry",
    "memory.orchestrator.superseding.Superseding": "SupersedeWriter",
    "memory.ports.batch.Change": "ResolvedWrite",
    "memory.ports.batch.Desk": "WriteResolver",
}

INNER_CLASSES: dict[str, str] = {**WRITING_CLASSES}
"""Classes that `memory` does not export. Documents keep these names: a word there may
mean something else.
"""

METHODS = {"remember": "write_with_report"}
"""Methods, renamed where they are called in a source that imports `memory`."""

_WRITE = {"on_conflict": "if_exists", "check": "detect_conflicts", "decide": "resolve"}
_CHECKS = {"check": "detect_conflicts", "decide": "resolve"}

ARGUMENTS = {"write": _WRITE, "write_with_report": _WRITE, "add": _CHECKS, "MemoryManager": _CHECKS}
"""Keyword arguments by the method or class that takes them, under its new name."""

VALUES = {"if_exists": {"refuse": "error", "update": "replace"}}
"""Texts that an argument took, by its new name."""

DRAFT = ("content", _WRITE)
"""The arguments of a write as a dictionary, which has this key."""
