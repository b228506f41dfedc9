"""Promotion by policy: the rules decide, this carries out what they decide and reports it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory.domain.errors import StoreError
from memory.domain.scope import Scope
from memory.domain.shown import Shown
from memory.orchestrator.accesses import Accesses
from memory.orchestrator.browsing import BROWSED
from memory.orchestrator.collections import ENTRIES
from memory.orchestrator.lease import Hold
from memory.orchestrator.placement import Placement
from memory.orchestrator.tiering import MOST_AT_ONCE, MoveResult, Tiering
from memory.policies.facts import Facts
from memory.policies.promotion import Decision, Event, PromotionRule, decide
from memory.ports.collections import Collection
from memory.ports.query import SYSTEM_FIELDS, And, Eq, Everywhere, Filter, Head, Or, Order, Query, Where, within
from memory.ports.record import Key, Partition, Role
from memory.ports.store import Store

log = logging.getLogger(__name__)

LOOKED_AT = frozenset({"type", "tags", "confidence", "created_at", "updated_at", "accesses", "expires_at"})
"""What the rules look at. Texts are read of what moves."""


@dataclass(frozen=True, slots=True, repr=False)
class Moved(Shown):
    entry_id: str
    from_tier: str
    to_tier: str
    rule: str
    because: str


@dataclass(frozen=True, slots=True, repr=False)
class Kept(Shown):
    entry_id: str
    tier: str
    because: str


@dataclass(slots=True, repr=False)
class PromotionReport(Shown):
    """What went onward and by which rule; what stayed and why; `waiting` names stores that could not be asked, whose entries stayed unlooked at.

    Of a session that has ended: `onward` has the ids of the entries that were made now of what was said in it, and `waiting` why others were not yet.
    """

    moved: list[Moved] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    onward: list[str] = field(default_factory=list)


class Promotion:
    """Asks the rules about entries and moves those they take."""

    def __init__(self, placement: Placement, tiering: Tiering, accesses: Accesses, rules: Sequence[PromotionRule]) -> None:
        self._placement = placement
        self._tiering = tiering
        self._accesses = accesses
        self.rules = tuple(rules)

    async def end_session(self, tenant: str, scope: Scope) -> PromotionReport:
        """A session is over: each of its records that may move goes where the rules for `session_end` say."""
        await self._accesses.tell()
        report = PromotionReport()
        await self._run("session_end", within(Partition(tenant, scope.text)), self._placement.topology.homes, "", set(), report)
        return report

    async def by_sweep(self, away: set[str], hold: Hold) -> PromotionReport:
        """Every tenant's records that a `sweep` rule takes. `away`: as `Tiering.move` has it."""
        report = PromotionReport()
        for tier in dict.fromkeys(rule.source for rule in self.rules if rule.on == "sweep"):
            await self._run("sweep", Everywhere(), [self._placement.topology.home(tier)], tier, away, report, hold)
        return report

    def _taken(self, collection: Collection, event: Event, tier: str) -> Filter:
        """What some rule for this event takes from a tier."""
        known = SYSTEM_FIELDS | {field.name for field in collection.fields}
        taken = [rule.takes(self._placement.now(), known) for rule in self.rules if rule.on == event and rule.source == tier]
        return And((Eq("tier", tier), Or(tuple(taken))))

    async def by_hand(self, tenant: str, entry_ids: Sequence[str], to: str) -> PromotionReport:
        """These entries, to that tier."""
        report, away, because = PromotionReport(), set[str](), Decision(to, "by hand", "asked for")
        for start in range(0, len(entry_ids), MOST_AT_ONCE):
            keys = [Key(tenant, entry_id) for entry_id in entry_ids[start : start + MOST_AT_ONCE]]
            located = await self._placement.locate_many(ENTRIES, keys, partial=True)
            tiers = {place.key: place.record.tier if place.record is not None else "" for place in located}
            results = await self._tiering.move_many(ENTRIES, keys, to, away)
            for key in dict.fromkeys(keys):
                self._tell(report, key, tiers[key], because, results[key], note_kept=True)
        return report

    async def _run(
        self,
        event: Event,
        where: Where,
        stores: Sequence[Store],
        tier: str,
        away: set[str],
        report: PromotionReport,
        hold: Hold | None = None,
    ) -> None:
        """Ask the rules about every record once, page by page; with a tier, about those that some rule takes from it. What is kept is told too, but
        by a sweep, which needs `hold`.

        Stores are asked in the direction records move, and none is asked about twice: what moved before is met again further on.
        """
        now, asked_about = self._placement.now(), set[tuple[str, Key]]()
        for collection in [kind.collection for kind in self._placement.kinds.movable]:
            condition = self._taken(collection, event, tier) if tier else None
            for store in stores:
                async for page in self._heads(collection, where, store, condition, report):
                    fresh = [head for head in page if (collection.name, head.key) not in asked_about]
                    asked_about |= {(collection.name, head.key) for head in fresh}
                    decided = [(head, decide(self.rules, event, _facts(head), now)) for head in fresh if not _is_expired(head, now)]
                    if hold is not None and any(decision.target is not None for _, decision in decided):
                        await hold()
                    await self._move(collection, decided, away, report, note_kept=hold is None)

    async def _move(
        self, collection: Collection, decided: Sequence[tuple[Head, Decision]], away: set[str], report: PromotionReport, *, note_kept: bool
    ) -> None:
        """Move what is to be moved, target by target."""
        results: dict[Key, MoveResult | StoreError] = {}
        for target in dict.fromkeys(decision.target for _, decision in decided if decision.target is not None):
            keys = [head.key for head, decision in decided if decision.target == target]
            results |= await self._tiering.move_many(collection, keys, target, away)
        for head, decision in decided:
            if decision.target is not None:
                result = results[head.key]  # what is left of a move that was broken off says where it was to go, not where its record is
                tier = decision.target if result is MoveResult.ALREADY and head.role is Role.ARRIVING else head.tier
                self._tell(report, head.key, tier, decision, result, note_kept=note_kept)
            elif note_kept:
                report.kept.append(Kept(head.key.id, head.tier, decision.because))

    def _tell(self, report: PromotionReport, key: Key, tier: str, decision: Decision, result: MoveResult | StoreError, *, note_kept: bool) -> None:
        if isinstance(result, StoreError):  # of one record: the others went on, but for those that need a store that does not answer
            log.warning("%s stays in '%s': %s", key.id, tier, result)
            report.kept.append(Kept(key.id, tier, str(result)))
        elif result is MoveResult.MOVED and decision.target is not None:
            report.moved.append(Moved(key.id, tier, decision.target, decision.rule, decision.because))
        elif note_kept or result in (MoveResult.POSTPONED, MoveResult.REFUSED):
            said = self._tiering.refusals.get(key, "") if result is MoveResult.REFUSED else ""
            report.kept.append(Kept(key.id, tier, said or _KEPT_BECAUSE[result]))

    async def _heads(
        self, collection: Collection, where: Where, store: Store, condition: Filter | None, report: PromotionReport
    ) -> AsyncIterator[tuple[Head, ...]]:
        """The heads of what a store holds, page by page. One that fails is named in the report."""
        select = frozenset(name for name in LOOKED_AT if name in SYSTEM_FIELDS or collection.field(name) is not None)
        query = Query(collection, where, condition, (Order("created_at"),), self._placement.settings.page, roles=BROWSED, select=select)
        try:
            async for page in self._placement.pages("promotion.scan", store, query):
                report.kept += [Kept(key.id, "", f"its record in store '{store.name}' is corrupt") for key in page.corrupt]
                yield page.heads
        except StoreError as error:
            report.waiting.append(str(error))


_KEPT_BECAUSE = {
    MoveResult.ALREADY: "it is there or further already",
    MoveResult.GONE: "there is no such entry",
    MoveResult.POSTPONED: "it still owes a step; maintenance moves it later",
    MoveResult.REFUSED: "the target refuses it",
}


def _facts(head: Head) -> Facts:
    fields: Any = head.fields
    return Facts(
        tier=head.tier,
        type=fields.get("type") or "",
        tags=tuple(fields.get("tags") or ()),
        confidence=fields.get("confidence"),
        created_at=fields["created_at"],
        updated_at=fields["updated_at"],
        accesses=fields["accesses"],
    )


def _is_expired(head: Head, now: datetime) -> bool:
    expires_at: Any = head.fields.get("expires_at")
    return expires_at is not None and expires_at < now
