"""Commands for sources: block a source, and revert its writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.command import Cli, add_group
from memory.cli.options import moment

if TYPE_CHECKING:
    from memory.domain.blocked_source import BlockedSource
    from memory.domain.revert_report import RevertReport

SourceOption = Annotated[
    str | None,
    typer.Option("--source", metavar="NAME", help="The source, as its writes name it: web:example.com."),
]
AgentOption = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="The agent.")]
RunOption = Annotated[str | None, typer.Option("--run", metavar="ID", help="The run of an agent.")]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Only its writes from this time on, in ISO 8601 with a zone."
    ),
]


def register(app: typer.Typer) -> None:
    add_group(
        app,
        "sources",
        "Block sources of entries, or revert their writes.",
        {"block": block, "unblock": unblock, "list": list_blocked, "revert": revert},
    )


async def block(
    cli: Cli,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason for the block.")],
    source: SourceOption = None,
    agent: AgentOption = None,
    run: RunOption = None,
    since: SinceOption = None,
    keep_back: Annotated[
        bool, typer.Option("--keep-back", help="Store its later writes hidden, instead of refusing them.")
    ] = False,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who blocks it.")] = None,
) -> None:
    """Block a source, an agent or a run: hide its entries and all derived from them."""
    async with cli.memory() as memory:
        blocked = await memory.admin.block_source(
            source=source,
            agent=agent,
            run=run,
            since=moment("since", since),
            later_writes="kept_back" if keep_back else "refused",
            reason=reason,
            blocked_by=by,
        )
    cli.emit([one.to_dict() for one in blocked], lambda out: _show(out, blocked))


async def unblock(
    cli: Cli, source: SourceOption = None, agent: AgentOption = None, run: RunOption = None
) -> int:
    """Unblock a source, an agent or a run; searches find its entries again.

    Exits with 1 if it was not blocked.
    """
    async with cli.memory() as memory:
        unblocked = await memory.admin.unblock_source(source=source, agent=agent, run=run)
    cli.emit([one.to_dict() for one in unblocked], lambda out: _show(out, unblocked, "It was not blocked."))
    return 0 if unblocked else 1


async def list_blocked(cli: Cli) -> None:
    """List the blocked sources, oldest first."""
    async with cli.memory() as memory:
        found = await memory.admin.blocked_sources()
    cli.emit([one.to_dict() for one in found], lambda out: _show(out, found))


async def revert(
    cli: Cli,
    source: SourceOption = None,
    agent: AgentOption = None,
    run: RunOption = None,
    since: SinceOption = None,
    erase: Annotated[
        bool, typer.Option("--erase", help="Erase the entries that it created, instead of retiring them.")
    ] = False,
    derived: Annotated[
        bool, typer.Option("--derived", help="Also retire or erase the entries derived from its own.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
    ] = False,
) -> None:
    """Revert all writes of a source, an agent or a run.

    Block it first: this command does not revert what it writes meanwhile.
    """
    async with cli.memory() as memory:
        report = await memory.admin.revert_source(
            source=source,
            agent=agent,
            run=run,
            since=moment("since", since),
            erase=erase,
            derived=derived,
            dry_run=dry_run,
        )
    cli.emit({**report.to_dict(), "counts": report.counts}, lambda out: _show_report(out, report))


def _show(out: Any, found: Sequence[BlockedSource], nothing: str = "No source is blocked.") -> None:
    from memory.cli import rendering

    rows = [
        [
            one.origin,
            one.reason,
            rendering.moment(one.since) if one.since else "ever",
            one.later_writes.replace("_", " "),
            one.blocked_by or "",
        ]
        for one in found
    ]
    columns = ["source", "reason", "since", "later writes", "by"]
    out.print(rendering.table("", columns, rows, nothing=nothing))


def _show_report(out: Any, report: RevertReport) -> None:
    from memory.cli import rendering

    if report.entries:
        rows = [[one.entry_id, one.scope, one.why, one.done, one.note] for one in report.entries]
        out.print(
            rendering.table(
                "", ["entry", "scope", "why", "would be" if report.dry_run else "is", "note"], rows
            )
        )
    out.print(", ".join(f"{count} {done}" for done, count in report.counts.items()))
