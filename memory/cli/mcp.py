"""The command `memory mcp`, which serves a memory to agents over MCP."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from memory.cli.command import Cli, add_commands
from memory.cli.options import drop_none


def register(app: typer.Typer) -> None:
    add_commands(app, {"mcp": mcp})


async def mcp(
    cli: Cli,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            "-s",
            metavar="SCOPE",
            help=(
                "A scope whose entries callers see and may change, user:default by default. Repeat the"
                " option for more."
            ),
        ),
    ] = None,
    write_scope: Annotated[
        str | None,
        typer.Option(
            "--write-scope", metavar="SCOPE", help="The scope of new entries; the first --scope by default."
        ),
    ] = None,
    read_only: Annotated[
        bool | None,
        typer.Option("--read-only/--no-read-only", help="Leave out the tools that change something."),
    ] = None,
    tools: Annotated[
        str | None,
        typer.Option("--tools", metavar="A,B", help="Offer only these tools, separated by commas."),
    ] = None,
    allow_delete: Annotated[
        bool | None,
        typer.Option(
            "--allow-delete/--no-allow-delete", help="Offer forget_memory, which deletes entries for good."
        ),
    ] = None,
    token_budget: Annotated[
        int | None,
        typer.Option("--token-budget", metavar="N", help="The most tokens of an answer; 5000 by default."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help=(
                "The set of tools: memory, the default, or reference, the nine tools of the reference"
                " knowledge-graph server."
            ),
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--origin",
            metavar="NAME",
            help="The origin of what callers write, mcp:stdio by default. It begins with mcp:.",
        ),
    ] = None,
) -> None:
    """Serve the memory to an agent over MCP, on standard input and output.

    Register the command with your client, such as Claude Code, Cursor or VS Code; they
    start it by themselves. The options say what callers may see and do: no argument of
    a tool can change that. The section "mcp" of the configuration has the same
    settings, and options win over it. Messages go to standard error.
    """
    from memory.facade.config.mcp_section import read_mcp_section
    from memory.mcp.settings import settings_of

    named = None if tools is None else [one.strip() for one in tools.split(",") if one.strip()]
    settings = settings_of(
        read_mcp_section(cli.config, tenant=cli.tenant),
        **drop_none(
            scope=scope or None,
            write_scope=write_scope,
            read_only=read_only,
            tools=named,
            allow_delete=allow_delete,
            token_budget=token_budget,
            profile=profile,
            origin=origin,
        ),
    )
    _require_sdk()
    from memory.mcp.stdio import serve_stdio

    if sys.stdin.isatty():
        cli.say("this is a server for MCP clients, which start it by themselves; Ctrl-C ends it")
    await serve_stdio(cli.build_memory, settings)


def _require_sdk() -> None:
    """Raise `ConfigError` unless the MCP SDK of version 2 is installed."""
    from importlib.metadata import PackageNotFoundError, version

    from memory.domain.errors import ConfigError

    advice = (
        "Install it with: pip install 'memory-tiers[mcp]', in an environment without packages that need mcp<2"
    )
    try:
        found = version("mcp")
    except PackageNotFoundError:
        raise ConfigError(f"mcp: the MCP SDK is not installed. {advice}") from None
    if found.partition(".")[0] != "2":
        raise ConfigError(f"mcp: version {found} is installed, and `memory mcp` needs version 2. {advice}")
