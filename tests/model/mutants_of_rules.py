"""Faults put into what acts by rules, each of which the judge must see: retention,
holds, quotas, copies, policies, rounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memory.domain.errors import LegalHoldActive
from memory.domain.plan import Plan
from memory.domain.promotion_report import PromotionReport
from memory.facade.resources.admin import Admin
from memory.facade.resources.legal_holds import LegalHolds
from memory.orchestrator.entries.derivation import Derivation
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.erasure.legal_holds import LegalHoldRecords
from memory.orchestrator.maintenance.sweeps import Maintenance
from memory.orchestrator.storage.budgets import BudgetExhausted
from memory.orchestrator.tiering.promotion import Promotion
from memory.orchestrator.tiering.quotas import Quotas
from memory.orchestrator.tiering.retention import Retention, RetentionBatch
from tests.model.mutants import Method, mutant


@mutant("Retention._carry_out")
async def a_rule_takes_all_but_the_last_of_what_goes_together(
    whole: Method, retention: Retention, portion: RetentionBatch, *args: Any
) -> Any:
    return await whole(retention, replace(portion, some=portion.some[: max(1, len(portion.some) - 1)]), *args)


@mutant("Retention._end")
async def a_rule_ends_a_session_and_its_entries_stay(
    whole: Method, retention: Retention, tenant: str, session_id: str
) -> Any:
    retention._end_session, ends = _nothing, retention._end_session
    try:
        return await whole(retention, tenant, session_id)
    finally:
        retention._end_session = ends


async def _nothing(*args: Any) -> PromotionReport:
    return PromotionReport()


@mutant("Erasure.delete_versions")
async def versions_that_a_rule_lets_go_stay(whole: Method, erasure: Erasure, at: Any) -> Any:
    return dict.fromkeys(at, True)


@mutant("admin.plan")
async def a_plan_leaves_out_what_is_deleted(whole: Method, admin: Admin) -> Any:
    plan = await whole(admin)
    return Plan(plan.at, [one for one in plan.planned if one.action != "delete"], plan.waiting)


@mutant("LegalHoldRecords.over")
async def a_hold_over_a_user_is_not_one_over_their_sessions(
    whole: Method, holds: LegalHoldRecords, records: Any
) -> Any:
    return {
        key: held
        for key, held in (await whole(holds, records)).items()
        if any(one.over != "user" for one in held.holds)
    }


@mutant("LegalHoldRecords.over")
async def a_hold_over_an_entry_does_not_hold_what_it_said(
    whole: Method, holds: LegalHoldRecords, records: Any
) -> Any:
    versions = {record.key for record in records if "entry_id" in record.fields}
    return {key: held for key, held in (await whole(holds, records)).items() if key not in versions}


@mutant("LegalHoldRecords.refuse_partition")
async def an_entry_under_hold_does_not_keep_its_scope_from_erasure(
    whole: Method, holds: LegalHoldRecords, partition: Any, /, **how: Any
) -> Any:
    return await whole(holds, partition, **(how | {"whole": False}))


@mutant("Maintenance._delete_expired")
async def what_expires_goes_although_it_is_held(whole: Method, maintenance: Maintenance, *args: Any) -> Any:
    holds = maintenance._erasure.holds
    holds.over = _none_held  # type: ignore[method-assign]
    try:
        return await whole(maintenance, *args)
    finally:
        del holds.over


async def _none_held(records: Any) -> dict[Any, LegalHoldActive]:
    return {}


@mutant("admin.legal_holds.remove")
async def a_hold_that_is_released_holds_on(whole: Method, holds: LegalHolds, name: str) -> Any:
    return [hold for hold in await holds.list() if hold.name == name]


@mutant("Quotas._usage")
async def a_quota_counts_one_too_few(whole: Method, quotas: Quotas, place: Any) -> Any:
    return max(0, await whole(quotas, place) - 1)


@mutant("Quotas._candidates")
async def what_a_rule_keeps_is_evicted(whole: Method, quotas: Quotas, place: Any, written: Any) -> Any:
    quotas._keeps = lambda head: False  # type: ignore[method-assign]
    try:
        return await whole(quotas, place, written)
    finally:
        del quotas._keeps


@mutant("Quotas._candidates")
async def the_newest_is_evicted(whole: Method, quotas: Quotas, place: Any, written: Any) -> Any:
    return (await whole(quotas, place, written))[::-1]


@mutant("Quotas._evict")
async def what_is_evicted_is_not_counted(whole: Method, quotas: Quotas, place: Any, written: Any) -> Any:
    before = quotas.evicted.copy()
    await whole(quotas, place, written)
    quotas.evicted.clear()
    quotas.evicted.update(before)


@mutant("Promotion._copy")
async def the_end_of_a_session_copies_nothing(whole: Method, promotion: Promotion, *args: Any) -> Any:
    return None


@mutant("Derivation.promote")
async def a_rule_makes_a_copy_again_that_was_deleted(
    whole: Method, derivation: Derivation, *args: Any, **how: Any
) -> Any:
    return await whole(derivation, *args, **(how | {"revive": True}))


@mutant("Promotion.by_sweep")
async def a_policy_is_not_asked(whole: Method, promotion: Promotion, *args: Any) -> Any:
    policies, promotion._rule_evaluator.policies = promotion._rule_evaluator.policies, ()
    try:
        return await whole(promotion, *args)
    finally:
        promotion._rule_evaluator.policies = policies


@mutant("Maintenance._retain")
async def a_round_of_retention_that_is_over_leaves_the_rest(
    whole: Method, maintenance: Maintenance, report: Any, *args: Any
) -> Any:
    try:
        return await whole(maintenance, report, *args)
    except BudgetExhausted:
        maintenance._retention.rules = ()
        raise
