"""The command that lists scopes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from memory.cli.command import Cli, add_commands
from memory.cli.options import CursorOption, LimitOption

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    add_commands(app, {"scopes": scopes})


async def scopes(
    cli: Cli,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Only this path and the paths below it, such as path:teams/red/."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Only scopes of this kind, such as user.")
    ] = None,
    max_depth: Annotated[
        int | None,
        typer.Option(metavar="N", help="Show a path with more than N labels as its first N labels."),
    ] = None,
    limit: LimitOption = 100,
    cursor: CursorOption = None,
) -> int:
    """List the scopes that hold something, with counts.

    Exits with 1 if there is none.
    """
    async with cli.memory() as memory:
        page = await memory.scopes.list(prefix, kind=kind, max_depth=max_depth, limit=limit, cursor=cursor)

    def people(out: Console) -> None:
        from memory.cli import rendering

        rows = [[str(one.scope), one.entries, one.documents, one.sessions] for one in page.scopes]
        figures = ("entries", "documents", "sessions")
        if rows:
            out.print(rendering.table("Scopes", ["scope", *figures], rows, right=figures))
        else:
            cli.say("no scope holds anything")
        if page.cursor:
            cli.say(f"more: --cursor {page.cursor}")

    cli.emit(page.to_dict(), people)
    return 0 if page.scopes else 1
