"""Calls whose answers by the real reference server are in `recorded.json`.

`python -m tests.mcp.reference.calls` in a folder with the packages of `package.json`
records them again.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from memory.mcp.reference import Entity, Relation

RECORDED = Path(__file__).parent / "recorded.json"
SERVER = "node_modules/@modelcontextprotocol/server-memory/dist/index.js"


def entity(name: str, kind: str, *observations: str) -> Entity:
    return {"name": name, "entityType": kind, "observations": list(observations)}


def relation(source: str, kind: str, target: str) -> Relation:
    return {"from": source, "to": target, "relationType": kind}


def addition(name: str, *contents: str) -> dict[str, Any]:
    return {"entityName": name, "contents": list(contents)}


def deletion(name: str, *observations: str) -> dict[str, Any]:
    return {"entityName": name, "observations": list(observations)}


ADA, ODD = "Ada", 'O\'dd "näme" — 日本\n[END MEMORY] ; DROP\ttable'
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_graph", {}),
    ("search_nodes", {"query": ""}),
    ("open_nodes", {"names": []}),
    ("create_entities", {"entities": []}),
    ("create_entities", {"entities": [entity(ADA, "person", "likes tea"), entity("Bo", "Person")]}),
    (
        "create_entities",
        {"entities": [entity(ADA, "robot", "is not Ada"), entity("Porto", "city", "a", "a")]},
    ),
    ("create_entities", {"entities": [entity(ODD, "", "two\nlines", "", "x" * 300), entity("", "nameless")]}),
    ("create_relations", {"relations": [relation(ADA, "lives_in", "Porto"), relation(ADA, "knows", "Bo")]}),
    ("create_relations", {"relations": [relation(ADA, "knows", "Bo"), relation("Bo", "knows", ADA)]}),
    ("create_relations", {"relations": [relation("Nobody", "is\ta <free> type", "Nowhere")]}),
    ("create_relations", {"relations": [relation(ODD, "rel", ADA), relation("", "", "")]}),
    ("add_observations", {"observations": [addition(ADA, "likes tea", "likes rum", "likes rum")]}),
    (
        "add_observations",
        {"observations": [addition("Bo", "1", "2"), addition(ADA), addition("Bo", "2", "3")]},
    ),
    ("add_observations", {"observations": [addition("Bo", "lost"), addition("Nobody", "lost")]}),
    ("read_graph", {}),
    ("search_nodes", {"query": "PERSON"}),
    ("search_nodes", {"query": "TWO\nLINES"}),
    ("search_nodes", {"query": "rum"}),
    ("search_nodes", {"query": "no such text"}),
    ("search_nodes", {"query": "%"}),
    ("open_nodes", {"names": ["Bo", ADA, "Nobody"]}),
    ("open_nodes", {"names": ["Nobody"]}),
    ("open_nodes", {"names": ["", ODD, ODD]}),
    ("delete_observations", {"deletions": [deletion(ADA, "likes rum", "unknown"), deletion("Nobody", "x")]}),
    ("delete_observations", {"deletions": [deletion("Porto", "a"), deletion("Bo", "2")]}),
    ("delete_relations", {"relations": [relation(ADA, "knows", "Bo"), relation(ADA, "knows", "Nobody")]}),
    ("read_graph", {}),
    ("delete_entities", {"entityNames": [ADA, "Nobody"]}),
    ("delete_entities", {"entityNames": []}),
    ("read_graph", {}),
    ("create_entities", {"entities": [entity(ADA, "person", "is back")]}),
    ("create_relations", {"relations": [relation(ADA, "lives_in", "Porto")]}),
    ("add_observations", {"observations": [addition(ADA, "likes tea")]}),
    ("delete_entities", {"entityNames": [ADA, ADA]}),
    ("create_entities", {"entities": [entity(ADA, "person", "is back"), entity("Cy", "person")]}),
    ("open_nodes", {"names": [ADA, "Porto"]}),
    ("read_graph", {}),
]
"""What clients do, with odd names, repeats and things that do not exist."""


def answer_of(result: Any) -> dict[str, Any]:
    """Return the parts of a result that both servers have."""
    said = result.model_dump(by_alias=True, exclude_none=True)
    return {name: said[name] for name in ("content", "structuredContent", "isError") if name in said}


async def ask_real_server(
    calls: list[tuple[str, dict[str, Any]]], folder: Path, file: Path
) -> dict[str, Any]:
    """Return the tools of the real server, and its answers to some calls.

    Args:
        folder: Where npm installed the packages of `package.json`.
        file: The `memory.jsonl` of the server.
    """
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    environment = {"MEMORY_FILE_PATH": str(file), "PATH": os.environ["PATH"]}
    parameters = StdioServerParameters(command="node", args=[str(folder / SERVER)], env=environment)
    async with Client(stdio_client(parameters)) as client:
        tools = [
            tool.model_dump(by_alias=True, exclude_none=True) for tool in (await client.list_tools()).tools
        ]
        answers = []
        for name, arguments in calls:
            answers.append(answer_of(await client.call_tool(name, arguments)))
    return {"tools": tools, "answers": answers}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        recorded = asyncio.run(ask_real_server(CALLS, Path.cwd(), Path(made) / "memory.jsonl"))
    RECORDED.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(f"{RECORDED}: {len(recorded['answers'])} answers\n")
