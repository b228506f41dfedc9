"""Commands for artifacts: the files of sessions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.command import Cli, add_group
from memory.cli.options import CursorOption, name_of, write_whole
from memory.cli.short_ids import id_of, numbers_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from memory.domain.artifact import Artifact
    from memory.facade.memory import Memory

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The id of the session.")]
Which = Annotated[
    str,
    typer.Argument(
        metavar="ID|PATH", help="The short id (#42) or id of the artifact or, with --session, its path."
    ),
]
InSession = Annotated[
    str | None,
    typer.Option(
        "--session", "-s", metavar="ID", help="The session that holds the artifact under this path."
    ),
]


def register(app: typer.Typer) -> None:
    add_group(
        app,
        "artifact",
        "Store, read, list and delete the files of sessions.",
        {"put": put, "get": get, "list": list_artifacts, "delete": delete},
    )


async def put(
    cli: Cli,
    session_id: SessionId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to store; - reads standard input.")],
    path: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The path in the session; by default the name of the file. Needed for standard input.",
        ),
    ] = None,
    media_type: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE", help="The media type, such as text/markdown; by default guessed from the path."
        ),
    ] = None,
) -> None:
    """Store a file in a session; it replaces the artifact at the same path."""
    import mimetypes

    from memory.cli import rendering
    from memory.domain.artifact import ANY_MEDIA_TYPE
    from memory.domain.errors import InvalidInput

    if file == "-" and path is None:
        raise InvalidInput("path", "is missing: standard input has no name. Set --path")
    named = path or name_of(file).name
    kind = media_type or mimetypes.guess_type(named)[0] or ANY_MEDIA_TYPE
    async with cli.memory() as memory:
        stored = await memory.artifacts.put(
            session_id, named, sys.stdin.buffer if file == "-" else Path(file), media_type=kind
        )
    cli.emit(
        stored.to_dict(),
        lambda out: out.print(rendering.plain(f"{stored.id}  {stored.path}, {rendering.size(stored.size)}")),
    )


async def get(
    cli: Cli,
    which: Which,
    session: InSession = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help=(
                "The file to write; - is standard output. By default the path of the artifact, in this"
                " folder."
            ),
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> int:
    """Write an artifact to a file or to standard output.

    Exits with 1 if there is no such artifact.
    """
    from memory.cli import rendering
    from memory.domain.errors import InvalidInput

    if cli.json and output == "-":
        raise InvalidInput(
            "output", "cannot be standard output (-) with --json, which prints JSON there; name a file"
        )
    async with cli.memory() as memory:
        found = await memory.artifacts.get(await _which(memory, which, session))
        if found is None:
            cli.say("there is no such artifact")
            return 1
        target = None if output == "-" else _target(found, output, force=force)
        await _write(memory.artifacts.stream(found.id), target)
    if target is not None:
        told: dict[str, Any] = {**found.to_dict(), "file": str(target)}
        cli.emit(told, lambda out: out.print(rendering.plain(f"{target}: {rendering.size(found.size)}")))
    return 0


async def list_artifacts(
    cli: Cli,
    session_id: SessionId,
    limit: Annotated[int, typer.Option("--limit", "-n", help="The largest number of artifacts.")] = 50,
    cursor: CursorOption = None,
) -> int:
    """List the artifacts of a session.

    Exits with 1 if there is none.
    """
    from memory.cli import rendering

    async with cli.memory() as memory:
        page = await memory.artifacts.list(session_id, limit=limit, cursor=cursor)
        numbers = await numbers_of(cli, memory, (one.id for one in page.artifacts), "artifact")
    named = {
        one.id: " · ".join(filter(None, (rendering.number(one.id, numbers), one.id)))
        for one in page.artifacts
    }
    rows = [
        [named[one.id], one.path, one.media_type, rendering.size(one.size), rendering.moment(one.updated_at)]
        for one in page.artifacts
    ]
    cli.emit(
        page.to_dict(),
        lambda out: out.print(
            rendering.table("", ["id", "path", "type", "size", "updated"], rows, right=("size",))
        ),
    )
    if page.cursor is not None:
        cli.say(f"more: --cursor {page.cursor}")
    return 0 if page.artifacts else 1


async def delete(cli: Cli, which: Which, session: InSession = None) -> int:
    """Delete an artifact.

    Entries that refer to it stay and lose the reference. Exits with 1 if there is no
    such artifact.
    """
    from memory.cli import rendering

    async with cli.memory() as memory:
        deleted = await memory.artifacts.delete(await _which(memory, which, session))
    cli.emit(
        {"deleted": deleted},
        lambda out: out.print(rendering.plain("Deleted." if deleted else "There is no such artifact.")),
    )
    return 0 if deleted else 1


async def _which(memory: Memory, which: str, session: str | None) -> str | tuple[str, str]:
    return await id_of(memory, which, "artifact") if session is None else (session, which)


def _target(artifact: Artifact, output: str | None, *, force: bool) -> Path:
    """Return the file to write.

    The path of an artifact never leads out of the current folder, not even by links.
    """
    from memory.domain.artifact import check_path
    from memory.domain.errors import InvalidInput

    target = Path(output) if output is not None else Path(check_path(artifact.path))
    if output is None and not target.resolve().is_relative_to(Path.cwd().resolve()):
        raise InvalidInput(
            "output", f"{artifact.path[:60]!r} leads out of this folder; name a file with --output"
        )
    if target.exists() and not force:
        raise InvalidInput("output", f"{target} already exists; use --force to replace it")
    return target


async def _write(pieces: AsyncIterator[bytes], target: Path | None) -> None:
    """Write the pieces as they come. A file gets its name once it is complete."""
    if target is None:
        async for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(target, binary=True) as file:
        async for piece in pieces:
            file.write(piece)
