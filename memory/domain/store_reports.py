"""Reports on the stores: copies, counts, health, audits and backups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from memory.domain.maintenance_reports import RolledBackStore, StoreComparison
from memory.domain.results import ResultMixin


@dataclass(frozen=True, slots=True, repr=False)
class CopyLocation(ResultMixin):
    """A place where an entry has a copy with its role, a mark or a tombstone."""

    tier: str
    store: str
    role: str
    version: str


@dataclass(frozen=True, slots=True, repr=False)
class TierStats(ResultMixin):
    """The number of entries with their home in a tier, and their bytes.

    - `replicas`: copies that are kept in the tier for searches.
    - `pending_replicas`: entries whose replica in this tier is still to be delivered.
    - `queued`: those of them that this process is about to deliver.
    - `behind_seconds`: how long the oldest of these has waited.

    The other pending entries wait for the process that wrote them, or for a sweep.
    """

    tier: str
    store: str
    entries: int
    bytes: int
    replicas: int
    pending_replicas: int = 0
    queued: int = 0
    behind_seconds: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Stats(ResultMixin):
    """One tenant's numbers, including expired and retired entries.

    - `pending_steps`: records with pending steps, of every tenant.
    - `stuck`: steps and moves that failed when this process last tried, with reasons.
    - `degraded`: stores that did not answer and are not counted.
    - `evicted`: entries that this process has evicted, by quota.
    - `rolled_back_stores`: stores that were rolled back alone and are not repaired.
    - `quarantined`: damaged records that were found, by store, until they are deleted;
      of every tenant. `memory doctor --audit` looks for others.
    - `documents` and `document_bytes`: documents and their bytes, as the store counts
      them.
    """

    tiers: list[TierStats]
    by_type: dict[str, int]
    pending_steps: int
    stuck: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    evicted: dict[str, int] = field(default_factory=dict)
    rolled_back_stores: tuple[str, ...] = ()
    quarantined: dict[str, int] = field(default_factory=dict)
    documents: int = 0
    document_bytes: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class StoreReport(ResultMixin):
    """The state of one store, as `memory doctor` shows it."""

    store: str
    tiers: tuple[str, ...]
    ok: bool
    detail: str
    version: str
    latency_ms: float
    durable: bool
    capabilities: dict[str, Any]
    embedder: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    quarantined: int = 0
    """Damaged records of every tenant that were found in the store and not deleted."""


@dataclass(frozen=True, slots=True, repr=False)
class StoreAudit(ResultMixin):
    """The comparison of a store's records with the data that it derives from them.

    - `problems`: one sentence for each difference.
    - `repaired`: whether differing data was rebuilt.
    - `damaged`: unreadable records by collection, id and tenant, at most 100; and large
      documents of which a chunk is missing.
    - `error`: why the store could not be checked; empty if it was.
    """

    store: str
    checked: int
    problems: tuple[str, ...]
    repaired: bool = False
    error: str = ""
    damaged: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the audit found no problem."""
        return not self.error and not self.problems and not self.damaged


@dataclass(frozen=True, slots=True, repr=False)
class VacuumReport(ResultMixin):
    """The bytes that a store released; `error` says why it could not, or is empty."""

    store: str
    bytes: int
    error: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Examination(ResultMixin):
    """The state of every store, including those that do not open.

    `problems` says what keeps the stores from working together.
    """

    stores: list[StoreReport]
    problems: list[str]
    audits: list[StoreAudit] = field(default_factory=list)
    """Audits of the stores that open, if requested."""
    pending_steps: int = 0
    """Records of every tenant with pending steps, after all possible steps were run.

    It is only counted if every store answers.
    """
    overdue: list[str] = field(default_factory=list)
    """The first twenty steps that failed, one sentence each with the reason."""
    reindex: str | None = None
    """The state of a reindex and its remaining vectors; None if none is running."""
    healed: list[str] = field(default_factory=list)
    """Stores that were behind the others, after a restore or a replacement.

    Each text says what became of their records. With `repair`, also how many documents
    were moved to their home.
    """
    rolled_back_stores: list[RolledBackStore] = field(default_factory=list)
    """Stores that were rolled back alone and are not repaired."""
    compared: StoreComparison | None = None
    """The comparison of the stores, if an audit was requested and all answer."""

    @property
    def ok(self) -> bool:
        """Whether every store works, and all work together."""
        sound = all(store.ok for store in self.stores) and all(audit.ok for audit in self.audits)
        return (
            sound
            and not self.problems
            and not self.rolled_back_stores
            and (self.compared is None or self.compared.ok)
        )


@dataclass(frozen=True, slots=True, repr=False)
class Backup(ResultMixin):
    """A finished backup: its `file` and its size in `bytes`."""

    file: str
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class RestoreReport(ResultMixin):
    """A finished restore of the memory's `file`.

    `kept` is the new path of the file that it replaced; None if it replaced none.
    """

    file: str
    kept: str | None
