"""Commands for facts that change: update, invalidate, history and links."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory.cli.command import Cli, add_commands, for_each, is_utf8
from memory.cli.options import (
    DataOption,
    EntryId,
    EntryIds,
    ExpiresOption,
    MetadataOption,
    OptionalScope,
    TagsOption,
    VectorOption,
    drop_none,
    expiry,
    json_object,
    json_value,
    moment,
    read_text,
)
from memory.cli.short_ids import id_of, ids_of, numbers_of

if TYPE_CHECKING:
    from rich.console import Console

Depth = Annotated[
    int, typer.Option("--depth", help="The number of steps, 1 or 2. Other numbers are clamped to 1 or 2.")
]


def register(app: typer.Typer) -> None:
    add_commands(
        app,
        {
            "update": update,
            "invalidate": invalidate,
            "history": history,
            "relate": relate,
            "unrelate": unrelate,
            "related": list_related,
            "graph": graph,
        },
    )


async def update(
    cli: Cli,
    entry_id: EntryId,
    content: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The new text; - reads standard input.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The new title.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="The new type: user, feedback, project, reference, learning or context.",
        ),
    ] = None,
    source: Annotated[str | None, typer.Option(help="The source of the change.")] = None,
    tag: TagsOption = None,
    metadata: MetadataOption = None,
    data: DataOption = None,
    vector: VectorOption = None,
    expires: ExpiresOption = None,
    expected_version: Annotated[
        str | None,
        typer.Option(
            "--expected-version",
            metavar="VERSION",
            help="Change the entry only if it still has this version.",
        ),
    ] = None,
) -> None:
    """Change an entry and keep its earlier version.

    New tags and data replace the old ones; metadata is merged. Fields that are not
    given stay as they are.
    """
    from memory.cli import rendering
    from memory.domain.errors import InvalidInput

    changes = drop_none(
        content=None if content is None else read_text(content),
        title=title,
        type=kind,
        source=source,
        tags=tag,
        metadata=json_object("metadata", metadata),
        data=json_value("data", data, '{"price": 3}'),
        vector=json_value("vector", vector, "[0.1, 0.2]"),
        expected_version=expected_version,
    )
    changes |= drop_none(expires_at=expiry("expires", expires))
    if changes.keys() <= {"expected_version"}:
        raise InvalidInput("update", "would change nothing. Pass a new value, such as --content TEXT")
    async with cli.memory() as memory:
        entry = await memory.update(await id_of(memory, entry_id), **changes)
        numbers = await numbers_of(cli, memory, [entry.id])
    cli.emit(entry.to_dict(), lambda out: out.print(rendering.entry_block(entry, numbers)))


async def invalidate(
    cli: Cli,
    entry_ids: EntryIds,
    when: Annotated[
        str | None,
        typer.Option(
            "--when", metavar="TIME", help="When the validity ends, in ISO 8601 with a zone; by default now."
        ),
    ] = None,
) -> int:
    """End the validity of entries: searches no longer find them.

    They stay readable with --as-of. Exits with 1 if an entry is not active.
    """
    end = moment("when", when)
    async with cli.memory() as memory:
        ended = await for_each(
            cli,
            await ids_of(memory, entry_ids),
            lambda one: memory.entries.invalidate(one, end),
        )
    lines = [
        f"{entry_id}  {'ended' if done else 'not found, or already ended'}"
        for entry_id, done in ended.items()
    ]
    cli.emit(
        {
            "ended": [one for one, done in ended.items() if done],
            "not_found": [one for one, done in ended.items() if not done],
        },
        lambda out: out.print("\n".join(lines), markup=False),
    )
    return 0 if all(ended.values()) else 1


async def history(cli: Cli, entry_id: EntryId) -> None:
    """List every kept version of an entry, oldest first.

    Versions of the entries that it superseded come before its own.
    """
    from memory.cli import rendering

    async with cli.memory() as memory:
        wanted = await id_of(memory, entry_id)
        versions = await memory.entries.history(wanted, superseded=True)
    cli.emit(
        {"history": [one.to_dict() for one in versions]},
        lambda out: out.print(rendering.versions(versions, wanted)),
    )


async def relate(
    cli: Cli,
    source_id: Annotated[str, typer.Argument(metavar="FROM", help="The entry where the link starts.")],
    label: Annotated[
        str,
        typer.Argument(
            metavar="LABEL", help="The label: relates_to, refines, contradicts, supersedes or supports."
        ),
    ],
    target_id: Annotated[str, typer.Argument(metavar="TO", help="The entry to which the link points.")],
) -> None:
    """Link two active entries."""
    from memory.cli import rendering

    async with cli.memory() as memory:
        source, target = await ids_of(memory, [source_id, target_id])
        made = await memory.relations.relate(source, label, target)
    cli.emit(
        made.to_dict(),
        lambda out: out.print(rendering.plain(f"{made.id}  {made.source_id} {made.label} {made.target_id}")),
    )


async def unrelate(
    cli: Cli, relation_id: Annotated[str, typer.Argument(metavar="RELATION", help="The id of the link.")]
) -> int:
    """Delete a link between two entries.

    Exits with 1 if there is no such link.
    """
    async with cli.memory() as memory:
        gone = await memory.relations.unrelate(relation_id)
    cli.emit({"deleted": gone}, lambda out: out.print("deleted" if gone else "not found", markup=False))
    return 0 if gone else 1


async def list_related(
    cli: Cli,
    entry_id: EntryId,
    depth: Depth = 1,
    scope: OptionalScope = None,
) -> None:
    """List the entries linked to an entry, in both directions."""
    from memory.cli import rendering

    async with cli.memory() as memory:
        found = await memory.relations.expand(await id_of(memory, entry_id), depth=depth, scope=scope)
    for notice in found.notices:
        cli.say(notice)
    said = {node.entry.id: node.entry.title or node.entry.content for node in found.nodes}

    def people(out: Console) -> None:
        rows = [
            [
                rendering.plain(said[one.source_id], limit=80),
                one.label,
                rendering.plain(said[one.target_id], limit=80),
                one.id,
            ]
            for one in found.relations
        ]
        out.print(rendering.table("", ["entry", "label", "other", "id"], rows))

    cli.emit(found.to_dict(), people)


async def graph(
    cli: Cli,
    entry_id: EntryId,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.svg",
            help="Write to this .svg file instead of standard output. An existing file is replaced.",
        ),
    ] = None,
    depth: Depth = 1,
    scope: OptionalScope = None,
) -> None:
    """Draw the entries linked to an entry, as SVG.

    The picture includes entries that it superseded or that superseded it. Retired ones
    are drawn dimmed.
    """
    from memory.cli.graph_drawing import draw
    from memory.domain.errors import InvalidInput

    if out is not None and out.suffix.lower() != ".svg":
        raise InvalidInput(
            "out", f"{out.name[:60]!r} does not end in .svg. Name an .svg file; an existing one is replaced"
        )
    async with cli.memory() as memory:
        found = await memory.relations.expand(
            await id_of(memory, entry_id), depth=depth, scope=scope, superseded=True
        )
    for notice in found.notices:
        cli.say(notice)
    if out is not None:
        out.write_text(draw(found), encoding="utf-8")

    def people(console: Console) -> None:
        if out is not None:
            console.print(
                f"{out}: {len(found.nodes)} entries and {len(found.relations)} links",
                markup=False,
                soft_wrap=True,
            )
        else:
            sys.stdout.write(
                draw(found)
                if is_utf8(sys.stdout)
                else draw(found).encode("ascii", "xmlcharrefreplace").decode()
            )

    cli.emit(found.to_dict(), people)
