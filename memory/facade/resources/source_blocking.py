"""Check the arguments of calls that block and unblock sources."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from memory.domain import validation
from memory.domain.blocked_source import LATER_WRITES, BlockedSource, LaterWrites
from memory.domain.errors import InvalidInput
from memory.domain.provenance import Provenance, mcp_source, named_in
from memory.domain.revert_report import RevertReport
from memory.domain.time import micros
from memory.domain.time import moment as time_of
from memory.facade.arguments import Moment, moment
from memory.facade.runtime.access import Access
from memory.facade.runtime.request_ids import request_of
from memory.orchestrator.storage.requests import RequestMark

MOST_OF_A_REASON = 2_000


def origins_of(source: str | None, agent: str | None, run: str | None) -> list[str]:
    """Return the named source, agent and run. At least one must be named.

    The source of a server's key comes with that of the same key over MCP.
    """
    Provenance(source, agent, run)
    if not (origins := named_in({"source": source, "agent": agent, "run": run})):
        raise InvalidInput("source", "must be given, or agent= or run=. Pass at least one of the three")
    over_mcp = named_in({"source": mcp_source(source)})
    return [*origins[:1], *over_mcp, *origins[1:]]


async def block_source(
    access: Access,
    origins: Sequence[str],
    *,
    since: Moment | None,
    later_writes: LaterWrites,
    reason: str,
    blocked_by: str | None,
    request_id: object,
) -> list[BlockedSource]:
    """Check the terms, and block each of these origins."""
    validation.one_of("later_writes", later_writes, LATER_WRITES)
    validation.text("reason", reason, max_chars=MOST_OF_A_REASON, min_chars=1)
    by = access.writer if blocked_by is None else validation.identifier("blocked_by", blocked_by)
    at = moment("since", since)
    asked = {"origins": origins, "since": at, "later_writes": later_writes, "reason": reason, "by": by}
    request = request_of("admin.block_source", request_id, asked)

    def sources(now: datetime) -> list[BlockedSource]:
        return [BlockedSource(one, at, later_writes, reason, by, now) for one in origins]

    async def block(mark: RequestMark | None) -> list[BlockedSource]:
        now = access.engine.placement.now() if mark is None else mark.begun_at
        return await access.engine.trust.blocked_sources.block(access.tenant, sources(now))

    async def read(noted: Any) -> list[BlockedSource]:
        return sources(time_of(noted["at"]))

    return await access.once(request, block, lambda made: {"at": micros(made[0].blocked_at)}, read)


async def unblock_source(access: Access, origins: Sequence[str], request_id: object) -> list[BlockedSource]:
    """Unblock origins. A repeat spares those that were blocked since."""
    request = request_of("admin.unblock_source", request_id, {"origins": origins})

    async def unblock(mark: RequestMark | None) -> list[BlockedSource]:
        until = mark.begun_at if mark is not None and mark.repeats else None
        return await access.engine.trust.blocked_sources.unblock(access.tenant, origins, until)

    return await access.once_marked(request, unblock, [])


async def revert_source(
    access: Access,
    origins: Sequence[str],
    *,
    since: datetime | None,
    erase: bool,
    derived: bool,
    dry_run: bool,
    request_id: object,
) -> RevertReport:
    """Revert what origins wrote, until the request began if there is one."""
    work, tenant = access.engine.source_reverter, access.tenant
    if dry_run:
        if request_id is not None:
            raise InvalidInput("request_id", "cannot be combined with dry_run=True, which changes nothing")
        return await work.plan(tenant, origins, since=since, erase=erase, derived=derived)
    asked = {"origins": origins, "since": since, "erase": erase, "derived": derived}
    request = request_of("admin.revert_source", request_id, asked)

    async def revert(mark: RequestMark | None) -> RevertReport:
        until = None if mark is None else mark.begun_at
        return await work.run(tenant, origins, since=since, erase=erase, derived=derived, until=until)

    return await access.once_marked(request, revert, RevertReport(tuple(origins), dry_run=False))
