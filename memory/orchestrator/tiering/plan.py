"""What maintenance would do by rules, and when: the form in which promotion and
retention tell it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from memory.domain.errors import StoreError
from memory.domain.results import ResultMixin
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


@dataclass(frozen=True, slots=True, repr=False)
class _Action(ResultMixin):
    """What is done to which record, by which rule, and why; or why not."""

    action: str
    collection: str
    id: str
    tenant: str
    scope: str
    rule: str
    because: str


@dataclass(frozen=True, slots=True, repr=False)
class PlannedAction(_Action):
    """One thing that maintenance does to one record, as it will be then. `tier` and
    `to`: where it is, and where a move takes it, or the scope into which a copy goes.

    `action`: move, copy, delete or end by `rule`; delete, by none, of what was made of
    a session that is gone; evict, for the quota that `rule` names; expire, by no rule;
    make, from what `on_window_exit` has answered. `depends` says what decides at
    the time besides, and is not asked by a plan: the write gate; which slice of the
    kept versions it is.
    """

    when: datetime
    tier: str = ""
    to: str = ""
    depends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class BlockedAction(_Action):
    """One thing that a sweep would do but for what `because` says: a quota that has no
    room (`quota` is its name), a legal hold, a store that is away, messages that have
    still to be handled. `action`, `rule` and `tier` are as `PlannedAction` has them; `to` is the
    tier, or the scope as the rule names it.
    """

    tier: str = ""
    to: str = ""
    quota: str = ""


@dataclass(slots=True, repr=False)
class Plan(ResultMixin):
    """What a sweep run at `at` would do: by rules, and what expires, goes for a quota
    or is made of messages on the way. The order is about that of the sweep, which takes
    tenants in turn.

    `stays` has what rules ask for and the sweep would leave; `waiting` names what could
    not be asked about, or cannot be told beforehand.
    """

    at: datetime
    planned: list[PlannedAction] = field(default_factory=list)
    stays: list[BlockedAction] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PlanBuilder:
    """A plan while it is made: what it says so far, and what of that the next step is
    to meet.
    """

    plan: Plan
    ahead: DryRunState
    quotas: DryRunQuotas
    asked: dict[Store, bool] = field(default_factory=dict)
    """Which stores answer, as far as that was asked."""

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
        """Whether a store answers; asked once."""
        if store not in self.asked:
            try:
                with step("plan.answers"):
                    await store.get(LEASES, [lease_key()])
                self.asked[store] = True
            except StoreError:
                self.asked[store] = False
        return self.asked[store]

    def forgets(self, left: Mark | Tombstone) -> bool:
        """Whether a sweep has forgotten what is left of a record when it comes to its
        rules.
        """
        return not left.owed and left.discard_at is not None and left.discard_at < self.now

    def waits(self, *said: str) -> None:
        self.plan.waiting += said

    def evicts(self) -> None:
        """Say who went for quotas since this was said last."""
        for quota, head in self.quotas.pop_evictions():
            self.does("evict", ENTRIES, head, quota.name, quota.describe())


@dataclass(frozen=True, slots=True, repr=False)
class Forecast(ResultMixin):
    """What one rule will do with a record that is not edited meanwhile.

    `when` is the first moment at which the rule acts. It is None where the rule never
    acts or an event decides. `because` gives the reason. `depends` lists what decides
    besides time and edits.
    """

    rule: str
    action: str
    on: str
    to: str
    takes: bool
    when: datetime | None
    because: str
    depends: tuple[str, ...] = ()


class PlanProvider(Protocol):
    """A part of maintenance that can also tell what it would do."""

    async def plan(self, planning: PlanBuilder) -> None:
        """Add what a sweep would do to the plan, for the providers behind it to see."""
        ...


class ForecastProvider(PlanProvider, Protocol):
    """A `PlanProvider` that also forecasts what happens to a single record."""

    async def forecast(self, record: Record, store: Store, now: datetime) -> list[Forecast]:
        """Forecast what each rule will do with this record."""
        ...


async def plan_of(
    placement: Placement, planners: Sequence[PlanProvider], quotas: Quotas, *, reads_texts: bool = True
) -> Plan:
    """What all of them would do now, one after the other: each meets records as those
    before it leave them. Nothing without the archive, which says whose turn it is to do
    maintenance. `reads_texts`: whether some of them ask what entries say.
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
        with step("plan.archive"):
            await placement.topology.archive.get(LEASES, [lease_key()])
        for planner in planners:
            await planner.plan(planning)
    except StoreError as error:
        planning.waits(str(error))
    plan.waiting = list(dict.fromkeys(plan.waiting))
    return plan
