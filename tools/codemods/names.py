"""What was renamed before 0.1.0.

A full path is the old one, as users of the unreleased version wrote it: modules that
moved since are in `moves.py`.
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
    "memory.adapters.mongo.batch.Turns": "KeyLocks",
    "memory.adapters.qdrant.engine.Condition": "QdrantCondition",
    "memory.adapters.qdrant.turns.Turns": "KeyLocks",
    "memory.adapters.redis.forms.Forms": "PartitionIndexes",
    "memory.adapters.sql.conditions.Condition": "SqlCondition",
    "memory.domain.rolled_back.Undone": "RevertedEntry",
    "memory.domain.shapes.tools.Shape": "ToolFormat",
    "memory.facade.artifacts.Which": "ArtifactRef",
    "memory.facade.backups.Restored": "RestoreReport",
    "memory.facade.blocking.BlockingNumbers": "BlockingShortIds",
    "memory.facade.importing.Imported": "ImportReport",
    "memory.facade.importing.Told": "Progress",
    "memory.facade.numbers.Numbers": "ShortIds",
    "memory.facade.reports.Copy": "CopyLocation",
    "memory.facade.reports.Vacuumed": "VacuumReport",
    "memory.facade.said.CarriedIn": "ChatImport",
    "memory.facade.session.Given": "MessageLike",
    "memory.facade.written.HowWritten": "WriteMode",
    "memory.facade.written.OnConflict": "IfExists",
    "memory.orchestrator.births.Births": "EntryWriter",
    "memory.orchestrator.births.Newborn": "PendingEntry",
    "memory.orchestrator.checking.Checking": "ConflictDetector",
    "memory.orchestrator.checking.Decide": "Resolver",
    "memory.orchestrator.checking.Decider": "AsyncResolver",
    "memory.orchestrator.conversations.candidates.Heard": "MessageQuery",
    "memory.orchestrator.conversations.history.HistoryAsked": "HistoryQuery",
    "memory.orchestrator.conversations.onward.Left": "WindowExitResult",
    "memory.orchestrator.conversations.onward.Onward": "WindowExitHandler",
    "memory.orchestrator.conversations.reading.Asked": "WindowExtent",
    "memory.orchestrator.conversations.streaming.Streamed": "StreamedMessage",
    "memory.orchestrator.conversations.taught.Taught": "DerivedEntries",
    "memory.orchestrator.dangling.Dangling": "OrphanCollector",
    "memory.orchestrator.distrusts.Distrusts": "BlockedSources",
    "memory.orchestrator.endings.EndWaits": "SessionEndDeferred",
    "memory.orchestrator.endings.Ending": "PendingSessionEnd",
    "memory.orchestrator.endings.Endings": "SessionClosing",
    "memory.orchestrator.enriching.Enriching": "Enricher",
    "memory.orchestrator.foreseen.Foreseen": "DryRunState",
    "memory.orchestrator.foreseen_moves.ForeseenMoves": "DryRunMoves",
    "memory.orchestrator.foreseen_quotas.ForeseenQuotas": "DryRunQuotas",
    "memory.orchestrator.healing.Compared": "StoreComparison",
    "memory.orchestrator.healing.Healing": "StoreRepair",
    "memory.orchestrator.healing.Lost": "LostWrite",
    "memory.orchestrator.healing.Told": "Progress",
    "memory.orchestrator.judging.Judged": "RuleMatch",
    "memory.orchestrator.judging.Judging": "RuleEvaluator",
    "memory.orchestrator.judging.Missed": "EvaluationGaps",
    "memory.orchestrator.lives.Birth": "PreparedPut",
    "memory.orchestrator.lives.Lives": "IdReuse",
    "memory.orchestrator.meaning.Meaning": "Embeddings",
    "memory.orchestrator.numbers.Numbers": "ShortIds",
    "memory.orchestrator.numbers.Referent": "NumberedItem",
    "memory.orchestrator.outbox.Pending": "OutboxRecord",
    "memory.orchestrator.outbox.Problem": "StepFailure",
    "memory.orchestrator.outbox.Until": "StepLifetime",
    "memory.orchestrator.passages.Form": "PassageSpec",
    "memory.orchestrator.passages.Making": "PassageBuilder",
    "memory.orchestrator.planned.Forecaster": "PlanProvider",
    "memory.orchestrator.planned.Outlook": "Forecast",
    "memory.orchestrator.planned.Planner": "ForecastProvider",
    "memory.orchestrator.planned_due.PlannedDue": "DryRunDueWork",
    "memory.orchestrator.referrers.Referrers": "ArtifactReferences",
    "memory.orchestrator.reindexing.Reindexed": "ReindexReport",
    "memory.orchestrator.reindexing.Reindexing": "Reindexer",
    "memory.orchestrator.reindexing.Told": "Progress",
    "memory.orchestrator.remaking.Remaking": "VectorRebuild",
    "memory.orchestrator.retrieval.forms.Forms": "PartitionIndexes",
    "memory.orchestrator.rolling_back.Judged": "PlannedRevert",
    "memory.orchestrator.rolling_back.RollingBack": "SourceReverter",
    "memory.orchestrator.rolling_back.Wanted": "RevertRequest",
    "memory.orchestrator.setbacks.SetBack": "RolledBackStore",
    "memory.orchestrator.setbacks.Setbacks": "RollbackDetector",
    "memory.orchestrator.standings.Differs": "DifferenceKind",
    "memory.orchestrator.superseding.Superseding": "SupersedeWriter",
    "memory.orchestrator.turns.Patience": "RetryDeadline",
    "memory.orchestrator.turns.Turns": "KeyLocks",
    "memory.policies.asked.Asked": "EntryQuery",
    "memory.policies.onward.Onward": "WindowExitFunction",
    "memory.policies.reading.ContextAsked": "ContextRequest",
    "memory.ports.asking.Condition": "Predicate",
    "memory.ports.batch.Change": "ResolvedWrite",
    "memory.ports.batch.Desk": "WriteResolver",
    "memory.ports.query.Filter": "Condition",
    "memory.ports.scored.Form": "PartitionIndex",
}
"""Classes and types that `memory` does not export."""

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
