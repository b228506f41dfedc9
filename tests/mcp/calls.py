"""Calls of tools as a client makes them, and what a model reads of their answers."""

from __future__ import annotations

from typing import Any

from mcp.client import Client
from mcp_types import CallToolResult, TextContent


def text_of(result: CallToolResult) -> str:
    """The one text of a result."""
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def answered(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The data of a call that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    data: dict[str, Any] = result.structured_content
    return data


async def refused(client: Client, tool: str, **arguments: Any) -> tuple[str, str]:
    """The code and the text of a call that fails as an error result."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    assert result.meta is not None
    code: str = result.meta["memory-tiers/error"]["code"]
    assert text_of(result).startswith(f"{code}: ")
    return code, text_of(result)


def count_tokens(text: str) -> int:
    """The tokens of a text at three bytes each; not by the code under test."""
    return -(-len(text.encode()) // 3)
