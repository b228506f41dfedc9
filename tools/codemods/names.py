"""What was renamed before 0.1.0.

A full path is the old one, as users of the unreleased version wrote it.
"""

from __future__ import annotations

PUBLIC = "memory"
"""The package that exports `CLASSES` too."""

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
    "memory.domain.rolled_back.RolledBack": "RevertReport",
    "memory.facade.wanted.Only": "SearchFilter",
    "memory.policies.compacting.CompactingSettings": "CompactionSettings",
    "memory.policies.conditions.Condition": "RuleCondition",
    "memory.policies.extracting.Extracted": "ExtractedFact",
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

INNER_CLASSES = {
    "memory.domain.errors.Portable": "PicklableException",
    "memory.domain.rolled_back.Undone": "RevertedEntry",
    "memory.domain.shapes.fields.Given": "MessageFields",
    "memory.domain.shapes.tools.Shape": "ToolFormat",
    "memory.domain.shown.Brief": "ShortRepr",
    "memory.domain.shown.Shown": "ResultMixin",
    "memory.domain.validation.Checked": "ValidatedModel",
    "memory.policies.asked.Asked": "EntryQuery",
    "memory.policies.compacting.Appended": "AppendResult",
    "memory.policies.compacting.Compacted": "CompactionResult",
    "memory.policies.enrichment.Said": "SupersedeReply",
    "memory.policies.injecting.Looked": "MessageTraits",
    "memory.policies.injecting.Named": "StoreHit",
    "memory.policies.named.Named": "NamedModel",
    "memory.policies.onward.Onward": "WindowExitFunction",
    "memory.policies.ranking.order.Ranked": "RankedPool",
    "memory.policies.ranking.score.Scored": "ScoredPool",
    "memory.policies.reading.ContextAsked": "ContextRequest",
    "memory.policies.retention.Retained": "RetentionDecision",
    "memory.policies.single_conditions.Single": "SingleCondition",
    "memory.policies.window.Arranged": "MessageArrangement",
    "memory.policies.window.Fitted": "WindowFit",
    "memory.ports.asking.Condition": "Predicate",
    "memory.ports.batch.Change": "ResolvedWrite",
    "memory.ports.batch.Collided": "WriteCollision",
    "memory.ports.batch.Desk": "WriteResolver",
    "memory.ports.batch.Held": "StoredRow",
    "memory.ports.batch.NotTogether": "BatchRollback",
    "memory.ports.batch.Reads": "ReadSet",
    "memory.ports.candidates.Around": "Neighbourhood",
    "memory.ports.candidates.Measured": "CandidateColumns",
    "memory.ports.contract.histories.Named": "ListPartitions",
    "memory.ports.contract.histories.Waiting": "ListDue",
    "memory.ports.due.Due": "DuePage",
    "memory.ports.due.Why": "DueReason",
    "memory.ports.formats.Noted": "FormatStore",
    "memory.ports.query.Filter": "Condition",
    "memory.ports.record.Owed": "PendingStep",
    "memory.ports.scored.Form": "PartitionIndex",
    "memory.ports.units.Units": "UnitVectors",
}
"""Classes and types that `memory` does not export, and that adapters may import."""

MODULES = {
    "memory.facade.wanted": "memory.facade.search_options",
    "memory.domain.checked": "memory.domain.conflicts",
    "memory.domain.distrust": "memory.domain.blocked_source",
    "memory.domain.door": "memory.domain.validation",
    "memory.domain.enriched": "memory.domain.enrichment",
    "memory.domain.hold": "memory.domain.legal_hold",
    "memory.domain.rolled_back": "memory.domain.revert_report",
    "memory.domain.shapes.calls": "memory.domain.shapes.tool_calls",
    "memory.domain.shapes.giving": "memory.domain.shapes.exporter",
    "memory.domain.shapes.ours": "memory.domain.shapes.native",
    "memory.domain.shapes.parts": "memory.domain.shapes.content_parts",
    "memory.domain.shapes.taking": "memory.domain.shapes.importer",
    "memory.domain.shown": "memory.domain.results",
    "memory.policies.advice": "memory.policies.advisor_prompts",
    "memory.policies.aligning": "memory.policies.message_alignment",
    "memory.policies.answering": "memory.policies.message_ranking",
    "memory.policies.asked": "memory.policies.entry_query",
    "memory.policies.asking": "memory.policies.question",
    "memory.policies.compacting": "memory.policies.list_compaction",
    "memory.policies.extracting": "memory.policies.extraction",
    "memory.policies.facts": "memory.policies.record_facts",
    "memory.policies.injecting": "memory.policies.injection",
    "memory.policies.marks": "memory.policies.text_features",
    "memory.policies.named": "memory.policies.named_model",
    "memory.policies.nearness": "memory.policies.near_duplicates",
    "memory.policies.onward": "memory.policies.window_exit",
    "memory.policies.pages": "memory.policies.browse_cursor",
    "memory.policies.passages": "memory.policies.passage_splitting",
    "memory.policies.ranking.calibrated": "memory.policies.ranking.calibration",
    "memory.policies.ranking.closeness": "memory.policies.ranking.proximity",
    "memory.policies.ranking.shown": "memory.policies.ranking.formatting",
    "memory.policies.ranking.unrelated": "memory.policies.ranking.unrelated_texts",
    "memory.policies.reading": "memory.policies.context",
    "memory.policies.thresholds": "memory.policies.compaction_thresholds",
    "memory.policies.weighing": "memory.policies.message_importance",
    "memory.ports.answering": "memory.ports.server_probe",
    "memory.ports.asking": "memory.ports.query_evaluation",
    "memory.ports.by_words": "memory.ports.lexical_scan",
    "memory.ports.checking": "memory.ports.record_validation",
    "memory.ports.comparing": "memory.ports.comparisons",
    "memory.ports.contract.judges": "memory.ports.contract.capability_tests",
    "memory.ports.contract.lending": "memory.ports.contract.store_reuse",
    "memory.ports.contract.names": "memory.ports.contract.hostile_names",
    "memory.ports.deciding": "memory.ports.write_decision",
    "memory.ports.forks": "memory.ports.fork_guard",
    "memory.ports.gathering": "memory.ports.candidate_scan",
    "memory.ports.local": "memory.ports.local_paths",
    "memory.ports.nearness": "memory.ports.vector_scan",
    "memory.ports.pace": "memory.ports.cooperative",
    "memory.ports.questions": "memory.ports.query_validation",
    "memory.ports.scanning": "memory.ports.full_scan",
    "memory.ports.scored": "memory.ports.partition_index",
    "memory.ports.scoring": "memory.ports.partition_candidates",
    "memory.ports.units": "memory.ports.unit_vectors",
}
"""Modules that moved."""

FUNCTIONS = {
    "memory.domain.enriched.STILL_OWED": "STILL_PENDING",
    "memory.domain.shapes.SHAPES": "FORMATS",
    "memory.domain.shapes.given_as": "export_messages",
    "memory.domain.shapes.langchain_messages": "export_langchain",
    "memory.domain.shapes.messages_of": "import_message",
    "memory.domain.shapes.messages_of_each": "import_messages",
    "memory.domain.shapes.system_of": "system_prompt",
    "memory.domain.shapes.tools.tool_as": "export_tool",
}
"""Functions and constants of modules."""

MEMBERS = {
    ".distrusted_at": ".blocked_at",
    ".distrusted_by": ".blocked_by",
    ".mend_tool_calls": ".repair_tool_calls",
    ".remember": ".write_with_report",
    ".set_back": ".rolled_back_stores",
    ".still_owed": ".pending_steps",
    "admin.distrust": "admin.block_source",
    "admin.distrusted": "admin.blocked_sources",
    "admin.hold": "admin.legal_holds.add",
    "admin.holds": "admin.legal_holds.list",
    "admin.release_hold": "admin.legal_holds.remove",
    "admin.roll_back": "admin.revert_source",
    "admin.trust": "admin.unblock_source",
    "checked.action": "conflict_report.action",
    "checked.found": "conflict_report.found",
    "checked.note": "conflict_report.note",
    "checked.superseded": "conflict_report.superseded",
    "end.onward": "end.derived",
    "enrichment.owed": "enrichment.pending",
    "entries.all": "entries.iterate",
    "entries.said_in": "entries.source_messages",
    "entry.checked": "entry.conflict_report",
    "memory.numbers": "memory.short_ids",
    "numbers.of": "short_ids.of",
    "numbers.resolve": "short_ids.resolve",
    "numbers.resolve_many": "short_ids.resolve_many",
    "report.onward": "report.derived",
}
"""Methods and attributes, each behind the name before it, where another library may have
the same one: `self.memory.admin.trust(…)` is `admin.trust`, and `session.end().onward`
is `end.onward`. Types are not known.
"""

_CHECKS = {"check": "detect_conflicts", "decide": "resolve"}
_WRITE = {"on_conflict": "if_exists", **_CHECKS}
_SEARCH = {"by": "mode", "only": "filter"}
_PROGRESS = {"told": "progress"}
_EXIT = {"onward": "on_window_exit"}
_FORMAT = {"shape": "format"}

ARGUMENTS = {
    ".add": _CHECKS,
    ".remember": _WRITE,
    ".schema": _FORMAT,
    ".schemas": _FORMAT,
    ".search": _SEARCH,
    ".search_messages": _SEARCH,
    ".write": _WRITE,
    "BlockingMemory": _EXIT,
    "BlockingMemoryManager": _CHECKS,
    "Memory": _EXIT,
    "MemoryManager": _CHECKS,
    "admin.compare": _PROGRESS,
    "admin.distrust": {"distrusted_by": "blocked_by"},
    "admin.import_": _PROGRESS,
    "admin.reindex": _PROGRESS,
    "entries.all": {"retired": "include_retired"},
}
"""Keyword arguments, by the old name of the method or class that takes them."""

VALUES = {
    "on_conflict": {"refuse": "error", "update": "replace"},
    "by": {"words": "lexical", "meaning": "semantic", "both": "hybrid"},
}
"""Texts that such an argument took, by its old name."""

DRAFT = ("content", _WRITE)
"""The arguments of a write as a dictionary, which has this key."""

GATHERED = {".search": ("boost", ("types", "tags", "conversation_id"))}
"""Keyword arguments that became the keys of one dictionary, by the method: the name of
that argument, and the keys.
"""
