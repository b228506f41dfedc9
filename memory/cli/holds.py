"""Commands on legal holds: what may not be deleted until somebody releases it."""

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
    hold = typer.Typer(
        help="Legal holds: what may not be deleted until somebody releases it.", no_args_is_help=True
    )
    command(hold, "place")(place)
    command(hold, "release")(release)
    command(hold, "list")(holds)
    app.add_typer(hold, name="hold")


async def place(
    cli: Cli,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Such as a case's; the same name may be placed over several things."
        ),
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
        str | None, typer.Option("--entry", metavar="ID", help="Over an entry, by its id or its number.")
    ] = None,
    whole_tenant: Annotated[bool, typer.Option("--whole-tenant", help="Over all of the tenant.")] = False,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who places it.")] = None,
) -> None:
    """Hold a scope, a user, an entry or the whole tenant: nothing and nobody deletes
    what is under it.
    """
    if sum(given is not None for given in (scope, user, entry)) + whole_tenant != 1:
        raise InvalidInput(
            "hold",
            "is over one of --scope, --user, --entry, --whole-tenant; place it again for what else is held",
        )
    async with cli.memory() as memory:
        held = None if entry is None else await id_of(memory, entry)
        placed = await memory.admin.hold(
            name, reason=reason, scope=scope, user=user, entry_id=held, tenant=whole_tenant, placed_by=by
        )
    cli.emit(placed.to_dict(), lambda out: _show(out, [placed]))


async def release(cli: Cli, name: Annotated[str, typer.Argument(metavar="NAME")]) -> int:
    """Release what is held under a name. What has expired meanwhile goes with the next
    sweep.
    """
    async with cli.memory() as memory:
        released = await memory.admin.release_hold(name)
    cli.emit(
        [one.to_dict() for one in released],
        lambda out: _show(out, released, "Nothing is held under this name."),
    )
    return 0 if released else 1


async def holds(cli: Cli) -> None:
    """What is held, oldest first."""
    async with cli.memory() as memory:
        found = await memory.admin.holds()
    cli.emit([one.to_dict() for one in found], lambda out: _show(out, found))


def _show(out: Any, found: Sequence[LegalHold], nothing: str = "Nothing is held.") -> None:
    from memory.cli import show

    if not found:
        out.print(nothing)
        return
    rows = [
        [one.name, one.target, one.reason, show.moment(one.placed_at), one.placed_by or ""] for one in found
    ]
    out.print(show.table("", ["name", "over", "why", "since", "by"], rows))
