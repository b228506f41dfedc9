"""Commands that carry conversations in and entries out: import and export."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory.cli.command import Cli, command, is_utf8
from memory.cli.options import OptionalScope

if TYPE_CHECKING:
    from memory.domain.entry import Entry
    from memory.domain.scope import Scope
    from memory.facade.memory import Memory
    from memory.facade.transfer import Link, Message

BATCH = 200
SHOWN = 5  # bad lines that are spelled out


def register(app: typer.Typer) -> None:
    command(app, "import")(import_file)
    command(app, "export")(export)


@dataclass
class Imported:
    """What became of an import: entries written now, messages that were there already or deleted earlier, relations made now, lines left out."""

    written: int = 0
    repeated: int = 0
    deleted: int = 0
    links: int = 0
    skipped: list[int] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    """The entries by the key of their message; filled where asked for."""


async def import_file(
    cli: Cli,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON Lines, or one JSON array; - reads standard input.")],
    scope: OptionalScope = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="The session the messages belong to; by default the file's name; needed for standard input.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad lines out, naming them, instead of importing nothing.")] = False,
    revive: Annotated[bool, typer.Option("--revive", help="Write also what was deleted after an earlier import.")] = False,
    acks: Annotated[bool, typer.Option("--acks", help="After each committed batch, say how many messages are safe (standard error).")] = False,
) -> int:
    """Import a conversation: objects {role, content, time?, id?}, or the lines of an export.

    Every line is checked before the first is written. A message's id, or else the file's name and its position, is its key: importing the same
    file again writes nothing twice, and nothing again that was deleted since. Other fields of a message (tags and metadata among them) are kept.
    """
    wanted = _wanted(file, scope, session)
    name = "stdin" if file == "-" else Path(file).name
    messages, links, left_out = _checked(file, name, wanted, cli.settings().tenant, skip_bad=skip_bad)
    async with cli.memory() as memory:
        with progress(cli, len(messages) + len(links)) as advance:

            def committed(done: int) -> None:
                advance(done)
                cli.kept[:] = [f"{done} of {len(messages)} messages are kept; import the same file again for the rest, nothing is written twice"]
                if acks:
                    sys.stderr.write(json.dumps({"committed": done}) + "\n")
                    sys.stderr.flush()

            result = await write_messages(memory, iter(messages), committed, name, revive=revive)
            for number, link in enumerate(links, start=len(messages) + 1):
                result.links += await memory.relations.restore(link.source_id, link.label, link.target_id, link.created_at)
                advance(number)
    result.skipped = left_out
    cli.emit(
        {
            "file": name,
            "messages": len(messages),
            "imported": result.written,
            "already_there": result.repeated,
            "deleted_earlier": result.deleted,
            "relations": result.links,
            "skipped_lines": left_out,
        },
        lambda out: out.print(_summary(name, result), markup=False, soft_wrap=True),
    )
    return 0 if messages else 1


async def write_messages(
    memory: Memory,
    messages: Iterator[Message],
    committed: Callable[[int], None],
    name: str,
    *,
    batch: int = BATCH,
    keep: bool = False,
    revive: bool = False,
) -> Imported:
    """Write checked messages batch by batch. `committed` hears how many are safe after each; with `keep` their entries are kept, by key.

    What was deleted since an earlier import counts as done, unless it is to be revived.
    """
    from itertools import islice

    from memory.domain.time import micros
    from memory.ports.clock import system_clock

    result, done = Imported(), 0
    started = micros(system_clock())  # versions are moments: what is older was here before
    while part := list(islice(messages, batch)):
        fresh = [message for message in part if not message.again]
        entries = await _write(memory, fresh, name, revive=revive)
        new = sum(entry.version >= started for entry in entries.values())
        deleted = len(fresh) - len(entries)
        result.written += new
        result.deleted += deleted
        result.repeated += len(part) - new - deleted
        if keep:
            result.entries |= {str(fresh[position].draft.key): entry for position, entry in entries.items()}
        done += len(part)
        committed(done)
    return result


async def _write(memory: Memory, messages: list[Message], name: str, *, revive: bool) -> dict[int, Entry]:
    """The entries by the position of their message; those that were deleted earlier have none."""
    from memory.domain.errors import Conflict, InvalidInput, PartialWrite
    from memory.facade.transfer import BadLine

    try:
        return dict(enumerate(await memory.write_many([message.draft for message in messages], revive=revive)))
    except PartialWrite as part:
        for position, conflict in part.conflicts.items():
            if conflict.deleted_at is None:
                advice = "it was stored with another text before; give it another id, or import into another --session"
                raise Conflict(f"{name} line {messages[position].line}: {conflict}; {advice}") from conflict
        return part.written
    except InvalidInput:
        for message in messages:  # one by one, to name the line
            try:
                await memory.write_many([message.draft], revive=revive)
            except InvalidInput as exc:
                raise BadLine(name, message.line, str(exc)) from exc
            except PartialWrite:
                continue
        raise


@dataclass(frozen=True)
class Wanted:
    """Where an import goes: `scope` for everything when it was named, else messages to their session and exported entries back to theirs."""

    scope: Scope | None = None
    messages_to: Scope | None = None


def _wanted(file: str, scope: str | None, session: str | None) -> Wanted:
    from memory.domain.errors import InvalidInput
    from memory.domain.scope import Scope

    if scope is not None and session is not None:
        raise InvalidInput("--session", "and --scope exclude each other")
    if scope is not None:
        return Wanted(Scope.parse(scope))
    if session is not None:
        return Wanted(Scope.session(session))
    return Wanted() if file == "-" else Wanted(messages_to=Scope.session(Path(file).stem))


def _checked(file: str, name: str, wanted: Wanted, tenant: str, *, skip_bad: bool) -> tuple[list[Message], list[Link], list[int]]:
    """Read the whole file without writing: its messages and relations, and the lines left out. Bad lines are refused unless to be skipped."""
    from memory.facade.transfer import BadLine, read, rewritten

    good: list[Message | Link] = []
    bad: list[BadLine] = []
    with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as stream:
        for item in read(stream, name, wanted.scope, messages_to=wanted.messages_to):
            if isinstance(item, BadLine):
                bad.append(item)
            else:
                good.append(item)
    messages, links, unlinked = rewritten(good, name, tenant)
    bad += unlinked
    for item in bad[:SHOWN] if skip_bad or len(bad) > 1 else ():
        sys.stderr.write(f"{'left out' if skip_bad else 'bad'}: {item}\n")
    if bad and not skip_bad:
        first, more = bad[0], len(bad) - 1
        others = f"; {more} more bad line{'s' * (more > 1)}" if more else ""
        raise BadLine(name, first.line, f"{first.problem}{others}; nothing was imported: correct the file, or leave bad lines out with --skip-bad")
    return messages, links, [item.line for item in bad]


def _summary(name: str, result: Imported) -> str:
    parts = [f"{name}: {result.written} imported"]
    if result.repeated:
        parts.append(f"{result.repeated} were there already, not imported twice")
    if result.deleted:
        parts.append(f"deleted earlier: {result.deleted}, not brought back (--revive does)")
    if result.links:
        parts.append(f"{result.links} relations")
    if result.skipped:
        parts.append(f"{len(result.skipped)} bad lines left out ({', '.join(map(str, result.skipped[:20]))}{', …' * (len(result.skipped) > 20)})")
    return "; ".join(parts)


@contextmanager
def progress(cli: Cli, total: int, what: str = "importing") -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error where that is a terminal; what it yields is told how many are done."""
    if cli.json or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=cli.err) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


async def export(
    cli: Cli,
    scope: OptionalScope = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this new file instead of standard output.")] = None,
) -> int:
    """Write every live entry, retired ones too, and the relations between them, as JSON Lines; `memory import` reads them back.

    Ends with 1 where there is none.
    """
    from memory.facade.transfer import FORMAT

    entries, ascii_only = 0, output is None and not is_utf8(sys.stdout)

    async with cli.memory() as memory:
        with output.open("x", encoding="utf-8") if output is not None else nullcontext(sys.stdout) as stream:
            async for line in memory.admin.export(scope):
                stream.write(json.dumps(line, ensure_ascii=ascii_only) + "\n")
                entries += line["format"] == FORMAT
    if output is not None:
        cli.emit({"file": str(output), "exported": entries}, lambda out: out.print(f"{output}: {entries} exported", markup=False, soft_wrap=True))
    return 0 if entries else 1
