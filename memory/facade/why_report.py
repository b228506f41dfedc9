"""Report what the rules will do with one entry, and what keeps it in its place."""

from __future__ import annotations

from memory.domain.errors import NotFound
from memory.domain.ids import is_id
from memory.domain.plan import WhyReport
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ENTRIES
from memory.policies.visibility import is_expired
from memory.ports.record import Key


async def why(engine: Engine, tenant: str, entry_id: str) -> WhyReport:
    """Report on one entry.

    Raises:
        NotFound: If there is no such entry.
    """
    await engine.accesses.tell()
    key = Key(tenant, entry_id)
    home = (await engine.placement.locate(ENTRIES, key)).home() if is_id(entry_id) else None
    if home is None:
        raise NotFound(entry_id)
    record, store = home
    now = engine.placement.now()
    rules = [
        forecast for planner in engine.planners for forecast in await planner.forecast(record, store, now)
    ]
    due = [rule for rule in rules if rule.takes and rule.when is not None]
    held = [str(hold) for hold in (await engine.erasure.holds.over([record])).values()]
    if is_expired(record, now):
        held.append("it has expired, so no rule applies to it")
    if (refused := engine.tier_mover.refusals.get(key)) is not None:
        held.append(f"its last move was refused: {refused}")
    if record.owed:
        steps = ", ".join(dict.fromkeys(owed.step for owed in record.owed))
        held.append(f"it has a pending step ({steps}), which runs first")
    following = min(due, key=lambda rule: (rule.when is None, rule.when or now), default=None)
    return WhyReport(entry_id, record.scope, record.tier, store.name, following, tuple(rules), tuple(held))
