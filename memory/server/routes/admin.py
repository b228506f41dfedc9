"""Routes of administration: legal holds, blocked sources, erasure, plans and stores.

An admin has those of its own tenant. Calls that concern the stores, and so all tenants,
are for operators.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from memory.domain.results import as_json
from memory.server.callers import Caller
from memory.server.facade_calls import Values
from memory.server.operations import Operation, add_operations
from memory.server.routing import ApiRoute

router = APIRouter(tags=["admin"], route_class=ApiRoute)
_ADMIN = "/v1/admin"


class SweepOutcome(BaseModel):
    """The outcome of a round of maintenance for all tenants."""

    ran: bool = Field(description="False if another process runs maintenance.")
    more: bool = Field(description="Whether work is left. Call again to go on.")
    report: dict[str, Any] | None = Field(default=None, description="The whole report, for operators.")


def _show_sweep(caller: Caller, report: Any, asked: Values) -> Values:
    whole = as_json(report) if caller.may("operator") else None
    return {"ran": report.ran, "more": report.more, "report": whole}


def _show_stats(caller: Caller, stats: Any, asked: Values) -> Values:
    """Return the numbers: for an admin, none that counts other tenants too."""
    shown: Values = as_json(stats)
    if not caller.may("operator"):
        shown["pending_steps"] = sum(one["pending_replicas"] for one in shown["tiers"])
        shown["quarantined"] = {}
    return shown


def _show_plan(caller: Caller, plan: Any, asked: Values) -> Values:
    """Return the plan: for an admin, of its own tenant only."""
    shown: Values = as_json(plan)
    if not caller.may("operator"):
        for name in ("planned", "stays"):
            shown[name] = [one for one in shown[name] if one["tenant"] == caller.tenant]
        shown["waiting"] = []  # it names what concerns other tenants
    return shown


OPERATIONS = (
    Operation("GET", f"{_ADMIN}/stats", "admin.stats", "admin", show=_show_stats),
    Operation("GET", f"{_ADMIN}/plan", "admin.plan", "admin", show=_show_plan),
    Operation("POST", f"{_ADMIN}/sweep", "memory.maintain", "admin", show=_show_sweep,
              model=SweepOutcome),
    Operation("GET", f"{_ADMIN}/entries/{{entry_id:text}}/copies", "admin.where", "admin", result="copies"),
    Operation("GET", f"{_ADMIN}/route", "admin.route", "admin"),
    Operation("POST", f"{_ADMIN}/move", "admin.move", "admin"),
    Operation("POST", f"{_ADMIN}/embed-messages", "admin.embed_messages", "admin", result="checked"),
    # -- legal holds and blocked sources
    Operation("GET", f"{_ADMIN}/legal-holds", "admin.legal_holds.list", "admin", result="holds"),
    Operation("POST", f"{_ADMIN}/legal-holds", "admin.legal_holds.add", "admin", status=201,
              example={"name": "case-17", "user": "ada", "reason": "a lawsuit"}),
    Operation("DELETE", f"{_ADMIN}/legal-holds/{{name:text}}", "admin.legal_holds.remove", "admin",
              result="removed"),
    Operation("GET", f"{_ADMIN}/blocked-sources", "admin.blocked_sources", "admin", result="sources"),
    Operation("POST", f"{_ADMIN}/blocked-sources", "admin.block_source", "admin", status=201,
              result="sources",
              example={"source": "web:example.com", "reason": "It was hacked."}),
    Operation("DELETE", f"{_ADMIN}/blocked-sources", "admin.unblock_source", "admin", result="sources"),
    Operation("POST", f"{_ADMIN}/revert-source", "admin.revert_source", "admin",
              example={"source": "web:example.com", "dry_run": True}),
    # -- erasure
    Operation("POST", f"{_ADMIN}/erase", "admin.erase", "admin",
              example={"scope": "user:ada", "dry_run": True}),
    Operation("POST", f"{_ADMIN}/erase-user", "admin.erase_user", "admin",
              example={"user": "ada", "dry_run": True}),
    # -- stores
    Operation("GET", f"{_ADMIN}/stores", "admin.check", "operator", result="stores"),
    Operation("GET", f"{_ADMIN}/stores/rolled-back", "admin.rolled_back_stores", "operator", result="stores"),
    Operation("DELETE", f"{_ADMIN}/stores/{{name:text}}", "admin.forget_store", "operator",
              result="forgotten"),
    Operation("POST", f"{_ADMIN}/stores/audit", "admin.audit", "operator", result="audits"),
    Operation("POST", f"{_ADMIN}/stores/compare", "admin.compare", "operator", omits=("progress",)),
    Operation("POST", f"{_ADMIN}/stores/flush", "admin.flush", "operator", result="flushed"),
    Operation("POST", f"{_ADMIN}/stores/vacuum", "admin.vacuum", "operator", result="stores"),
)  # fmt: skip

add_operations(router, OPERATIONS)
