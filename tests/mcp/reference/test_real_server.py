"""The real reference server and this one get the same drawn calls: same answers.

npm installs the packages of `package-lock.json`; without npm the test is skipped.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from memory import Memory, Scope
from memory.mcp.reference import KnowledgeGraph
from memory.mcp.reference.memory_file import export_graph, import_graph
from memory.mcp.server import create_server
from memory.mcp.settings import McpSettings
from tests.mcp.reference.calls import (
    CALLS,
    addition,
    answer_of,
    ask_real_server,
    deletion,
    entity,
    relation,
)

HERE = Path(__file__).parent
NAMES = ["Ada", "ada", "Bo", "", "日本", "a\nb", "x;y", "\u2028", "İ"]
TEXTS = ["tea", "Tea", "", " ", "likes\ntea", '"quoted"', "\\", "é", "Ω", "<b>", "\x7f\x01"]
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the packages of the real server."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("needs node and npm")
    made = tmp_path_factory.mktemp("reference")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, made)
    npm = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(npm, cwd=made, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"npm could not install the reference server: {done.stderr[-300:]}")
    return made


def draw_calls(chance: random.Random, many: int) -> list[tuple[str, dict[str, Any]]]:
    """Draw calls of all tools. A name or a relation comes once in a call.

    The real server stores a repeated one twice, which this one does not.
    """

    def some(values: list[str], most: int = 3) -> list[str]:
        return chance.sample(values, chance.randint(0, most))

    def links() -> list[Any]:
        drawn = {(chance.choice(NAMES), chance.choice(TEXTS), chance.choice(NAMES)) for _ in range(3)}
        return [relation(*one) for one in sorted(drawn)]

    def texts() -> list[str]:
        return chance.choices(TEXTS, k=chance.randint(0, 3))

    def additions() -> dict[str, Any]:
        return {"observations": [addition(name, *texts()) for name in chance.choices(NAMES, k=2)]}

    draws: dict[str, Any] = {
        "create_entities": lambda: {
            "entities": [entity(one, chance.choice(TEXTS), *texts()) for one in some(NAMES)]
        },
        "create_relations": lambda: {"relations": links()},
        "add_observations": additions,
        "delete_entities": lambda: {"entityNames": some(NAMES, 2)},
        "delete_observations": lambda: {"deletions": [deletion(one, *texts()) for one in some(NAMES)]},
        "delete_relations": lambda: {"relations": links()},
        "read_graph": dict,
        "search_nodes": lambda: {"query": chance.choice([*TEXTS, *NAMES])},
        "open_nodes": lambda: {"names": some(NAMES)},
    }
    names = [chance.choice(list(draws)) for _ in range(many)]
    return [*((name, draws[name]()) for name in names), ("read_graph", {})]


@pytest.mark.parametrize("seed", range(3))
async def test_drawn_calls_are_answered_alike(
    seed: int, folder: Path, memory: Memory, tmp_path: Path
) -> None:
    fresh = int.from_bytes(os.urandom(4), "big") if seed == 0 else seed
    calls = [*CALLS, *draw_calls(random.Random(fresh), 200)]  # noqa: S311 - draws calls
    file = tmp_path / "memory.jsonl"
    expected = await ask_real_server(calls, folder, file)
    async with Client(create_server(memory, McpSettings(profile="reference"))) as client:
        for (name, arguments), answer in zip(calls, expected["answers"], strict=True):
            got = answer_of(await client.call_tool(name, arguments))
            assert got == answer, (fresh, name, arguments)
    # The file of the real server is imported, and exported as that server wrote it.
    copy = KnowledgeGraph(memory, Scope.user("copy"))
    await import_graph(copy, file)
    lines = [json.loads(line) async for line in export_graph(copy)]
    assert lines == [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")]
