"""Commands on trust: what is distrusted and so found by nobody, and taking back what it
wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.command import Cli, command
from memory.cli.options import moment

if TYPE_CHECKING:
    from memory.domain.distrust import BlockedSource
    from memory.domain.rolled_back import RolledBack

SourceOption = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="NAME", help="A source, as it was named when it wrote: web:example.com."
    ),
]
AgentOption = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="An agent.")]
RunOption = Annotated[str | None, typer.Option("--run", metavar="ID", help="A run of an agent.")]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="What it wrote from then on, in ISO 8601 with a zone."),
]


def register(app: typer.Typer) -> None:
    distrust = typer.Typer(
        help="Distrust: whose entries nobody finds until somebody trusts it again.", no_args_is_help=True
    )
    command(distrust, "place")(place)
    command(distrust, "lift")(lift)
    command(distrust, "list")(distrusts)
    app.add_typer(distrust, name="distrust")
    command(app, "rollback")(rollback)


async def place(
    cli: Cli,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")],
    source: SourceOption = None,
    agent: AgentOption = None,
    run: RunOption = None,
    since: SinceOption = None,
    keep_back: Annotated[
        bool, typer.Option("--keep-back", help="Store what it writes later, unseen, instead of refusing it.")
    ] = False,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who distrusts it.")] = None,
) -> None:
    """Let nobody find what a source, an agent or a run wrote, and what was made of
    that.
    """
    async with cli.memory() as memory:
        placed = await memory.admin.distrust(
            source=source,
            agent=agent,
            run=run,
            since=moment("since", since),
            later_writes="kept_back" if keep_back else "refused",
            reason=reason,
            distrusted_by=by,
        )
    cli.emit([one.to_dict() for one in placed], lambda out: _show(out, placed))


async def lift(
    cli: Cli, source: SourceOption = None, agent: AgentOption = None, run: RunOption = None
) -> int:
    """Trust it again: what it wrote is found."""
    async with cli.memory() as memory:
        lifted = await memory.admin.trust(source=source, agent=agent, run=run)
    cli.emit([one.to_dict() for one in lifted], lambda out: _show(out, lifted, "It was not distrusted."))
    return 0 if lifted else 1


async def distrusts(cli: Cli) -> None:
    """What is distrusted, oldest first."""
    async with cli.memory() as memory:
        found = await memory.admin.distrusted()
    cli.emit([one.to_dict() for one in found], lambda out: _show(out, found))


async def rollback(
    cli: Cli,
    source: SourceOption = None,
    agent: AgentOption = None,
    run: RunOption = None,
    since: SinceOption = None,
    erase: Annotated[
        bool, typer.Option("--erase", help="Erase what it created, for good, instead of retiring it.")
    ] = False,
    derived: Annotated[
        bool, typer.Option("--derived", help="What was made of its entries goes too.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
) -> None:
    """Take back all that a source, an agent or a run wrote. Distrust it first: what it
    writes meanwhile stays.
    """
    async with cli.memory() as memory:
        report = await memory.admin.roll_back(
            source=source,
            agent=agent,
            run=run,
            since=moment("since", since),
            erase=erase,
            derived=derived,
            dry_run=dry_run,
        )
    cli.emit({**report.to_dict(), "counts": report.counts}, lambda out: _show_report(out, report))


def _show(out: Any, found: Sequence[BlockedSource], nothing: str = "Nothing is distrusted.") -> None:
    from memory.cli import show

    if not found:
        out.print(nothing)
        return
    rows = [
        [
            one.origin,
            one.reason,
            show.moment(one.since) if one.since else "ever",
            one.later_writes.replace("_", " "),
            one.distrusted_by or "",
        ]
        for one in found
    ]
    out.print(show.table("", ["what", "why", "since", "later writes", "by"], rows))


def _show_report(out: Any, report: RolledBack) -> None:
    from memory.cli import show

    if report.entries:
        rows = [[one.entry_id, one.scope, one.why, one.done, one.note] for one in report.entries]
        out.print(
            show.table("", ["entry", "scope", "why", "would be" if report.dry_run else "is", "note"], rows)
        )
    out.print(", ".join(f"{count} {done}" for done, count in report.counts.items()))
