"""`memory mem`: the language of agents on the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from memory.cli.command import Cli, command
from memory.cli.options import ScopeOption, drop_none

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    command(app, "mem")(mem)


async def mem(
    cli: Cli,
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT", help='Commands such as "/mem search tea", one a line; - reads standard input.'
        ),
    ],
    scope: ScopeOption,
    reads: Annotated[
        list[str] | None,
        typer.Option(
            "--reads",
            metavar="SCOPE|tenant",
            help="What may be read, if not the scope alone; repeat it for more.",
        ),
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option("--conversation", metavar="ID", help="The session to which what is added is pinned."),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", "-a", metavar="NAME", help="Who writes it, and whose scratchpad it is."),
    ] = None,
) -> int:
    """Carry out what an agent writes: `/mem` commands. Ends with 1 where one of them
    failed, or there was none.
    """
    from memory.cli import show

    asked = sys.stdin.read() if text == "-" else text
    within = "tenant" if reads == ["tenant"] else reads
    async with cli.memory() as memory:
        found = await memory.commands.run(
            asked, scope=scope, **drop_none(reads=within, conversation=conversation, agent=agent)
        )
    if not found:
        cli.say("no line begins with /mem: nothing was done; `/mem` alone says what there is")

    def people(out: Console) -> None:
        for one in found:
            out.print(show.plain(one.text), soft_wrap=True)

    cli.emit({"results": [one.to_dict() for one in found]}, people)
    return 1 if not found or any(one.is_error for one in found) else 0
