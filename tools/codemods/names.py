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
    "memory.domain.rolled_back.RolledBack": "RevertReport",
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

ADMIN_CLASSES = {
    "memory.domain.rolled_back.Undone": "RevertedEntry",
    "memory.facade.backups.Restored": "RestoreReport",
    "memory.facade.importing.Imported": "ImportReport",
    "memory.facade.importing.Told": "Progress",
    "memory.facade.numbers.Numbers": "ShortIds",
    "memory.facade.reports.Copy": "CopyLocation",
    "memory.facade.reports.Vacuumed": "VacuumReport",
    "memory.orchestrator.dangling.Dangling": "OrphanCollector",
    "memory.orchestrator.distrusts.Distrusts": "BlockedSources",
    "memory.orchestrator.healing.Compared": "StoreComparison",
    "memory.orchestrator.healing.Healing": "StoreRepair",
    "memory.orchestrator.healing.Lost": "LostWrite",
    "memory.orchestrator.healing.Told": "Progress",
    "memory.orchestrator.numbers.Numbers": "ShortIds",
    "memory.orchestrator.numbers.Referent": "NumberedItem",
    "memory.orchestrator.referrers.Referrers": "ArtifactReferences",
    "memory.orchestrator.reindexing.Reindexed": "ReindexReport",
    "memory.orchestrator.reindexing.Reindexing": "Reindexer",
    "memory.orchestrator.reindexing.Told": "Progress",
    "memory.orchestrator.remaking.Remaking": "VectorRebuild",
    "memory.orchestrator.rolling_back.RollingBack": "SourceReverter",
    "memory.orchestrator.setbacks.SetBack": "RolledBackStore",
    "memory.orchestrator.setbacks.Setbacks": "RollbackDetector",
    "memory.orchestrator.standings.Differs": "DifferenceKind",
}

INNER_CLASSES: dict[str, str] = {**ADMIN_CLASSES}
"""Classes that `memory` does not export. Documents keep these names: a word there may
mean something else.
"""

ADMIN_MEMBERS = {
    "admin.distrust": "admin.block_source",
    "admin.trust": "admin.unblock_source",
    "admin.distrusted": "admin.blocked_sources",
    "admin.roll_back": "admin.revert_source",
    "admin.hold": "admin.legal_holds.add",
    "admin.release_hold": "admin.legal_holds.remove",
    "admin.holds": "admin.legal_holds.list",
    "admin.set_back": "admin.rolled_back_stores",
    "memory.numbers": "memory.short_ids",
    "entries.all": "entries.iterate",
    "entries.said_in": "entries.source_messages",
}

MEMBERS: dict[str, str] = {**ADMIN_MEMBERS}
"""Members of the facade, each behind the name before it: `memory.admin.trust` and
`self.memory.admin.trust` are `admin.trust`.
"""

ADMIN_KEYWORDS = {
    "admin.distrust": {"distrusted_by": "blocked_by"},
    "admin.compare": {"told": "progress"},
    "admin.import_": {"told": "progress"},
    "admin.reindex": {"told": "progress"},
    "entries.all": {"retired": "include_retired"},
}

KEYWORDS: dict[str, dict[str, str]] = {**ADMIN_KEYWORDS}
"""Arguments of calls of such members, by the member's old name."""
