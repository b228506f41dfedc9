"""Commands for `memory.jsonl`, the file of the reference MCP server."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from memory.cli.command import Cli, add_group, is_utf8
from memory.cli.options import OutputOption, SkipBadOption, name_of, open_output
from memory.cli.transfer import open_input, spell_out

GraphScope = Annotated[
    str | None,
    typer.Option(
        "--scope",
        "-s",
        metavar="SCOPE",
        help="The scope of the graph, such as user:ada; that of `memory mcp` by default.",
    ),
]


def register(app: typer.Typer) -> None:
    add_group(
        app,
        "knowledge-graph",
        "Import and export the knowledge graph of `memory mcp --profile reference`.",
        {"import": import_file, "export": export},
    )


async def import_file(
    cli: Cli,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A memory.jsonl file; - reads standard input.")],
    scope: GraphScope = None,
    skip_bad: SkipBadOption = False,
) -> int:
    """Import the memory.jsonl file of the reference MCP server.

    Every line is checked before the first line is stored. Entities that exist get the
    observations that they lack, so the same file can be imported again.

    Exits with 1 if the file holds no lines.
    """
    from memory.domain.scope import Scope
    from memory.facade.transfer.importer import BadFile
    from memory.mcp.reference import KnowledgeGraph
    from memory.mcp.reference.memory_file import import_graph

    parsed = Scope.parse(scope or cli.settings().mcp.default_scope)
    with open_input(file) as stream:
        async with cli.memory() as memory:
            try:
                name = name_of(file).name
                result = await import_graph(
                    KnowledgeGraph(memory, parsed), stream, name=name, skip_bad=skip_bad
                )
            except BadFile as bad:
                spell_out("bad", bad.problems if len(bad.problems) > 1 else [])
                raise
    spell_out("left out", result.problems)
    parts = [f"{result.file}: {result.entities} entities and {result.relations} relations imported"]
    if result.observations:
        parts.append(f"{result.observations} observations added to entities that existed")
    if result.already_there:
        parts.append(f"{result.already_there} lines changed nothing")
    if result.skipped_lines:
        parts.append(f"{len(result.skipped_lines)} bad lines left out")
    cli.emit(result.to_dict(), lambda out: out.print("; ".join(parts), markup=False, soft_wrap=True))
    stored = result.entities + result.relations + result.already_there + len(result.skipped_lines)
    return 0 if stored or result.observations else 1


async def export(
    cli: Cli,
    scope: GraphScope = None,
    output: OutputOption = None,
) -> int:
    """Write the knowledge graph as a memory.jsonl file.

    Exits with 1 if the graph is empty.
    """
    from memory.domain.scope import Scope
    from memory.mcp.reference import KnowledgeGraph
    from memory.mcp.reference.memory_file import export_graph

    parsed = Scope.parse(scope or cli.settings().mcp.default_scope)
    ascii_only = output is None and not is_utf8(sys.stdout)
    async with cli.memory() as memory:
        graph = KnowledgeGraph(memory, parsed)
        lines = [line + "\n" async for line in export_graph(graph, ascii_only=ascii_only)]
    with open_output(output) as stream:
        stream.writelines(lines)
    if output is not None:
        said = f"{output}: {len(lines)} lines exported"
        cli.emit({"file": str(output), "exported": len(lines)}, lambda out: out.print(said, markup=False))
    if not lines:
        cli.say("nothing to export")
        return 1
    return 0
