"""Commands for the configuration: init and config show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory.cli.command import Cli, add_commands, add_group
from memory.cli.options import write_whole

if TYPE_CHECKING:
    from rich.console import Console

TEMPLATE = Path(__file__).with_name("memory.toml")


def register(app: typer.Typer) -> None:
    add_commands(app, {"init": init})
    add_group(
        app, "config", "Show the configuration, and where each value comes from.", {"show": config_show}
    )


def init(
    cli: Cli,
    force: Annotated[bool, typer.Option("--force", help="Replace memory.toml if it exists.")] = False,
) -> None:
    """Write a commented memory.toml for a local database into the working directory."""
    from memory.domain.errors import InvalidInput
    from memory.facade.config.sources import FILE_NAME

    if cli.config is not None:
        raise InvalidInput(
            "--config",
            "cannot be combined with init: init always writes memory.toml into the working directory",
        )
    path = Path.cwd() / FILE_NAME
    if not force and path.exists():
        raise InvalidInput(FILE_NAME, f"{path} already exists; use --force to replace it")
    with write_whole(path) as file:
        file.write(TEMPLATE.read_text(encoding="utf-8"))
    cli.emit(
        {"written": str(path)},
        lambda out: out.print(f"wrote {path}; try: memory doctor", markup=False, soft_wrap=True),
    )


def config_show(
    cli: Cli,
    origin: Annotated[bool, typer.Option("--origin", help="Show where each value comes from.")] = False,
) -> None:
    """Show every setting in use. Passwords are hidden."""
    from memory.cli import rendering

    config = cli.settings()
    values, origins = config.leaves(), config.origins
    data = {
        name: {"value": value, "origin": origins[name]} if origin else value for name, value in values.items()
    }
    columns = ["setting", "value", *(["origin"] if origin else [])]
    rows = [[name, value, *([origins[name]] if origin else [])] for name, value in values.items()]

    def people(out: Console) -> None:
        out.print(rendering.table("", columns, rows))

    cli.emit(data, people)
