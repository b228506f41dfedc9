"""Promotion by policy: the rules decide, this carries out what they decide and reports it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.domain.errors import StoreError
from memory.domain.scope import Scope
from memory.domain.shown import Shown
from memory.orchestrator.accesses import Accesses
from memory.orchestrator.browsing import BROWSED
from memory.orchestrator.collections import ENTRIES
from memory.orchestrator.placement import Placement
from memory.orchestrator.tiering import MoveResult, Tiering, portions
from memory.orchestrator.windows import is_expired
from memory.policies.promotion import Decision, Event, Facts, PromotionRule, decide
from memory.ports.query import Eq, Everywhere, Filter, Order, Query, Where, within
from memory.ports.record import Key, Partition, Record
from memory.ports.store import Store

log = logging.getLogger(__name__)

READ_AT_ONCE = 20
"""How many entries that nobody has looked at yet are moved at once: each may be large."""


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
    """What went onward and by which rule; what stayed and why; `waiting` names stores that could not be asked, whose entries stayed unlooked at."""

    moved: list[Moved] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


class Promotion:
    """Asks the rules about entries and moves those they take."""

    def __init__(self, placement: Placement, tiering: Tiering, accesses: Accesses, rules: Sequence[PromotionRule]) -> None:
        self._placement = placement
        self._tiering = tiering
        self._accesses = accesses
        self.rules = tuple(rules)

    async def end_session(self, tenant: str, scope: Scope) -> PromotionReport:
        """A session is over: each of its entries goes where the rules for `session_end` say."""
        await self._accesses.tell()
        return await self._run("session_end", within(Partition(tenant, scope.text)), self._placement.topology.homes, None, set())

    async def by_sweep(self, away: set[str] | None = None) -> PromotionReport:
        """Every tenant's entries in tiers that a `sweep` rule moves onward from. `away`: as `Tiering.move` has it."""
        report, away = PromotionReport(), set[str]() if away is None else away
        for tier in dict.fromkeys(rule.source for rule in self.rules if rule.on == "sweep"):
            part = await self._run("sweep", Everywhere(), [self._placement.topology.home(tier)], Eq("tier", tier), away, note_kept=False)
            report.moved += part.moved
            report.kept += part.kept
            report.waiting += part.waiting
        return report

    async def by_hand(self, tenant: str, entry_ids: Sequence[str], to: str) -> PromotionReport:
        """These entries, to that tier."""
        report, away, because = PromotionReport(), set[str](), Decision(to, "by hand", "asked for")
        for start in range(0, len(entry_ids), READ_AT_ONCE):
            keys = [Key(tenant, entry_id) for entry_id in entry_ids[start : start + READ_AT_ONCE]]
            located = await self._placement.locate_many(ENTRIES, keys, partial=True)
            tiers = {place.key: place.record.tier if place.record is not None else "" for place in located}
            results = await self._tiering.move_many(ENTRIES, keys, to, away)
            for key in dict.fromkeys(keys):
                self._tell(report, key, tiers[key], because, results[key], note_kept=True)
        return report

    async def _run(
        self, event: Event, where: Where, stores: Sequence[Store], condition: Filter | None, away: set[str], *, note_kept: bool = True
    ) -> PromotionReport:
        report, now = PromotionReport(), self._placement.now()
        decided = [
            (record, decide(self.rules, event, _facts(record), now))
            for record in await self._records(where, stores, condition, report)
            if not is_expired(record, now)
        ]
        by_target: dict[str, list[Record]] = {}
        for record, decision in decided:
            if decision.target is not None:
                by_target.setdefault(decision.target, []).append(record)
        results: dict[Key, MoveResult | StoreError] = {}
        for target, records in by_target.items():
            for portion in portions(records):
                results |= await self._tiering.move_many(ENTRIES, portion, target, away)
        for record, decision in decided:
            if decision.target is not None:
                self._tell(report, record.key, record.tier, decision, results[record.key], note_kept=note_kept)
            elif note_kept:
                report.kept.append(Kept(record.key.id, record.tier, decision.because))
        return report

    def _tell(self, report: PromotionReport, key: Key, tier: str, decision: Decision, result: MoveResult | StoreError, *, note_kept: bool) -> None:
        if isinstance(result, StoreError):  # of one record: the others went on, but for those that need a store that does not answer
            log.warning("%s stays in '%s': %s", key.id, tier, result)
            report.kept.append(Kept(key.id, tier, str(result)))
        elif result is MoveResult.MOVED and decision.target is not None:
            report.moved.append(Moved(key.id, tier, decision.target, decision.rule, decision.because))
        elif note_kept or result in (MoveResult.POSTPONED, MoveResult.REFUSED):
            said = self._tiering.refusals.get(key, "") if result is MoveResult.REFUSED else ""
            report.kept.append(Kept(key.id, tier, said or _KEPT_BECAUSE[result]))

    async def _records(self, where: Where, stores: Sequence[Store], condition: Filter | None, report: PromotionReport) -> list[Record]:
        """Every record once, read before anything moves; stores are asked in the direction records move. One that fails is named in the report."""
        found: dict[Key, Record] = {}
        for store in stores:
            query = Query(ENTRIES, where, condition, (Order("created_at"),), self._placement.settings.page, roles=BROWSED)
            try:
                async for page in self._placement.pages("promotion.scan", store, query):
                    report.kept += [Kept(key.id, "", f"its record in store '{store.name}' is corrupt") for key in page.corrupt]
                    for row in page.records:
                        if isinstance(row, Record):
                            found.setdefault(row.key, row)
            except StoreError as error:
                report.waiting.append(str(error))
        return list(found.values())


_KEPT_BECAUSE = {
    MoveResult.ALREADY: "it is there or further already",
    MoveResult.GONE: "there is no such entry",
    MoveResult.POSTPONED: "it still owes a step; maintenance moves it later",
    MoveResult.REFUSED: "the target refuses it",
}


def _facts(record: Record) -> Facts:
    fields: Any = record.fields
    return Facts(
        tier=record.tier,
        type=fields["type"],
        tags=tuple(fields.get("tags") or ()),
        confidence=fields.get("confidence"),
        created_at=record.created_at,
        updated_at=record.updated_at,
        accesses=record.accesses,
    )
