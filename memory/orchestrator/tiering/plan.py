"""The plan of maintenance: the actions of promotion and retention, and their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from memory.domain.errors import StoreError
from memory.domain.plan import BlockedAction, Forecast, Plan, PlannedAction
from memory.orchestrator.storage.collections import ENTRIES, LEASES
from memory.orchestrator.storage.lease import lease_key
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.orchestrator.tiering.dry_run import DryRunState, PlanRequirements
from memory.orchestrator.tiering.dry_run_quotas import DryRunQuotas
from memory.orchestrator.tiering.quotas import Quotas
from memory.orchestrator.tiering.rules import LOOKED_AT
from memory.ports.collections import Collection
from memory.ports.query import Head
from memory.ports.record import Mark, Record, Tombstone
from memory.ports.store import Store


@dataclass(frozen=True, slots=True)
class PlanBuilder:
    """A plan in progress: its actions so far, and the state for the next step."""

    plan: Plan
    ahead: DryRunState
    quotas: DryRunQuotas
    asked: dict[Store, bool] = field(default_factory=dict)
    """Which stores answer, as far as they were checked."""

    @property
    def now(self) -> datetime:
        return self.plan.at

    def does(
        self,
        action: str,
        collection: Collection,
        row: Head | Record,
        rule: str,
        because: str,
        to: str = "",
        depends: tuple[str, ...] = (),
    ) -> None:
        scope, tenant = row.scope, row.key.tenant
        self.plan.planned.append(
            PlannedAction(
                action,
                collection.name,
                row.key.id,
                tenant,
                scope,
                rule,
                because,
                self.now,
                row.tier,
                to,
                depends,
            )
        )

    def leaves(
        self,
        action: str,
        collection: Collection,
        row: Head | Record,
        rule: str,
        because: str,
        to: str = "",
        quota: str = "",
    ) -> None:
        scope, tenant = row.scope, row.key.tenant
        self.plan.stays.append(
            BlockedAction(
                action, collection.name, row.key.id, tenant, scope, rule, because, row.tier, to, quota
            )
        )

    async def answers(self, store: Store) -> bool:
        """Return whether a store answers; it is checked once."""
        if store not in self.asked:
            try:
                with step("plan.answers"):
                    await store.get(LEASES, [lease_key()])
                self.asked[store] = True
            except StoreError:
                self.asked[store] = False
        return self.asked[store]

    def forgets(self, left: Mark | Tombstone) -> bool:
        """Return whether a sweep purges this mark or tombstone before its rules run."""
        return not left.owed and left.discard_at is not None and left.discard_at < self.now

    def waits(self, *said: str) -> None:
        self.plan.waiting += said

    def evicts(self) -> None:
        """Add the evictions since the last call."""
        for quota, head in self.quotas.pop_evictions():
            self.does("evict", ENTRIES, head, quota.name, quota.describe())


class PlanProvider(Protocol):
    """A part of maintenance that can also plan its actions."""

    async def plan(self, planning: PlanBuilder) -> None:
        """Add the actions of a sweep to the plan, visible to later providers."""
        ...


class ForecastProvider(PlanProvider, Protocol):
    """A `PlanProvider` that also forecasts the actions for a single record."""

    async def forecast(self, record: Record, store: Store, now: datetime) -> list[Forecast]:
        """Forecast each rule's action for this record."""
        ...


async def plan_of(
    placement: Placement, planners: Sequence[PlanProvider], quotas: Quotas, *, reads_texts: bool = True
) -> Plan:
    """Return the plan of all providers.

    Each provider plans on the state that the earlier ones leave. If the archive does
    not answer, the plan has no actions, because the archive decides which worker may
    run maintenance.

    Args:
        reads_texts: Whether some providers use the texts of entries.
    """

    def size(record: Record) -> int | None:
        return (
            placement.topology.home(record.tier).counted_bytes(ENTRIES, replace(record, owed=()))
            if counts_bytes
            else None
        )

    counts_bytes = any(quota.measure == "bytes" for quota in quotas.quotas)
    keeps = PlanRequirements(reads_texts, LOOKED_AT, size if quotas.quotas else None)
    plan, ahead = Plan(placement.now()), DryRunState(placement.topology, keeps)
    planning = PlanBuilder(plan, ahead, DryRunQuotas(quotas, ahead))
    try:
        await placement.read("plan.archive", placement.topology.archive, LEASES, [lease_key()])
        for planner in planners:
            await planner.plan(planning)
    except StoreError as error:
        planning.waits(str(error))
    plan.waiting = list(dict.fromkeys(plan.waiting))
    return plan
