"""Commands for scratchpads: the notes of agents."""

from __future__ import annotations

from typing import Annotated

import typer

from memory.cli.command import Cli, add_group
from memory.cli.options import read_text

Agent = Annotated[
    str | None,
    typer.Option(
        "--agent", "-a", metavar="NAME", help="The agent; by default the scratchpad that all agents share."
    ),
]


def register(app: typer.Typer) -> None:
    add_group(
        app,
        "scratchpad",
        "Show, append to and clear scratchpads: plain-text notes of agents.",
        {"show": show, "append": append, "clear": clear},
    )


async def show(cli: Cli, agent: Agent = None) -> int:
    """Show a scratchpad.

    Exits with 1 if nothing was ever appended to it.
    """
    from memory.cli import rendering as shown

    async with cli.memory() as memory:
        found = await memory.scratchpads.read(agent)
    cli.emit(
        found.to_dict(),
        lambda out: out.print(shown.plain(found.content.rstrip("\n") or "It is empty."), soft_wrap=True),
    )
    return 0 if found.exists else 1


async def append(
    cli: Cli,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to append; - reads standard input.")],
    agent: Agent = None,
) -> None:
    """Append a text to a scratchpad, under a header with the time."""
    from memory.cli import rendering as shown

    appended = read_text(text)
    async with cli.memory() as memory:
        size = await memory.scratchpads.append(appended, agent)
    cli.emit(
        {"agent": agent, "size": size},
        lambda out: out.print(shown.plain(f"The scratchpad holds {size:,} bytes now.")),
    )


async def clear(cli: Cli, agent: Agent = None) -> int:
    """Delete the content of a scratchpad.

    Exits with 1 if it was empty.
    """
    from memory.cli import rendering as shown

    async with cli.memory() as memory:
        cleared = await memory.scratchpads.clear(agent)
    cli.emit(
        {"agent": agent, "cleared": cleared},
        lambda out: out.print(shown.plain("Cleared." if cleared else "It was empty.")),
    )
    return 0 if cleared else 1
