"""Import and export of `memory.jsonl`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, Scope
from memory.domain.errors import InvalidInput
from memory.mcp.reference import KnowledgeGraph
from memory.mcp.reference.memory_file import export_graph, import_graph
from tests.mcp.reference.calls import addition, entity, relation

LINES: list[dict[str, Any]] = [
    {"type": "entity", **entity("Ada", "person", "likes tea", "two\nlines")},
    {"type": "entity", **entity("Bo", "person")},
    {"type": "relation", **relation("Ada", "knows", "Bo")},
    {"type": "relation", **relation("Ada", "knows", "Nobody")},
]


@pytest.fixture
def graph(memory: Memory) -> KnowledgeGraph:
    return KnowledgeGraph(memory, Scope.user("ada"))


async def exported(graph: KnowledgeGraph) -> list[dict[str, Any]]:
    return [json.loads(line) async for line in export_graph(graph)]


async def test_a_file_is_imported_once_however_often(graph: KnowledgeGraph, tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    file.write_text("\n".join(map(json.dumps, LINES)) + "\n\n", encoding="utf-8")
    report = await import_graph(graph, file)
    assert (report.entities, report.relations, report.already_there) == (2, 2, 0)
    assert await exported(graph) == LINES
    again = await import_graph(graph, file)
    assert (again.entities, again.relations, again.observations, again.already_there) == (0, 0, 0, 4)
    assert await exported(graph) == LINES


async def test_a_file_that_grew_adds_what_is_new(graph: KnowledgeGraph) -> None:
    await import_graph(graph, LINES)
    await graph.add_observations([addition("Bo", "own")])
    grown = [{"type": "entity", **entity("Ada", "robot", "likes tea", "likes rum")}, *LINES[1:]]
    report = await import_graph(
        graph, [*grown, {"type": "entity", **entity("Bo", "x", "own", "late", "late")}]
    )
    assert (report.entities, report.observations, report.already_there) == (0, 3, 3)
    whole = await graph.read_graph()
    assert whole["entities"] == [
        entity("Ada", "person", "likes tea", "two\nlines", "likes rum"),
        entity("Bo", "person", "own", "late", "late"),
    ]


BAD: list[tuple[str, str]] = [
    ("x", "not JSON"),
    ('{"type": "note"}', "type: must be one of 'entity', 'relation'"),
    ('{"type": ["entity"]}', "type: must be one of"),
    ('{"type": "entity", "name": "A", "entityType": "p"}', "observations: is missing"),
    (
        '{"type": "entity", "name": "A", "entityType": "p", "observations": [1]}',
        "observations[0]: must be text, not 1",
    ),
    ('{"type": "entity", "name": "A", "entityType": "p", "observations": [], "z": 1}', "z: is unknown"),
    (
        '{"type": "entity", "name": "A\\u0000", "entityType": "p", "observations": []}',
        "name: must not hold a NUL",
    ),
    ('{"type": "relation", "from": "A", "to": null, "relationType": "p"}', "to: "),
]


@pytest.mark.parametrize(("line", "problem"), BAD)
async def test_a_bad_line_is_named_and_nothing_is_imported(
    graph: KnowledgeGraph, line: str, problem: str
) -> None:
    lines = [json.dumps(LINES[0]), "", line, json.dumps(LINES[1])]
    with pytest.raises(InvalidInput, match=r"memory.jsonl line 3: .*nothing was imported") as caught:
        await import_graph(graph, lines)
    assert problem in str(caught.value)
    assert await exported(graph) == []
    report = await import_graph(graph, lines, skip_bad=True)
    assert (report.entities, report.skipped_lines) == (2, [3])
    assert problem in report.problems[0]


async def test_a_file_with_more_lines_than_one_part(graph: KnowledgeGraph) -> None:
    many = [{"type": "entity", **entity(f"E{number}", "p")} for number in range(310)]
    report = await import_graph(graph, [*many, *many[:5]])
    assert (report.entities, report.already_there) == (310, 5)
    assert await exported(graph) == many
