"""Slips in what makes plans, which a drawn life that is planned and swept must show
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
from tests.support.slips import Slip

SLIPS = {
    "whom a quota has go is not told": Slip(
        dry_run_quotas, "DryRunQuotas._let_go", "self._gone.append((place.quota, head))", "pass"
    ),
    "whom a quota has go is there for what comes behind": Slip(
        dry_run_quotas, "DryRunQuotas._let_go", "self._ahead.goes(ENTRIES, head)", "pass"
    ),
    "a quota counts what stands alone": Slip(
        dry_run_quotas, "DryRunQuotas._usage_change", "in changes[seen:]:", "in ():"
    ),
    "a quota has those go that are gone": Slip(
        dry_run_quotas, "DryRunQuotas._that_stay", "if not self._ahead.knows(ENTRIES, head.key)", "if True"
    ),
    "a copy has no quota": Slip(promotion, "Promotion._plan_copy", "[NewEntry.of(copy, derived=True)]", "[]"),
    "what was copied is copied again": Slip(
        promotion, "Promotion._plan_copy", "if there.record is None and not", "if not"
    ),
    "a copy that is gone is made again": Slip(
        promotion,
        "Promotion._plan_copy",
        "ahead.is_gone(ENTRIES, copy.key) or (there.record is None and stands)",
        "False",
    ),
    "the end moves nothing for sweeps to meet": Slip(
        promotion, "Promotion._plan_moves", "planning.ahead.moves(collection, one.row, target)", "pass"
    ),
    "what expires is there for rules": Slip(
        dry_run_due, "DryRunDueWork._goes", "planning.ahead.goes(collection, record)", "pass"
    ),
    "what expires is not told": Slip(
        dry_run_due, "DryRunDueWork._goes", 'planning.does("expire", collection, record, "", because)', "pass"
    ),
    "what is held expires": Slip(dry_run_due, "DryRunDueWork._goes", "if record.key in held:", "if False:"),
    "what is made is not there for rules and quotas": Slip(
        dry_run_due, "DryRunDueWork._plan_leaving", "planning.ahead.comes(ENTRIES, record)", "pass"
    ),
    "what an end asked for by hand does is not told": Slip(
        dry_run_due, "DryRunDueWork._plan_ends", "elif ending is None:", "elif True:"
    ),
    "what an end has done is owed still": Slip(
        dry_run_due, "DryRunDueWork._plan_ends", "planning.ahead.settled.add((owner.key, END))", "pass"
    ),
    "what is made has no quota": Slip(
        dry_run_due,
        "DryRunDueWork._plan_leaving",
        "[NewEntry.of(record, derived=True) for record in fresh]",
        "[]",
    ),
    "a session goes of which messages are to go onward": Slip(
        retention, "Retention._plan_one", "await self._leaves(row.partition, ahead.settled)", "False"
    ),
    "versions are told beside their entry": Slip(
        retention, "Retention._plan_one", "ahead.is_gone(", "ahead.comes_to_be("
    ),
    "what is held goes by rule": Slip(
        retention, "Retention.plan", "if one.row.key in free else", "if True else"
    ),
    "a rule meets what is gone": Slip(
        retention, "Retention._entries", "rows = walk.page(rows, is_last=page.cursor is None)", "pass"
    ),
    "a move goes to a store that is away": Slip(
        dry_run_moves,
        "DryRunMoves.staying_records",
        "return {key: StayReason(str(error), isinstance(error, StoreUnavailable)) for key in keys}",
        "return {}",
    ),
}

SHOWN_BY_ONE_TEST = {
    "what was answered still leaves": Slip(
        dry_run_due, "DryRunDueWork._plan_leaving", "planning.ahead.settled.add((owner.key, LEAVE))", "pass"
    ),
    "what is new is kept with its texts": Slip(
        dry_run,
        "DryRunState._without_texts",
        "return row if copied else head_of",
        "return row if True else head_of",
    ),
    "what moves at last is kept": Slip(promotion, "Promotion._plan_moves", "if is_last:", "if False:"),
    "a scope is listed for each copy": Slip(
        dry_run_quotas, "DryRunQuotas._in_order", "if about not in self._listed:", "if True:"
    ),
    "what moved takes what it took": Slip(
        dry_run_quotas,
        "DryRunQuotas._bytes",
        "self._placement.topology.home(one.tier)",
        "self._placement.topology.home('mid')",
    ),
    "a sweep needs no archive": Slip(
        plan, "plan_of", "await placement.topology.archive.get(LEASES, [lease_key()])", "pass"
    ),
    "what waits for an advisor moves": Slip(
        dry_run_moves,
        "DryRunMoves._lasts",
        "if owed.step == ENRICH:\n        return True",
        "if owed.step == ENRICH:\n        return False",
    ),
}
"""No drawn life comes upon these soon: a test is made for each."""
