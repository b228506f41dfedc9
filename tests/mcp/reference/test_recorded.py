"""The reference profile answers as the real reference server answered."""

from __future__ import annotations

import json
from typing import Any

from mcp.client import Client

from memory import Memory
from memory.mcp.server import create_server
from memory.mcp.settings import McpSettings
from tests.mcp.reference.calls import CALLS, RECORDED, answer_of

REFERENCE = McpSettings(profile="reference")


async def test_answers_are_those_of_the_reference_server(memory: Memory) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["answers"]
    async with Client(create_server(memory, REFERENCE)) as client:
        for (name, arguments), expected in zip(CALLS, recorded, strict=True):
            answer = answer_of(await client.call_tool(name, arguments))
            assert answer == expected, (name, arguments)
        graph = await client.read_resource("memory://knowledge-graph")
    assert graph.contents[0].text == recorded[-1]["content"][0]["text"]  # type: ignore[union-attr]


async def test_tools_are_listed_as_by_the_reference_server(memory: Memory) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["tools"]
    async with Client(create_server(memory, REFERENCE)) as client:
        listed = [
            tool.model_dump(by_alias=True, exclude_none=True) for tool in (await client.list_tools()).tools
        ]
    assert listed == [_strict(tool) for tool in recorded]


def _strict(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool of the reference server as ours: it refuses unknown arguments."""

    def forbid_others(schema: Any) -> Any:
        if isinstance(schema, list):
            return [forbid_others(one) for one in schema]
        if not isinstance(schema, dict):
            return schema
        parts = {name: forbid_others(part) for name, part in schema.items() if name != "$schema"}
        return {**parts, "additionalProperties": False} if parts.get("type") == "object" else parts

    schemas = {name: forbid_others(tool[name]) for name in ("inputSchema", "outputSchema")}
    return {**{name: part for name, part in tool.items() if name != "execution"}, **schemas}
