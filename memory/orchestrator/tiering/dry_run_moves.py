"""Predicts which moves of a plan will fail, and why.

It uses only the current content of the stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory.domain.errors import StoreError, StoreUnavailable
from memory.orchestrator.enrichment.enrichment import ENRICH
from memory.orchestrator.storage.outbox import CACHE, DELIVER
from memory.orchestrator.storage.placement import LocatedRecord, Placement
from memory.orchestrator.tiering.plan import PlanBuilder
from memory.policies.routing import is_later_tier
from memory.ports.base import record_bytes
from memory.ports.collections import Collection
from memory.ports.record import Key, Mark, PendingStep, Stored, Tombstone


@dataclass(frozen=True, slots=True)
class StayReason:
    """The reason why a record stays in its tier.

    `waits` is true if later steps of its session end must wait.
    """

    because: str
    waits: bool = False


class DryRunMoves:
    """Predicts the results of moves."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    async def staying_records(
        self, collection: Collection, keys: Sequence[Key], to: str, planning: PlanBuilder
    ) -> dict[Key, StayReason]:
        """Return the records that would not move to this tier, with the reasons.

        Records that the plan creates can always move, unless the target does not
        answer.
        """
        fresh = {key: row for key in keys if (row := planning.ahead.will_be(collection, key)) is not None}
        standing = [key for key in keys if not planning.ahead.comes_to_be(collection, key)]
        target, stay = self._placement.topology.home(to), dict[Key, StayReason]()
        located = {
            one.key: one for one in await self._placement.locate_many(collection, standing, partial=True)
        }
        try:
            there = await self._placement.read_by_key("plan.target", target, collection, keys)
        except StoreError as error:
            return {key: StayReason(str(error), isinstance(error, StoreUnavailable)) for key in keys}
        for key in standing:
            tier = fresh[key].tier if key in fresh else ""
            if (why := await self._why(located[key], tier, there[key], to, planning)) is not None:
                stay[key] = why
        return stay

    async def _why(
        self, located: LocatedRecord, tier: str, there: Stored | None, to: str, planning: PlanBuilder
    ) -> StayReason | None:
        if (error := located.corrupt or located.unknown) is not None:
            return StayReason(str(error), isinstance(error, StoreUnavailable))
        if located.record is None:
            return StayReason("there is no such record")
        record, target = located.record, self._placement.topology.home(to)
        if not is_later_tier(tier or record.tier, to):
            return StayReason("it is already in that tier or a later one")
        for owed in record.owed:
            if await self._lasts(owed, planning):
                return StayReason("it has a pending step, and can move after that step", waits=True)
        if target is located.store:
            return None
        if (
            isinstance(there, Mark | Tombstone)
            and there.version >= record.version
            and not planning.forgets(there)
        ):
            return StayReason(
                "the target still holds the deletion record of an earlier use of this id; it can move once"
                " that is removed",
                waits=True,
            )
        limit = target.capabilities.max_record_bytes
        return (
            StayReason("the target refuses it")
            if limit is not None and record_bytes(record) > limit
            else None
        )

    async def _lasts(self, owed: PendingStep, planning: PlanBuilder) -> bool:
        """Return whether a pending step is still pending at the record's move.

        Advisors run beside a sweep, so their step counts as pending.
        """
        if owed.step == ENRICH:
            return True
        if owed.step.partition(".")[0] != DELIVER or (to := owed.data["to"]) == CACHE:
            return False
        return not await planning.answers(self._placement.topology.home(to))
