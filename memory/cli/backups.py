"""Commands that copy the file of a memory: backup and restore."""

from __future__ import annotations

from typing import Annotated

import typer

from memory.cli.command import Cli, add_commands


def register(app: typer.Typer) -> None:
    add_commands(app, {"backup": backup, "restore": restore})


async def backup(
    cli: Cli, file: Annotated[str, typer.Argument(metavar="FILE", help="The file to create for the backup.")]
) -> None:
    """Copy the memory's SQLite file to a new file, even while other processes write.

    The backup holds every write that was acknowledged before it began. It is checked
    before it gets its name. Other backends have their own tools: see 'Backups' in
    docs/backends.md.
    """
    from memory.cli import rendering
    from memory.facade.transfer.backups import back_up

    made = await back_up(cli.settings(), file)
    cli.emit(
        made.to_dict(),
        lambda out: out.print(rendering.plain(f"{made.file}: backup of {rendering.size(made.bytes)}")),
    )


async def restore(
    cli: Cli,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The backup to restore.")],
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace the file of the memory if it exists. The old file is kept beside it."
        ),
    ] = False,
) -> None:
    """Replace the memory's SQLite file with a backup.

    No process may have that file open. The old file is renamed, not deleted. Delete it
    when you no longer need it: it also holds data that was erased since the backup.
    """
    from memory.cli import rendering
    from memory.facade.transfer.backups import restore as restored_from

    came = await restored_from(cli.settings(), file, replace=replace)
    kept = f"; the old file is now {came.kept}" if came.kept else ""
    cli.emit(came.to_dict(), lambda out: out.print(rendering.plain(f"{came.file}: restored{kept}")))
