"""`memory knowledge-graph`: import and export of `memory.jsonl`."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import CommandLine

pytest.importorskip("mcp")
LINES = (
    {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["likes tea", "日本"]},
    {"type": "relation", "from": "Ada", "to": "Bo", "relationType": "knows"},
)


def test_a_graph_is_imported_twice_and_exported(memory: CommandLine) -> None:
    file = memory.write_lines("memory.jsonl", *LINES)
    said = memory.ok("knowledge-graph", "import", file, "--scope", "user:ada")
    assert said == "memory.jsonl: 1 entities and 1 relations imported\n"
    again = memory.json("knowledge-graph", "import", file, "-s", "user:ada")
    assert (again["entities"], again["relations"], again["already_there"]) == (0, 0, 2)
    lines = memory.ok("knowledge-graph", "export", "--scope", "user:ada").splitlines()
    assert [json.loads(line) for line in lines] == list(LINES)
    memory.ok("knowledge-graph", "export", "--scope", "user:ada", "--output", "out.jsonl")
    assert memory.json("knowledge-graph", "import", "out.jsonl")["entities"] == 1


def test_a_bad_line_is_named(memory: CommandLine) -> None:
    file = memory.write_lines("memory.jsonl", *LINES, {"type": "note"}, {"type": "entity"})
    result = memory("knowledge-graph", "import", file)
    assert result.exit_code == 2, result.stderr
    assert "memory.jsonl line 3: type: must be one of" in result.stderr
    assert memory("knowledge-graph", "export").exit_code == 1
    assert memory.json("knowledge-graph", "import", file, "--skip-bad")["skipped_lines"] == [3, 4]


def test_an_empty_file_and_a_wrong_scope(memory: CommandLine) -> None:
    assert memory("knowledge-graph", "import", "-", stdin="\n").exit_code == 1
    assert "scope" in memory("knowledge-graph", "export", "--scope", "nobody").stderr
