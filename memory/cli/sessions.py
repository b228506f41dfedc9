"""Commands for conversations: `memory session …`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.command import Cli, add_group, is_utf8
from memory.cli.options import CursorOption, JsonLinesFile, OutputOption, TagsOption, name_of, open_output
from memory.cli.transfer import open_input, progress

if TYPE_CHECKING:
    from rich.console import Console

    from memory.domain.message import Message
    from memory.domain.session import Context, HistoryItem, SessionInfo

SessionId = Annotated[str, typer.Argument(metavar="ID", help="The id of the session.")]
SAID = 160
"""The largest number of characters of a message in a table."""


def register(app: typer.Typer) -> None:
    add_group(
        app,
        "session",
        "List, show, import, export, fork, end and delete conversations.",
        {
            "list": list_sessions,
            "show": show_session,
            "context": context,
            "import": import_messages,
            "export": export_messages,
            "fork": fork,
            "end": end,
            "delete": delete,
        },
    )


async def list_sessions(
    cli: Cli,
    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", help="Only sessions with this status: active, archived or ended."),
    ] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only sessions of this user.")] = None,
    tag: TagsOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="The largest number of sessions.")] = 50,
    cursor: CursorOption = None,
) -> int:
    """List sessions, last used first.

    Exits with 1 if there is none.
    """
    from memory.cli import rendering

    async with cli.memory() as memory:
        page = await memory.sessions.list(
            status=status, user=user, tags=tag or (), limit=limit, cursor=cursor
        )

    def people(out: Console) -> None:
        columns = ["session", "status", "user", "messages", "updated", "about"]
        rows = [
            [s.id, s.status, s.user or "", s.message_count, rendering.moment(s.updated_at), _about(s)]
            for s in page.sessions
        ]
        out.print(rendering.table("", columns, rows, right=("messages",)))
        if page.cursor is not None:
            out.print(rendering.plain(f"more: --cursor {page.cursor}", "dim"), soft_wrap=True)

    if page.sessions:
        cli.emit(page.to_dict(), people)
    else:
        cli.emit(page.to_dict(), lambda _out: cli.say("no session"))
    return 0 if page.sessions else 1


def _about(session: SessionInfo) -> str:
    """Return the text by which people recognise a session."""
    return session.title or session.preview or ""


async def show_session(
    cli: Cli,
    session_id: SessionId,
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", help="The number of newest messages to show.")
    ] = 10,
) -> None:
    """Show a session: its metadata, its newest messages and its compactions.

    Each message says whether the window of the session holds it.
    """
    from memory.cli import rendering

    async with cli.memory() as memory:
        session = memory.session(session_id, create=False)
        info = await session.info()
        items = list(reversed((await session.history(order="newest", limit=last)).items))
        compactions = await session.compactions()
    data = {
        **info.to_dict(),
        "newest": [item.to_dict() for item in items],
        "compactions": [one.to_dict() for one in compactions],
    }

    def people(out: Console) -> None:
        known = {
            "title": info.title,
            "user": info.user,
            "agent": info.agent,
            "tags": ", ".join(info.tags),
            "created": rendering.moment(info.created_at),
        }
        counts = {
            "used": rendering.moment(info.updated_at),
            "messages": info.message_count,
            "compactions": info.compaction_count or "",
        }
        out.print(
            rendering.facts(
                info.id,
                rendering.plain(info.status, "green" if info.status == "active" else "yellow"),
                {**known, **counts},
            )
        )
        rows = [
            [
                item.number,
                item.message.role.value,
                rendering.moment(item.created_at),
                _body(item),
                _fate(item),
            ]
            for item in items
        ]
        out.print(
            rendering.table(
                "Newest messages", ["#", "role", "since", "message", "window"], rows, right=("#",)
            )
        )

    cli.emit(data, people)


def _body(item: HistoryItem) -> Any:
    from memory.cli import rendering

    return rendering.plain(_says(item.message), limit=SAID)


def _says(message: Any) -> str:
    """Return the text and the tool calls of a message in one line."""
    calls = ", ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
    parts = (
        []
        if isinstance(message.content, str)
        else [f"[{part['type']}]" for part in message.content if part["type"] != "text"]
    )
    return " ".join(" ".join([message.text, *parts, *([f"→ {calls}"] if calls else [])]).split())


def _fate(item: HistoryItem) -> str:
    """Return whether a model would receive the message, or why not."""
    return item.excluded or (
        "compacted" if item.archived_by else "in window" if item.message.is_final else "streaming"
    )


async def context(
    cli: Cli,
    session_id: SessionId,
    budget: Annotated[
        int | None, typer.Option("--budget", "-b", metavar="N", help="The budget in tokens.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", "-n", metavar="N", help="Use only this number of newest messages.")
    ] = None,
    turns: Annotated[bool, typer.Option("--turns", help="Cut the window only between turns.")] = False,
) -> None:
    """Show the messages that a model would receive, and what is left out.

    Each message is shown with its size in tokens.
    """
    async with cli.memory() as memory:
        session = memory.session(session_id, create=False)
        found = await session.context(budget, last=last, by="turns" if turns else "blocks")
        shown = {message.id for message in found.messages} | set(found.invalid)
        left = (
            [message for message in (await session.context()).messages if message.id not in shown]
            if found.left_out
            else []
        )
    told = {
        **found.to_dict(),
        "left_out": [message.id for message in left],
        "total_tokens": found.total_tokens,
        "budget": budget,
    }
    cli.emit(told, lambda out: _show_context(out, found, left, budget))


SHOWN = 5
"""The largest number of omitted messages whose beginning is shown to people."""


def _show_context(out: Console, found: Context, left: list[Message], budget: int | None) -> None:
    from memory.cli import rendering

    rows: list[list[Any]] = []
    for number, (message, tokens) in enumerate(zip(found.messages, found.tokens, strict=True), start=1):
        speaker = "summary" if message.is_summary else message.role.value
        rows.append([number, speaker, tokens, rendering.plain(_says(message), limit=SAID)])
    out.print(rendering.table("", ["#", "role", "tokens", "message"], rows, right=("#", "tokens")))
    of = f" of {budget:,}" if budget is not None else ""
    out.print(rendering.plain(f"{len(found.messages)} messages, {found.total_tokens:,} tokens{of}", "bold"))
    if found.over_budget:
        out.print(
            rendering.plain(
                f"{found.over_budget:,} tokens over the budget: system messages, summaries and the last user"
                " message are always kept",
                "yellow",
            )
        )
    if left:
        out.print(rendering.plain(f"{len(left)} messages left out; the newest of them:"))
        for message in left[-SHOWN:]:
            out.print(rendering.plain(f"  {message.id}  {_says(message)}", "dim", limit=SAID))
    for names, what in (
        (found.invalid, "tool results without a call"),
        (found.interrupted, "tool calls without a result"),
    ):
        if names:
            out.print(rendering.plain(f"{len(names)} {what}: {', '.join(names[:SHOWN])}", "yellow"))


async def import_messages(
    cli: Cli,
    file: JsonLinesFile,
    session_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="The session; by default the name of the file. Needed for standard input.",
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="ID", help="The user of a new session.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="The agent of a new session.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", metavar="NAME", help="The namespace of a new session.")
    ] = None,
    revive: Annotated[
        bool,
        typer.Option(
            "--revive", help="Also write messages that were erased or edited, and sessions that were deleted."
        ),
    ] = False,
) -> int:
    """Append the messages of a file to a session.

    The file holds messages in a format of `memory.formats`, plain {role, content}, or
    the library's own format. Every line is checked before the first is written.

    Importing the same file again adds only messages that the session lacks; so does an
    export of the session, and a file that has grown. Messages without ids are compared
    with the session's messages from its beginning.

    A missing session is created with --user, --agent and --namespace; a system message
    at the beginning becomes its system message. A session that exists with other values
    is refused. Messages that were erased or edited stay so, and a deleted session stays
    deleted, unless --revive is given.

    Exits with 1 if the file holds no message.
    """
    from memory.domain.errors import InvalidInput
    from memory.facade.chat_files import import_chat, read_messages

    name = name_of(file).name
    if session_id is None and file == "-":
        raise InvalidInput(
            "--id", "is needed for standard input, which has no name; set it to the id of the session"
        )
    with open_input(file) as stream:
        messages = read_messages(stream, name)
    if not messages:
        cli.emit(
            {"session_id": session_id, "messages": 0, "new": 0, "left_out": 0, "already_there": 0},
            lambda _out: cli.say(f"{name} holds no messages"),
        )
        return 1
    async with cli.memory() as memory:
        with progress(cli) as advance:

            def report_progress(done: int, total: int) -> None:
                advance(done, total)
                cli.kept[:] = [
                    f"{done} of {total} messages are stored; import the same file again for the rest (no"
                    " message is added twice)"
                ]

            session = session_id or name_of(file).stem
            result = await import_chat(
                memory,
                session,
                messages,
                report_progress,
                user=user,
                agent=agent,
                namespace=namespace,
                revive=revive,
            )
    said = f"{name}: {result.new} messages added to session {result.session_id}"
    said += (
        f"; {result.already_there} already existed and were not added again" if result.already_there else ""
    )
    said += (
        f"; {result.left_out} were erased or edited since and were not written (--revive writes them)"
        if result.left_out
        else ""
    )
    cli.emit(result.to_dict(), lambda out: out.print(said, markup=False, soft_wrap=True))
    return 0


async def export_messages(
    cli: Cli,
    session_id: SessionId,
    format: Annotated[
        str, typer.Option("--as", metavar="FORMAT", help="The format, such as openai or gemini.")
    ] = "plain",
    output: OutputOption = None,
) -> None:
    """Write all messages of a session as JSON Lines, compacted ones too.

    With --json the output is one array. Messages that came in the requested format are
    written as they came. Each has its time: when it was said or, if that is unknown,
    when it was stored. OpenAI messages have the call ids that OpenAI's API needs,
    even if the server that sent them gave none. `memory session import` reads the
    output.
    """
    from memory.domain import validation
    from memory.facade.chat_files import export_chat
    from memory.formats import FORMATS

    validation.one_of("--as", format, FORMATS)
    async with cli.memory() as memory:
        messages = await export_chat(memory.session(session_id, create=False), format)
    if cli.json and output is None:
        cli.emit(messages, lambda _out: None)
        return
    ascii_only = output is None and not is_utf8(sys.stdout)
    with open_output(output) as stream:
        stream.writelines(json.dumps(message, ensure_ascii=ascii_only) + "\n" for message in messages)
    if output is not None:
        said = f"{output}: {len(messages)} messages exported"
        cli.emit(
            {"file": str(output), "exported": len(messages)},
            lambda out: out.print(said, markup=False, soft_wrap=True),
        )


async def fork(
    cli: Cli,
    session_id: SessionId,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="MESSAGE",
            help="The id of the last message to copy; by default the last message of the window.",
        ),
    ] = None,
    new_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The id of the new session; by default a generated one."),
    ] = None,
) -> None:
    """Start a new session with copies of the messages in the window of a session.

    The window is the part of the history that a model receives. With --at, it is the
    window as it was when that message was the newest. Fork a session to ask a question
    differently, or to get another answer.
    """
    async with cli.memory() as memory:
        forked = await memory.session(session_id, create=False).fork(at, new_id)
        info = await forked.info()
    said = f"session {info.id} starts with {info.message_count} messages of {session_id}"
    cli.emit(
        {"session_id": info.id, "messages": info.message_count, "forked_from": session_id},
        lambda out: out.print(said, markup=False),
    )


async def end(cli: Cli, session_id: SessionId) -> None:
    """End a session: nothing can be appended until it is resumed.

    Rules then move its entries to later tiers.
    """
    from memory.cli import rendering

    async with cli.memory() as memory:
        await memory.session(session_id, create=False).info()
        report = await memory.sessions.end(session_id)

    def people(out: Console) -> None:
        out.print(rendering.plain(f"session {session_id} has ended"))
        rendering.promotion(out, report)

    cli.emit({"session_id": session_id, **report.to_dict()}, people)


async def delete(
    cli: Cli,
    session_id: SessionId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> int:
    """Erase a session, all its messages, and the entries of its scope.

    This cannot be undone. Exits with 1 if there is no such session.
    """
    from memory.domain.errors import InvalidInput

    if not yes:
        if cli.json or not sys.stdin.isatty():
            raise InvalidInput(
                "--yes", f"is needed with --json or without a terminal, to erase session {session_id}"
            )
        typer.confirm(
            f"Erase session {session_id} and all its messages? This cannot be undone.",
            abort=True,
            err=True,
        )
    async with cli.memory() as memory:
        gone = await memory.sessions.delete(session_id)
    said = f"session {session_id} erased" if gone else f"there is no session {session_id}"
    cli.emit(
        {"session_id": session_id, "deleted": gone}, lambda out: out.print(said, markup=False, soft_wrap=True)
    )
    return 0 if gone else 1
