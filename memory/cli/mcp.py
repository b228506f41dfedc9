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
            help="A scope that callers see, user:default without it. Repeat the option for more.",
        ),
    ] = None,
    write_scope: Annotated[
        str | None,
        typer.Option(
            "--write-scope", metavar="SCOPE", help="The scope of new entries; the first --scope by default."
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Leave out the tools that change something.")
    ] = False,
    tools: Annotated[
        str | None,
        typer.Option("--tools", metavar="A,B", help="Offer only these tools, separated by commas."),
    ] = None,
    allow_delete: Annotated[
        bool, typer.Option("--allow-delete", help="Offer forget_memory, which deletes entries for good.")
    ] = False,
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
) -> None:
    """Serve the memory to an agent over MCP, on standard input and output.

    Register the command with your client, such as Claude Code, Cursor or VS Code; they
    start it by themselves. The options say what callers may see and do: no argument of
    a tool can change that. Messages go to standard error.
    """
    from memory.mcp.settings import McpSettings

    named = None if tools is None else frozenset(one.strip() for one in tools.split(",") if one.strip())
    settings = McpSettings(
        read_only=read_only,
        allow_delete=allow_delete,
        **drop_none(
            scopes=tuple(scope) if scope else None,
            write_scope=write_scope,
            tools=named,
            token_budget=token_budget,
            profile=profile,
        ),
    )
    _require_sdk()
    from memory.mcp.stdio import serve_stdio

    if sys.stdin.isatty():
        cli.say("this is a server for MCP clients, which start it by themselves; Ctrl-C ends it")
    await serve_stdio(cli.memory, settings)


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
