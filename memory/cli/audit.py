"""Commands for the audit log of `memory serve`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.command import Cli, add_group
from memory.cli.keys import server_memory
from memory.cli.options import CursorOption, expiry
from memory.cli.serve import require_extra

if TYPE_CHECKING:
    from memory.server.identity import AuditPage, AuditRecord


def register(app: typer.Typer) -> None:
    add_group(app, "audit", "Show what callers of `memory serve` did.", {"list": list_records})


async def list_records(
    cli: Cli,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only from this time on, or from so long ago: 1d."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="ID", help="Only records of this key.")] = None,
    every: Annotated[bool, typer.Option("--all", help="List the records of every tenant.")] = False,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, max=1000, metavar="N", help="The largest number of records."),
    ] = 100,
    cursor: CursorOption = None,
) -> None:
    """List requests of the tenant, newest first: who did what, and the outcome.

    Records name no content. Scopes and other names are hashed.
    """
    require_extra()
    from memory.server.identity import AuditLog
    from memory.server.identity.api_key import check_key_id
    from memory.server.identity.audit import check_cursor

    begins = _moment(since)
    key_id = None if key is None else check_key_id(key)
    check_cursor(cursor)
    async with server_memory(cli) as memory:
        page = await AuditLog(memory, keep=cli.settings().server.audit.keep).list(
            tenant=None if every else cli.settings().tenant,
            key_id=key_id,
            since=begins,
            limit=limit,
            cursor=cursor,
        )
    shown = {"records": [one.to_dict() for one in page.records], "cursor": page.cursor}
    cli.emit(shown, lambda out: _show(out, page))


def _moment(since: str | None) -> Any:
    from datetime import UTC, datetime

    from memory.domain.errors import InvalidInput

    found = expiry("since", since)
    if isinstance(found, str):  # an ISO 8601 duration, which only settings may have
        raise InvalidInput("since", "should be a time, or a length of time such as 1d or 12h")
    if not isinstance(found, timedelta):
        return found
    return datetime.now(UTC) - min(found, timedelta(days=36_525))


def _show(out: Any, page: AuditPage) -> None:
    from memory.cli import rendering

    if not page.records:
        out.print("There is no record.")
        return
    out.print(rendering.table("", ["time", "key", "action", "outcome", "targets"], _rows(page.records)))
    if page.cursor is not None:
        out.print(f"There are more: --cursor {page.cursor}", markup=False, soft_wrap=True)


def _rows(records: Sequence[AuditRecord]) -> list[list[str]]:
    from memory.cli import rendering

    return [
        [
            rendering.moment(one.at),
            one.key_id or "(none)",
            one.action + (f" ({one.count} times)" if one.count > 1 else ""),
            str(one.outcome),
            " ".join(one.targets),
        ]
        for one in records
    ]
