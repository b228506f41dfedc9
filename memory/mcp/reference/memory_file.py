"""Import and export `memory.jsonl`, the file of the reference server.

Each line is an entity or a relation:

    {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["tea"]}
    {"type": "relation", "from": "Ada", "to": "Bo", "relationType": "knows"}
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from memory.domain.errors import InvalidInput
from memory.domain.import_reports import GraphImportReport
from memory.domain.model_errors import explain_errors, show_value
from memory.facade.transfer.importer import SPELLED_OUT, BadFile, Source, open_source
from memory.facade.transfer.lines import BadLine, objects
from memory.mcp.reference.graph import KnowledgeGraph
from memory.mcp.reference.records import Entity, Relation, check_draft, entity_draft, relation_draft

BATCH = 300
"""The number of lines that are written together."""
KINDS: Mapping[Any, tuple[TypeAdapter[Any], Callable[[Any], dict[str, Any]]]] = {
    "entity": (TypeAdapter(Entity), entity_draft),
    "relation": (TypeAdapter(Relation), relation_draft),
}
"""The types of lines: how each is read, and the draft of its entry."""
Line: TypeAlias = tuple[str, Any]
"""The type of a line, and its entity or relation."""


async def import_graph(
    graph: KnowledgeGraph, source: Source, *, name: str = "memory.jsonl", skip_bad: bool = False
) -> GraphImportReport:
    """Add the entities and relations of a file to a graph.

    Every line is checked before the first line is stored. An entity that exists gets
    the observations that it lacks, and keeps its type. So the import can be repeated:
    it stores nothing twice. A file of any size is read in parts.

    Args:
        source: A path, an open file, or lines.
        name: The name of the file in errors.
        skip_bad: Leave bad lines out, and name them in the report.

    Raises:
        BadFile: Lines are bad. Nothing was imported.
    """
    report = GraphImportReport(name)
    async with open_source(source) as (stream, unread):
        start = await asyncio.to_thread(stream.tell)
        first: BadLine | None = None
        async for part in _parts(stream, name, unread):
            for bad in (line for line in part if isinstance(line, BadLine)):
                first = first or bad
                report.skipped_lines.append(bad.line)
                if len(report.problems) < SPELLED_OUT:
                    report.problems.append(str(bad))
        if first is not None and not skip_bad:
            others = len(report.skipped_lines) - 1
            raise BadFile(name, first.line, first.problem, report.problems, others)
        await asyncio.to_thread(stream.seek, start)
        async for part in _parts(stream, name, unread):
            await _store(graph, [line for line in part if not isinstance(line, BadLine)], report)
    return report


async def export_graph(graph: KnowledgeGraph, *, ascii_only: bool = False) -> AsyncIterator[str]:
    """Yield the lines of a `memory.jsonl` with all of a graph."""
    whole = await graph.read_graph()
    for entity in whole["entities"]:
        yield json.dumps({"type": "entity", **entity}, ensure_ascii=ascii_only)
    for relation in whole["relations"]:
        yield json.dumps({"type": "relation", **relation}, ensure_ascii=ascii_only)


async def _store(graph: KnowledgeGraph, lines: Sequence[Line], report: GraphImportReport) -> None:
    """Store some lines. Entities that exist get the observations that they lack."""
    entities: list[Entity] = [one for kind, one in lines if kind == "entity"]
    relations: list[Relation] = [one for kind, one in lines if kind == "relation"]
    created = await graph.create_entities(entities)
    new = set(map(id, created))
    results = await graph.add_observations(
        [
            {"entityName": one["name"], "contents": one["observations"]}
            for one in entities
            if id(one) not in new
        ]
    )
    added = [len(one["addedObservations"]) for one in results]
    linked = await graph.create_relations(relations)
    report.entities += len(created)
    report.relations += len(linked)
    report.observations += sum(added)
    report.already_there += added.count(0) + len(relations) - len(linked)


async def _parts(
    stream: IO[bytes], name: str, unread: Mapping[int, str]
) -> AsyncIterator[list[Line | BadLine]]:
    """Yield the lines of a file in parts; a thread reads and checks them."""
    lines = _lines(stream, name, unread)
    while part := await asyncio.to_thread(_some, lines):
        yield part


def _some(lines: Iterator[Line | BadLine]) -> list[Line | BadLine]:
    return list(islice(lines, BATCH))


def _lines(stream: IO[bytes], name: str, unread: Mapping[int, str]) -> Iterator[Line | BadLine]:
    for number, found in objects(stream, name, 1):
        if isinstance(found, BadLine):
            yield BadLine(name, number, unread[number]) if number in unread else found
            continue
        try:
            yield _check(found)
        except InvalidInput as error:
            yield BadLine(name, number, str(error))


def _check(found: Mapping[str, Any]) -> Line:
    """Return the entity or the relation of a line.

    Raises:
        InvalidInput: The line is wrong, or exceeds a limit of entries.
    """
    kind = found.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidInput("type", f"must be one of {', '.join(map(repr, KINDS))}")
    adapter, draft_of = KINDS[kind]
    try:
        item = adapter.validate_python({name: value for name, value in found.items() if name != "type"})
    except ValidationError as error:
        first = explain_errors(error.errors(include_url=False), found, show=show_value)[0]
        raise InvalidInput(first.field, first.message) from None
    check_draft(draft_of(item))
    return kind, item
