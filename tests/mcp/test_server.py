"""The MCP server with the SDK's client in memory: each tool, resource and prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import CallToolResult, TextContent

from memory import Memory
from memory.mcp.server import MemoryServer, create_server
from memory.mcp.settings import McpSettings


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    async with Memory("memory://") as opened:
        yield opened


@pytest.fixture
def server(memory: Memory) -> MemoryServer:
    return create_server(memory, McpSettings(scopes=("user:ada",), allow_delete=True))


def text_of(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def answered(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The data of a call that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    data: dict[str, Any] = result.structured_content
    return data


async def test_an_entry_is_added_found_changed_and_retired(server: MemoryServer) -> None:
    async with Client(server) as client:
        added = (await answered(client, "add_memory", content="Ada likes tea", tags=["drink"]))["entry"]
        found = await answered(client, "search_memory", query="what does Ada drink?")
        assert [one["id"] for one in found["entries"]] == [added["id"]]
        await answered(client, "update_memory", id=added["id"], content="Ada likes green tea")
        read = await answered(client, "get_memory", id=added["id"])
        assert read["entry"]["content"] == "Ada likes green tea"
        assert read["entry"]["tags"] == ["drink"]
        await answered(client, "retire_memory", id=added["id"])
        assert (await answered(client, "search_memory", query="tea"))["entries"] == []
