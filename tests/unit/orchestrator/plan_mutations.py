"""Mutations in what makes plans, which a drawn life that is planned and swept must show
(`test_plan.py`).
"""

from __future__ import annotations

from memory.orchestrator.tiering import (
    dry_run,
    dry_run_due,
    dry_run_moves,
    dry_run_quotas,
    plan,
    promotion,
    retention,
)
from tests.support.mutations import Mutation

MUTATIONS = {
    "whom a quota has go is not told": Mutation(
        dry_run_quotas, "DryRunQuotas._let_go", "self._gone.append((place.quota, head))", "pass"
    ),
    "whom a quota has go is there for what comes behind": Mutation(
        dry_run_quotas, "DryRunQuotas._let_go", "self._ahead.goes(ENTRIES, head)", "pass"
    ),
    "a quota counts what stands alone": Mutation(
        dry_run_quotas, "DryRunQuotas._usage_change", "in changes[seen:]:", "in ():"
    ),
    "a quota has those go that are gone": Mutation(
        dry_run_quotas, "DryRunQuotas._that_stay", "if not self._ahead.knows(ENTRIES, head.key)", "if True"
    ),
    "a copy has no quota": Mutation(
        promotion, "Promotion._plan_copy", "[NewEntry.of(copy, derived=True)]", "[]"
    ),
    "what was copied is copied again": Mutation(
        promotion, "Promotion._plan_copy", "if there.record is None and not", "if not"
    ),
    "a copy that is gone is made again": Mutation(
        promotion,
        "Promotion._plan_copy",
        "ahead.is_gone(ENTRIES, copy.key) or (there.record is None and stands)",
        "False",
    ),
    "the end moves nothing for sweeps to meet": Mutation(
        promotion, "Promotion._plan_moves", "planning.ahead.moves(collection, one.row, target)", "pass"
    ),
    "what expires is there for rules": Mutation(
        dry_run_due, "DryRunDueWork._goes", "planning.ahead.goes(collection, record)", "pass"
    ),
    "what expires is not told": Mutation(
        dry_run_due, "DryRunDueWork._goes", 'planning.does("expire", collection, record, "", because)', "pass"
    ),
    "what is held expires": Mutation(
        dry_run_due, "DryRunDueWork._goes", "if record.key in held:", "if False:"
    ),
    "what is made is not there for rules and quotas": Mutation(
        dry_run_due, "DryRunDueWork._plan_leaving", "planning.ahead.comes(ENTRIES, record)", "pass"
    ),
    "what an end asked for by hand does is not told": Mutation(
        dry_run_due, "DryRunDueWork._plan_ends", "elif ending is None:", "elif True:"
    ),
    "what an end has done is owed still": Mutation(
        dry_run_due, "DryRunDueWork._plan_ends", "planning.ahead.settled.add((owner.key, END))", "pass"
    ),
    "what is made has no quota": Mutation(
        dry_run_due,
        "DryRunDueWork._plan_leaving",
        "[NewEntry.of(record, derived=True) for record in fresh]",
        "[]",
    ),
    "a session goes of which messages are to go onward": Mutation(
        retention, "Retention._plan_one", "await self._leaves(row.partition, ahead.settled)", "False"
    ),
    "versions are told beside their entry": Mutation(
        retention, "Retention._plan_one", "ahead.is_gone(", "ahead.comes_to_be("
    ),
    "what is held goes by rule": Mutation(
        retention, "Retention.plan", "if one.row.key in free else", "if True else"
    ),
    "a rule meets what is gone": Mutation(
        retention, "Retention._entries", "rows = walk.page(rows, is_last=page.cursor is None)", "pass"
    ),
    "a move goes to a store that is away": Mutation(
        dry_run_moves,
        "DryRunMoves.staying_records",
        "return {key: StayReason(str(error), isinstance(error, StoreUnavailable)) for key in keys}",
        "return {}",
    ),
}

SHOWN_BY_ONE_TEST = {
    "what was answered still leaves": Mutation(
        dry_run_due, "DryRunDueWork._plan_leaving", "planning.ahead.settled.add((owner.key, LEAVE))", "pass"
    ),
    "what is new is kept with its texts": Mutation(
        dry_run,
        "DryRunState._without_texts",
        "return row if copied else head_of",
        "return row if True else head_of",
    ),
    "what moves at last is kept": Mutation(promotion, "Promotion._plan_moves", "if is_last:", "if False:"),
    "a scope is listed for each copy": Mutation(
        dry_run_quotas, "DryRunQuotas._in_order", "if about not in self._listed:", "if True:"
    ),
    "what moved takes what it took": Mutation(
        dry_run_quotas,
        "DryRunQuotas._bytes",
        "self._placement.topology.home(one.tier)",
        "self._placement.topology.home('mid')",
    ),
    "a sweep needs no archive": Mutation(
        plan,
        "plan_of",
        'await placement.read("plan.archive", placement.topology.archive, LEASES, [lease_key()])',
        "pass",
    ),
    "what waits for an advisor moves": Mutation(
        dry_run_moves,
        "DryRunMoves._lasts",
        "if owed.step == ENRICH:\n        return True",
        "if owed.step == ENRICH:\n        return False",
    ),
}
"""No drawn life comes upon these soon: a test is made for each."""
