"""The command `memory mem`: run the `/mem` language of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from memory.cli.command import Cli, add_commands
from memory.cli.options import ScopeOption, drop_none, read_text

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    add_commands(app, {"mem": mem})


async def mem(
    cli: Cli,
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help='Commands such as "/mem search tea", one on each line; - reads standard input.',
        ),
    ],
    scope: ScopeOption,
    reads: Annotated[
        list[str] | None,
        typer.Option(
            "--reads",
            metavar="SCOPE|tenant",
            help=(
                "A scope that may be read, or the whole tenant; by default --scope. Repeat the option for"
                " more."
            ),
        ),
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option(
            "--conversation", metavar="ID", help="The session that new entries name as their conversation."
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", "-a", metavar="NAME", help="The agent that writes, and whose scratchpad is used."
        ),
    ] = None,
) -> int:
    """Run the `/mem` commands in a text.

    Exits with 1 if a command failed or the text has no command.
    """
    from memory.cli import rendering

    asked = read_text(text)
    within = "tenant" if reads == ["tenant"] else reads
    options = drop_none(reads=within, conversation=conversation, agent=agent)
    async with cli.memory() as memory:
        await memory.commands.run("", scope=scope, **options)  # it checks the options
        await memory.open()
        found = await memory.commands.run(asked, scope=scope, **options)
    if not found:
        cli.say("no line begins with /mem: nothing was done; `/mem` alone lists the commands")

    def people(out: Console) -> None:
        for one in found:
            out.print(rendering.plain(one.text), soft_wrap=True)

    cli.emit({"results": [one.to_dict() for one in found]}, people)
    return 1 if not found or any(one.is_error for one in found) else 0
