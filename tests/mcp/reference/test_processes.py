"""Several `memory mcp --profile reference` processes share one file and one graph."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.mcp.reference.calls import addition, entity, relation

pytestmark = [pytest.mark.backend("sqlite"), pytest.mark.nightly]
PROCESSES, ROUNDS = 3, 6


def start(folder: Path) -> Client:
    command = [
        "-m",
        "memory.cli",
        "--config",
        f"sqlite:///{folder}/memory.db",
        "mcp",
        "--profile",
        "reference",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    environment["MEMORY__EMBEDDER"] = "none"
    return Client(stdio_client(StdioServerParameters(command=sys.executable, args=command, env=environment)))


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def work(folder: Path, number: int, together: asyncio.Barrier) -> int:
    """Create what others create too, and add observations. Return what was created."""
    async with start(folder) as client:
        await together.wait()
        made = await call(client, "create_entities", entities=[entity("Ada", "person")])
        linked = await call(client, "create_relations", relations=[relation("Ada", "knows", "Bo")])
        for turn in range(ROUNDS):
            texts = addition("Ada", f"{number}.{turn}", "shared")
            await call(client, "add_observations", observations=[texts])
        return len(made["entities"]) + len(linked["relations"])


async def test_processes_that_write_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    together = asyncio.Barrier(PROCESSES)
    await asyncio.gather(*(work(tmp_path, number, together) for number in range(PROCESSES)))
    async with start(tmp_path) as client:
        graph = await call(client, "read_graph")
    assert [one["name"] for one in graph["entities"]] == ["Ada"]
    assert graph["relations"] == [relation("Ada", "knows", "Bo")]
    found = graph["entities"][0]["observations"]
    expected = {f"{number}.{turn}" for number in range(PROCESSES) for turn in range(ROUNDS)} | {"shared"}
    assert sorted(found) == sorted(expected)
