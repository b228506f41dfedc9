"""Commands that copy a memory's file: backup and restore."""

from __future__ import annotations

from typing import Annotated

import typer

from memory.cli.command import Cli, command


def register(app: typer.Typer) -> None:
    command(app, "backup")(backup)
    command(app, "restore")(restore)


async def backup(
    cli: Cli, file: Annotated[str, typer.Argument(metavar="FILE", help="The new file of the backup.")]
) -> None:
    """Copy the memory's SQLite file to a new file, also while other processes write.

    The backup holds every write that was acknowledged before it began. It is checked
    before it gets its name. Other backends have tools of their own: docs/backends.md,
    'Backups'.
    """
    from memory.cli import show
    from memory.facade.backups import back_up

    made = await back_up(cli.settings(), file)
    cli.emit(
        made.to_dict(), lambda out: out.print(show.plain(f"{made.file}: backup of {show.size(made.bytes)}"))
    )


async def restore(
    cli: Cli,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A backup.")],
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace the memory's file if there is one; the old file is kept beside it."
        ),
    ] = False,
) -> None:
    """Put a backup in the place of the memory's SQLite file. No process may have that
    file open.

    The file that was there is renamed, not deleted. Delete it when you do not need it
    any more: it holds what was erased since the backup, too.
    """
    from memory.cli import show
    from memory.facade.backups import restore as restored_from

    came = await restored_from(cli.settings(), file, replace=replace)
    kept = f"; the file that was there is {came.kept}" if came.kept else ""
    cli.emit(came.to_dict(), lambda out: out.print(show.plain(f"{came.file}: restored{kept}")))
