"""What maintenance would do by rules, and when: the form in which promotion and retention tell it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from memory.domain.shown import Shown
from memory.orchestrator.placement import Placement
from memory.ports.record import Record
from memory.ports.store import Store


@dataclass(frozen=True, slots=True, repr=False)
class Planned(Shown):
    """One thing that a rule does to one record. `tier` and `to`: where it is, and where a move takes it."""

    action: str
    collection: str
    id: str
    tenant: str
    scope: str
    rule: str
    because: str
    when: datetime
    tier: str = ""
    to: str = ""


@dataclass(slots=True, repr=False)
class Plan(Shown):
    """What a sweep run at `at` would do by rules, in the order it would; `waiting` names what could not be asked about."""

    at: datetime
    planned: list[Planned] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, repr=False)
class Outlook(Shown):
    """What one rule will do with a record that stays as it is. `when`: the first moment, None where it will not or where an event decides it.

    `because` is why, or why not; `depends` says on what else than time and edits that depends.
    """

    rule: str
    action: str
    on: str
    to: str
    takes: bool
    when: datetime | None
    because: str
    depends: tuple[str, ...] = ()


class Planner(Protocol):
    """Something that acts by rules, and can tell beforehand."""

    def planned(self, now: datetime, waiting: list[str]) -> AsyncIterator[Planned]:
        """What a sweep at that moment would have it do. `waiting` gets what could not be asked about."""
        ...

    async def outlook(self, record: Record, store: Store, now: datetime) -> list[Outlook]:
        """What its rules will do with this record, rule by rule."""
        ...


async def plan_of(placement: Placement, planners: list[Planner]) -> Plan:
    """What all of them would do now; of a record that one deletes or moves the ones after it say nothing."""
    plan = Plan(placement.now())
    acted_on = set[tuple[str, str, str]]()
    for planner in planners:
        found = [one async for one in planner.planned(plan.at, plan.waiting) if (one.collection, one.tenant, one.id) not in acted_on]
        acted_on |= {(one.collection, one.tenant, one.id) for one in found}
        plan.planned += found
    return plan
