"""Check the arguments of calls that block and unblock sources."""

from __future__ import annotations

from collections.abc import Sequence

from memory.domain import validation
from memory.domain.blocked_source import LATER_WRITES, BlockedSource, LaterWrites
from memory.domain.errors import InvalidInput
from memory.domain.provenance import Provenance, named_in
from memory.facade.arguments import Moment, moment
from memory.facade.runtime.access import Access

MOST_OF_A_REASON = 2_000


def origins_of(source: str | None, agent: str | None, run: str | None) -> list[str]:
    """Return the named source, agent and run. At least one must be named."""
    Provenance(source, agent, run)
    if not (origins := named_in({"source": source, "agent": agent, "run": run})):
        raise InvalidInput("source", "must be given, or agent= or run=. Pass at least one of the three")
    return origins


async def block_source(
    access: Access,
    origins: Sequence[str],
    *,
    since: Moment | None,
    later_writes: LaterWrites,
    reason: str,
    blocked_by: str | None,
) -> list[BlockedSource]:
    """Check the terms, and block each of these origins."""
    validation.one_of("later_writes", later_writes, LATER_WRITES)
    validation.text("reason", reason, max_chars=MOST_OF_A_REASON, min_chars=1)
    by = None if blocked_by is None else validation.identifier("blocked_by", blocked_by)
    at, now = moment("since", since), access.engine.placement.now()
    return await access.engine.trust.blocked_sources.block(
        access.tenant, [BlockedSource(one, at, later_writes, reason, by, now) for one in origins]
    )
