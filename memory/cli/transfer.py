"""Commands that move data in and out: import and export."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from memory.cli.command import Cli, add_commands, is_utf8
from memory.cli.exit_codes import CONFLICT
from memory.cli.options import (
    JsonLinesFile,
    OptionalScope,
    OutputOption,
    SkipBadOption,
    name_of,
    open_output,
)

if TYPE_CHECKING:
    from memory.domain.import_reports import ImportReport

SHOWN = 5  # the largest number of bad lines that are described


def register(app: typer.Typer) -> None:
    add_commands(app, {"import": import_file, "export": export})


async def import_file(
    cli: Cli,
    file: JsonLinesFile,
    scope: Annotated[
        str | None,
        typer.Option(
            "--scope",
            "-s",
            metavar="SCOPE",
            help=(
                "Store all messages and entries in this scope, such as user:ada; by default messages become"
                " entries of --session, and exported entries keep their scope."
            ),
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help=(
                "Store messages as entries of this session; by default its id is the name of the file."
                " Standard input needs --session or --scope for messages."
            ),
        ),
    ] = None,
    same_ids: Annotated[
        bool,
        typer.Option(
            "--same-ids",
            help=(
                "Keep the ids and versions of exported entries, and import their earlier versions. Meant for"
                " a store that does not have these entries."
            ),
        ),
    ] = False,
    skip_bad: SkipBadOption = False,
    revive: Annotated[
        bool, typer.Option("--revive", help="Also import records that were deleted after an earlier import.")
    ] = False,
    acks: Annotated[
        bool,
        typer.Option(
            "--acks", help="Print the number of stored lines to standard error after each committed batch."
        ),
    ] = False,
) -> int:
    """Import a conversation, or the lines of an export.

    A line of a conversation is an object {role, content, time?, id?, name?,
    session_id?}. Other fields, such as tags and metadata, are kept. Every line is
    checked before the first line is written.

    The key of a message is its id, or else the file's name and its position. So an
    import of the same file again writes nothing twice. Records that were deleted after
    an earlier import are not written again, unless --revive is given.

    Each message becomes an entry with its speaker (name), its conversation (session_id,
    or else the session or file) and its position in the conversation. A search uses
    these values.

    An exported entry gets a new id, and references to the entry in the file get the new
    id too. With --same-ids it keeps its id. If other data in the store or another
    tenant has that id, the line is refused, and all other lines are imported.

    Exits with 1 if the file holds no lines, and with 6 if lines were refused.
    """
    from memory.domain.errors import InvalidInput
    from memory.facade.transfer.importer import BadFile

    if scope is not None and session is not None:
        raise InvalidInput("--session", "cannot be combined with --scope; give one of them")
    messages_to = (
        f"session:{session or name_of(file).stem}"
        if scope is None and (session is not None or file != "-")
        else None
    )
    read = 0
    with open_input(file) as stream:
        async with cli.memory() as memory:
            await memory.open()  # the call may be made once only: it reads the stream
            with progress(cli) as advance:

                def report_progress(done: int, total: int) -> None:
                    nonlocal read
                    read = total
                    advance(done, total)
                    cli.kept[:] = [
                        f"{done} of {total} lines are stored; import the same file again for the rest (no"
                        " line is written twice)"
                    ]
                    if acks:
                        sys.stderr.write(json.dumps({"committed": done}) + "\n")
                        sys.stderr.flush()

                try:
                    result = await memory.admin.import_(
                        stream,
                        name=name_of(file).name,
                        scope=scope,
                        messages_to=messages_to,
                        same_ids=same_ids,
                        revive=revive,
                        skip_bad=skip_bad,
                        progress=report_progress,
                    )
                except BadFile as bad:
                    spell_out("bad", bad.problems if len(bad.problems) > 1 else [])
                    raise
    spell_out("left out", result.problems)
    cli.emit(result.to_dict(), lambda out: out.print(_summary(result), markup=False, soft_wrap=True))
    if result.refused_lines:
        return CONFLICT
    return 0 if read else 1


def open_input(file: str) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb")


def spell_out(what: str, problems: Sequence[str]) -> None:
    """Print the first problems of an import to standard error."""
    for problem in problems[:SHOWN]:
        sys.stderr.write(f"{what}: {problem}\n")


def _summary(result: ImportReport) -> str:
    parts = [f"{result.file}: {result.imported} imported"]
    for count, what in (
        (result.already_there, "already existed and were not imported again"),
        (result.deleted_earlier, "were deleted earlier and were not imported (--revive imports them)"),
        (result.versions, "earlier versions"),
        (result.versions_left_out, "earlier versions left out (--same-ids keeps them)"),
        (result.relations, "relations"),
    ):
        if count:
            parts.append(f"{count} {what}")
    if result.sessions or result.events:
        parts.append(f"{result.sessions} sessions with {result.events} events")
    for count, what in (
        (result.artifacts, "artifacts"),
        (result.documents, "documents"),
        (result.other_records, "other records"),
    ):
        if count:
            parts.append(f"{count} {what}")
    for lines, what in (
        (result.skipped_lines, "bad lines left out"),
        (result.refused_lines, "lines refused"),
        (result.unlinked_lines, "entries without their artifact"),
    ):
        if lines:
            parts.append(
                f"{len(lines)} {what} ({', '.join(map(str, lines[:20]))}{', …' * (len(lines) > 20)})"
            )
    if result.ahead_until is not None:
        parts.append(
            f"{result.ahead} lines have moments ahead of this machine's clock, up to"
            f" {result.ahead_until.isoformat()}, and keep them"
        )
    return "; ".join(parts)


@contextmanager
def progress(cli: Cli, what: str = "importing") -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, if that is a terminal.

    Yields a function that takes how many items are done, and of how many.
    """
    if cli.json or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=cli.err) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


async def export(
    cli: Cli,
    scope: OptionalScope = None,
    output: OutputOption = None,
) -> int:
    """Write entries, sessions and documents as JSON Lines, for `memory import`.

    The output has every live entry, retired ones too, with its earlier versions and
    relations. It has the sessions with their messages, the artifacts as base64, and the
    documents. The scratchpads are in the output only if no scope is named.

    Exits with 1 if there is nothing to export.
    """
    from memory.facade.transfer.artifact_lines import ARTIFACT_FORMAT
    from memory.facade.transfer.lines import DOCUMENT_FORMAT, FORMAT, VERSION_FORMAT

    lines = entries = versions = sessions = artifacts = documents = 0
    ascii_only = output is None and not is_utf8(sys.stdout)
    async with cli.memory() as memory:
        with open_output(output) as stream:
            async for line in memory.admin.export(scope):
                stream.write(json.dumps(line, ensure_ascii=ascii_only) + "\n")
                lines += 1
                entries += line["format"] == FORMAT
                versions += line["format"] == VERSION_FORMAT
                sessions += line.get("kind") == "sessions"
                artifacts += line["format"] == ARTIFACT_FORMAT
                documents += line["format"] == DOCUMENT_FORMAT
    if output is not None:
        said = f"{output}: {entries} exported" + (f", {versions} earlier versions" if versions else "")
        said += f", {sessions} sessions" if sessions else ""
        said += f", {artifacts} artifacts" if artifacts else ""
        said += f", {documents} documents" if documents else ""
        cli.emit(
            {
                "file": str(output),
                "exported": entries,
                "versions": versions,
                "sessions": sessions,
                "artifacts": artifacts,
                "documents": documents,
            },
            lambda out: out.print(said, markup=False, soft_wrap=True),
        )
    if not lines:
        cli.say("nothing to export")
        return 1
    return 0
