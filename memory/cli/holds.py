"""Commands on legal holds: what may not be deleted until its hold is removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.command import Cli, command
from memory.cli.numbered import id_of
from memory.domain.errors import InvalidInput

if TYPE_CHECKING:
    from memory.domain.hold import LegalHold


def register(app: typer.Typer) -> None:
    holds = typer.Typer(
        help="Legal holds: what may not be deleted until its hold is removed.", no_args_is_help=True
    )
    command(holds, "add")(add)
    command(holds, "remove")(remove)
    command(holds, "list")(list_holds)
    app.add_typer(holds, name="legal-holds")


async def add(
    cli: Cli,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Such as a case's. Several things can be held under one name."),
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")],
    scope: Annotated[
        str | None, typer.Option("--scope", "-s", metavar="KIND:ID", help="Over a scope.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="ID", help="Over a user: their scope, and the sessions with them."),
    ] = None,
    entry: Annotated[
        str | None, typer.Option("--entry", metavar="ID", help="Over an entry, by its id or its short id.")
    ] = None,
    whole_tenant: Annotated[bool, typer.Option("--whole-tenant", help="Over the whole tenant.")] = False,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who places it.")] = None,
) -> None:
    """Place a hold over a scope, a user, an entry or the whole tenant. Nothing and nobody
    can delete what is under it.
    """
    if sum(given is not None for given in (scope, user, entry)) + whole_tenant != 1:
        raise InvalidInput(
            "hold",
            "must be over exactly one of --scope, --user, --entry, --whole-tenant; "
            "add it again for each other thing to hold",
        )
    async with cli.memory() as memory:
        held = None if entry is None else await id_of(memory, entry)
        placed = await memory.admin.legal_holds.add(
            name, reason=reason, scope=scope, user=user, entry_id=held, tenant=whole_tenant, placed_by=by
        )
    cli.emit(placed.to_dict(), lambda out: _show(out, [placed]))


async def remove(cli: Cli, name: Annotated[str, typer.Argument(metavar="NAME")]) -> int:
    """Remove all holds under a name. The next sweep deletes what has expired meanwhile."""
    async with cli.memory() as memory:
        removed = await memory.admin.legal_holds.remove(name)
    cli.emit(
        [one.to_dict() for one in removed],
        lambda out: _show(out, removed, "There is no hold under this name."),
    )
    return 0 if removed else 1


async def list_holds(cli: Cli) -> None:
    """List the legal holds, oldest first."""
    async with cli.memory() as memory:
        found = await memory.admin.legal_holds.list()
    cli.emit([one.to_dict() for one in found], lambda out: _show(out, found))


def _show(out: Any, found: Sequence[LegalHold], nothing: str = "There is no legal hold.") -> None:
    from memory.cli import show

    if not found:
        out.print(nothing)
        return
    rows = [
        [one.name, one.target, one.reason, show.moment(one.placed_at), one.placed_by or ""] for one in found
    ]
    out.print(show.table("", ["name", "over", "reason", "since", "by"], rows))
