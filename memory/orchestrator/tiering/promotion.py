"""Promotion by policy: carries out the decisions of the rules, and reports them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from memory.domain.entry import Entry
from memory.domain.errors import (
    Conflict,
    InvalidInput,
    MemoryTiersError,
    QuotaExceeded,
    StoreError,
    StoreUnavailable,
)
from memory.domain.ids import is_id
from memory.domain.plan import Forecast
from memory.domain.promotion_report import CopiedEntry, KeptEntry, MovedEntry, PromotionReport
from memory.domain.scope import Scope
from memory.orchestrator.entries.accesses import Accesses
from memory.orchestrator.entries.admission import NewEntry
from memory.orchestrator.entries.derivation import Derivation
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.entry_records import entry_of
from memory.orchestrator.storage.lease import LeaseCheck
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.requests import UNDONE
from memory.orchestrator.tiering.dry_run_moves import DryRunMoves, StayReason
from memory.orchestrator.tiering.moves import MOST_AT_ONCE, MoveResult, TierMover
from memory.orchestrator.tiering.plan import PlanBuilder
from memory.orchestrator.tiering.rules import EvaluationGaps, RuleEvaluator, RuleMatch
from memory.policies.conditions import first_moment
from memory.policies.promotion import USER, CustomRule, Decision, PromotionRule, Rule
from memory.policies.record_facts import RecordFacts
from memory.ports.collections import Collection
from memory.ports.query import Head, within
from memory.ports.record import Key, Partition, Record, Role
from memory.ports.store import Store

log = logging.getLogger(__name__)


UserOf: TypeAlias = Callable[[str, str, str], Awaitable[str | None]]
"""Returns the user of a tenant's session, or None."""


class Promotion:
    """Runs the rules on entries, and moves the matches."""

    def __init__(
        self,
        placement: Placement,
        tier_mover: TierMover,
        accesses: Accesses,
        derivation: Derivation,
        rule_evaluator: RuleEvaluator,
        user_of: UserOf,
    ) -> None:
        self._placement = placement
        self._tier_mover = tier_mover
        self._accesses = accesses
        self._derivation = derivation
        self._rule_evaluator = rule_evaluator
        self._user_of = user_of
        self._moves_ahead = DryRunMoves(placement)

    async def end_session(
        self, tenant: str, scope: Scope, until: datetime | None = None, silent: set[str] | None = None
    ) -> PromotionReport:
        """Move each matching record of a session that ends, by the `session_end` rules.

        Args:
            until: Only records that existed then. None stands for all.
            silent: Receives the names of stores that did not answer.
        """
        await self._accesses.tell()
        silent = set() if silent is None else silent
        report, missed, away = PromotionReport(), EvaluationGaps([], [], silent), set[str]()
        where, now = within(Partition(tenant, scope.text)), self._placement.now()
        async for collection, page in self._rule_evaluator.matches(
            "session_end", where, self._placement.topology.homes, now, missed
        ):
            judged = _of_then(page, until)
            await self._copy(judged, scope, silent, report)
            await self._move(collection, judged, away, report, note_kept=True)
        silent |= away
        return _with(missed, report)

    async def by_sweep(
        self, away: set[str], hold: LeaseCheck, report: PromotionReport | None = None
    ) -> PromotionReport:
        """Move every tenant's records that match a `sweep` rule.

        Args:
            away: The names of stores that did not answer, as for `move_many`.
            hold: Keeps the lease. It raises if the lease is lost.
            report: Has the moves so far if `hold` raises.
        """
        report, missed = report or PromotionReport(), EvaluationGaps([], [])
        try:
            async for collection, judged in self._rule_evaluator.everywhere(self._placement.now(), missed):
                if taken := sum(not one.is_left for one in judged):
                    await hold(taken)
                    await self._move(collection, judged, away, report, note_kept=False)
        finally:
            _with(missed, report)
        return report

    async def plan(self, planning: PlanBuilder) -> None:
        """Plan the moves of `by_sweep`."""
        missed = EvaluationGaps([], [])
        async for collection, judged in self._rule_evaluator.everywhere(planning.now, missed, planning.ahead):
            await self._plan_moves(collection, judged, planning, is_last=True)
        planning.waits(*missed.stores, *_stay(missed))

    async def plan_end(
        self,
        tenant: str,
        scope: Scope,
        planning: PlanBuilder,
        until: datetime | None = None,
        silent: set[str] | None = None,
    ) -> list[str]:
        """Plan the actions of `end_session`; return the reasons that prevent the end.

        `silent` receives the names of stores that do not answer.
        """
        silent = set() if silent is None else silent
        missed, where, away, homes = (
            EvaluationGaps([], [], silent),
            within(Partition(tenant, scope.text)),
            list[str](),
            self._placement.topology.homes,
        )
        async for collection, page in self._rule_evaluator.matches(
            "session_end", where, homes, planning.now, missed, ahead=planning.ahead
        ):
            judged = _of_then(page, until)
            for row, decision in [(one.row, decision) for one in judged for decision in one.copies]:
                try:
                    await self._plan_copy(collection, row, decision, scope, planning)
                except MemoryTiersError as error:
                    if isinstance(error, StoreUnavailable):
                        away.append(str(error))
                        silent.add(error.store)
                    quota = error.quota if isinstance(error, QuotaExceeded) else ""
                    planning.leaves(
                        "copy", collection, row, decision.rule, str(error), decision.to_scope or "", quota
                    )
                planning.evicts()
            away += await self._plan_moves(collection, judged, planning)
        planning.waits(*_stay(missed))
        return away + missed.stores

    async def _plan_copy(
        self,
        collection: Collection,
        row: Head | Record,
        decision: Decision,
        session: Scope,
        planning: PlanBuilder,
    ) -> None:
        to, ahead = await self._target(row.key, session, decision.to_scope or ""), planning.ahead
        to_come = row if isinstance(row, Record) and ahead.comes_to_be(collection, row.key) else None
        copy, there = await self._derivation.plan_promotion(row.key.tenant, row.key.id, to, to_come)
        async with planning.quotas.admit(copy.key.tenant, [NewEntry.of(copy, derived=True)]) as stay:
            stay.add(copy.key)
            gone = there.tombstone
            stands = gone is not None and UNDONE not in gone.note and not planning.forgets(gone)
            if ahead.is_gone(ENTRIES, copy.key) or (there.record is None and stands):
                raise Conflict("its earlier result was deleted", copy.key.id)
            if there.record is None and not ahead.knows(ENTRIES, copy.key):
                ahead.comes(ENTRIES, copy)
                planning.does(
                    "copy",
                    collection,
                    row,
                    decision.rule,
                    decision.because,
                    to.text,
                    self._derivation.decided_when_made,
                )

    async def _plan_moves(
        self,
        collection: Collection,
        judged: Sequence[RuleMatch],
        planning: PlanBuilder,
        *,
        is_last: bool = False,
    ) -> list[str]:
        """Plan the moves of `_move`; return the reasons that make other steps wait.

        `is_last` means that no later walk covers the target tiers.
        """
        moving, stay, waits = (
            [one for one in judged if one.decision.target is not None],
            dict[Key, StayReason](),
            list[str](),
        )
        for target in dict.fromkeys(one.decision.target or "" for one in moving):
            keys = [one.row.key for one in moving if one.decision.target == target]
            stay |= await self._moves_ahead.staying_records(collection, keys, target, planning)
        for one in moving:
            target, rule = one.decision.target or "", one.decision.rule
            if (why := stay.get(one.row.key)) is None:
                if is_last:
                    planning.ahead.passes(collection, one.row.key)
                else:
                    planning.ahead.moves(collection, one.row, target)
                planning.does("move", collection, one.row, rule, one.decision.because, target)
                continue
            planning.leaves("move", collection, one.row, rule, why.because, target)
            waits += [why.because] if why.waits else []
        return waits

    async def forecast(self, record: Record, store: Store, now: datetime) -> list[Forecast]:
        """Forecast each rule's action for this record in its current state."""
        facts = await self._rule_evaluator.facts(record, store)
        return [_forecast(rule, entry_of(record), facts, now) for rule in self._rule_evaluator.of_tier("")]

    async def after_writing(self, tenant: str, scope: str, tier: str) -> PromotionReport:
        """Move a scope's matches of the `write` rules.

        `tier` is the tier that was written to.
        """
        report, missed, away = PromotionReport(), EvaluationGaps([], []), set[str]()
        stores, now = [self._placement.topology.home(tier)], self._placement.now()
        async for collection, judged in self._rule_evaluator.matches(
            "write", within(Partition(tenant, scope)), stores, now, missed, tier
        ):
            await self._move(collection, judged, away, report, note_kept=False)
        return _with(missed, report)

    async def by_hand(self, tenant: str, entry_ids: Sequence[str], to: str) -> PromotionReport:
        """Move these entries to the given tier."""
        report, away, because = PromotionReport(), set[str](), Decision(to, "by hand", "asked for")
        report.kept += [
            KeptEntry(one, "", _KEPT_BECAUSE[MoveResult.GONE])
            for one in dict.fromkeys(entry_ids)
            if not is_id(one)
        ]
        named = [one for one in entry_ids if is_id(one)]
        for start in range(0, len(named), MOST_AT_ONCE):
            keys = [Key(tenant, entry_id) for entry_id in named[start : start + MOST_AT_ONCE]]
            located = await self._placement.locate_many(ENTRIES, keys, partial=True)
            tiers = {place.key: place.record.tier if place.record is not None else "" for place in located}
            results = await self._tier_mover.move_many(ENTRIES, keys, to, away)
            for key in dict.fromkeys(keys):
                self._tell(report, key, tiers[key], because, results[key], note_kept=True)
        return report

    async def _copy(
        self, judged: Sequence[RuleMatch], session: Scope, silent: set[str], report: PromotionReport
    ) -> None:
        """Copy matches into broader scopes, once.

        A copy that fails is reported, and does not affect the others.
        """
        copies = [(one.row, decision) for one in judged for decision in one.copies]
        for row, decision in copies:
            begun = self._placement.now()
            try:
                to = await self._target(row.key, session, decision.to_scope or "")
                copy = await self._derivation.promote(
                    row.key.tenant, row.key.id, to, revive=False, automatic=True
                )
            except MemoryTiersError as error:
                report.kept.append(
                    KeptEntry(row.key.id, row.tier, f"rule '{decision.rule}' cannot copy it: {error}")
                )
                _wait(report, error)
                silent |= {error.store} if isinstance(error, StoreUnavailable) else set()
                continue
            if copy.created_at >= begun:  # otherwise an earlier call made it
                report.copied.append(
                    CopiedEntry(row.key.id, copy.id, to.text, decision.rule, decision.because)
                )

    async def _target(self, key: Key, session: Scope, to_scope: str) -> Scope:
        if to_scope != USER:
            return Scope.parse(to_scope)
        user = await self._user_of(key.tenant, session.id, key.id)
        if user is None:
            raise InvalidInput("to_scope", f"session '{session.id}' names no user. Create it with a user")
        return Scope.user(user)

    async def _move(
        self,
        collection: Collection,
        judged: Sequence[RuleMatch],
        away: set[str],
        report: PromotionReport,
        *,
        note_kept: bool,
    ) -> None:
        """Move the matches, target by target."""
        results: dict[Key, MoveResult | StoreError] = {}
        for target in dict.fromkeys(one.decision.target for one in judged if one.decision.target is not None):
            keys = [one.row.key for one in judged if one.decision.target == target]
            results |= await self._tier_mover.move_many(collection, keys, target, away)
        for row, decision in [(one.row, one.decision) for one in judged]:
            if decision.target is not None:
                result = results[
                    row.key
                ]  # an interrupted move's copy names the target tier, not the tier of its record
                tier = (
                    decision.target
                    if result is MoveResult.ALREADY and row.role is Role.ARRIVING
                    else row.tier
                )
                self._tell(report, row.key, tier, decision, result, note_kept=note_kept)
                if (
                    note_kept and result is MoveResult.POSTPONED
                ):  # nobody evaluates the records of an ended session again
                    report.waiting.append(f"{row.key.id} stays in '{tier}': {_KEPT_BECAUSE[result]}")
            elif note_kept:
                report.kept.append(KeptEntry(row.key.id, row.tier, decision.because))

    def _tell(
        self,
        report: PromotionReport,
        key: Key,
        tier: str,
        decision: Decision,
        result: MoveResult | StoreError,
        *,
        note_kept: bool,
    ) -> None:
        if isinstance(
            result, StoreError
        ):  # only this record failed; others moved, unless they need a store that does not answer
            log.warning("%s stays in '%s': %s", key.id, tier, result)
            report.kept.append(KeptEntry(key.id, tier, str(result)))
            _wait(report, result)
        elif result is MoveResult.MOVED and decision.target is not None:
            report.moved.append(MovedEntry(key.id, tier, decision.target, decision.rule, decision.because))
        elif note_kept or result in (MoveResult.POSTPONED, MoveResult.REFUSED):
            said = self._tier_mover.refusals.get(key, "") if result is MoveResult.REFUSED else ""
            report.kept.append(KeptEntry(key.id, tier, said or _KEPT_BECAUSE[result]))


_KEPT_BECAUSE = {
    MoveResult.ALREADY: "it is already in that tier or a later one",
    MoveResult.GONE: "there is no such entry",
    MoveResult.POSTPONED: "it has a pending step, and can move after that step",
    MoveResult.REFUSED: "the target refuses it",
}


def _of_then(judged: Sequence[RuleMatch], until: datetime | None) -> Sequence[RuleMatch]:
    return judged if until is None else [one for one in judged if one.created_at <= until]


def _wait(report: PromotionReport, error: Exception) -> None:
    if isinstance(error, StoreUnavailable) and str(error) not in report.waiting:
        report.waiting.append(str(error))


def _with(missed: EvaluationGaps, report: PromotionReport) -> PromotionReport:
    """Add the gaps of an evaluation to the report."""
    told = {kept.entry_id for kept in report.kept}
    report.kept += [
        KeptEntry(key.id, tier, problem) for key, tier, problem in missed.records if key.id not in told
    ]
    report.waiting += [said for said in missed.stores if said not in report.waiting]
    return report


def _stay(missed: EvaluationGaps) -> list[str]:
    return [f"{key.id} stays: {problem}" for key, _, problem in missed.records]


def _forecast(rule: Rule, entry: Entry, facts: RecordFacts, now: datetime) -> Forecast:
    copies = isinstance(rule, PromotionRule) and rule.copies
    to = (rule.to_scope or rule.target) if isinstance(rule, PromotionRule) else ""
    says = Forecast(rule.name, "copy" if copies else "move", rule.on, to, takes=False, when=None, because="")
    if rule.source != facts.tier:
        return replace(
            says, because=f"the rule takes entries from '{rule.source}', and this one is in '{facts.tier}'"
        )
    if isinstance(rule, CustomRule):
        return _asked_now(says, rule, entry, facts, now)
    depends = () if rule.condition is None else tuple(sorted(rule.condition.depends()))
    if rule.on == "session_end":
        holds, because = rule.evaluate(facts, now)
        return replace(says, takes=holds, because=because, depends=("when its session ends", *depends))
    when = now if rule.condition is None else first_moment(rule.condition, facts, now)
    holds, because = rule.evaluate(facts, now if when is None else when)
    return replace(says, takes=holds, when=when, because=because, depends=depends)


def _asked_now(
    says: Forecast, policy: CustomRule, entry: Entry, facts: RecordFacts, now: datetime
) -> Forecast:
    """Return a policy's current decision on an entry; later ones are unknown."""
    says = replace(says, depends=("the policy decides when it runs",))
    try:
        decided = policy.decide(entry, facts, now)
    except Exception as error:  # noqa: BLE001 - the policy is not ours
        return replace(says, because=f"the policy failed: {type(error).__name__}: {error}")
    if decided is None:
        return replace(says, because="the policy does not take it now")
    return replace(
        says,
        to=decided.target or "",
        takes=True,
        when=now if policy.on != "session_end" else None,
        because=decided.because,
    )
