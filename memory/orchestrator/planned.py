"""What maintenance would do by rules, and when: the form in which promotion and retention tell it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from memory.domain.shown import Shown
from memory.orchestrator.foreseen import Foreseen
from memory.orchestrator.placement import Placement
from memory.ports.record import Record
from memory.ports.store import Store


@dataclass(frozen=True, slots=True, repr=False)
class Planned(Shown):
    """One thing that a rule does to one record, as it will be then. `tier` and `to`: where it is, and where a move takes it, or the scope into which
    a copy goes. `depends` says what decides at the time besides, and is not asked by a plan: a quota, a gate."""

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
    depends: tuple[str, ...] = ()


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

    def planned(self, now: datetime, waiting: list[str], ahead: Foreseen) -> AsyncIterator[Planned]:
        """What a sweep at that moment would have it do. `waiting` gets what could not be asked about; `ahead` has what is done before, and learns."""
        ...

    async def outlook(self, record: Record, store: Store, now: datetime) -> list[Outlook]:
        """What its rules will do with this record, rule by rule."""
        ...


async def plan_of(placement: Placement, planners: list[Planner]) -> Plan:
    """What all of them would do now, one after the other: each meets records as those before it leave them."""
    plan, ahead = Plan(placement.now()), Foreseen(placement.topology)
    for planner in planners:
        plan.planned += [one async for one in planner.planned(plan.at, plan.waiting, ahead)]
    plan.waiting = list(dict.fromkeys(plan.waiting))
    return plan
