"""Commands for legal holds, which keep data from being deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.command import Cli, add_group
from memory.cli.short_ids import id_of
from memory.domain.errors import InvalidInput

if TYPE_CHECKING:
    from memory.domain.legal_hold import LegalHold


def register(app: typer.Typer) -> None:
    add_group(
        app,
        "legal-holds",
        "Add, remove and list legal holds, which keep data from being deleted.",
        {"add": add, "remove": remove, "list": list_holds},
    )


async def add(
    cli: Cli,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The name of the hold, such as a case number. Several holds can share a name.",
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason for the hold.")],
    scope: Annotated[
        str | None, typer.Option("--scope", "-s", metavar="KIND:ID", help="Hold a scope, such as user:ada.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="ID", help="Hold a user: their scope, and the sessions with them."),
    ] = None,
    entry: Annotated[
        str | None, typer.Option("--entry", metavar="ID", help="Hold an entry, by its id or its short id.")
    ] = None,
    whole_tenant: Annotated[bool, typer.Option("--whole-tenant", help="Hold the whole tenant.")] = False,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who places the hold.")] = None,
) -> None:
    """Place a hold on a scope, a user, an entry or the whole tenant.

    No caller and no rule can delete the held data until the hold is removed.
    """
    if sum(given is not None for given in (scope, user, entry)) + whole_tenant != 1:
        raise InvalidInput(
            "hold",
            "takes exactly one of --scope, --user, --entry and --whole-tenant; "
            "add another hold for each other thing",
        )
    async with cli.memory() as memory:
        held = None if entry is None else await id_of(memory, entry)
        placed = await memory.admin.legal_holds.add(
            name, reason=reason, scope=scope, user=user, entry_id=held, tenant=whole_tenant, placed_by=by
        )
    cli.emit(placed.to_dict(), lambda out: _show(out, [placed]))


async def remove(
    cli: Cli, name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the holds.")]
) -> int:
    """Remove all holds under a name.

    The next sweep deletes the data that expired meanwhile. Exits with 1 if there is no
    hold under the name.
    """
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
    from memory.cli import rendering

    rows = [
        [one.name, one.target, one.reason, rendering.moment(one.placed_at), one.placed_by or ""]
        for one in found
    ]
    out.print(rendering.table("", ["name", "over", "reason", "since", "by"], rows, nothing=nothing))
