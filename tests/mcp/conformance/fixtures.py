"""Fixtures of the conformance suite, on a server that only tests build.

They are tools, resources and prompts that the suite calls by name. The server answers
them beside its own, through the same code.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from mcp.server.mcpserver import Audio, Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp_types import Completion, ContentBlock, EmbeddedResource, TextContent, TextResourceContents

from memory.mcp.server import MemoryServer
from tests.mcp.conformance.asking import add_asking_fixtures

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
"""An image of one pixel."""
WAV = b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00@\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00"
"""A sound without samples."""


def add_fixtures(server: MemoryServer) -> None:
    """Add what the suite calls."""
    _add_tools(server)
    _add_resources(server)
    _add_prompts(server)
    add_asking_fixtures(server)


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, text=text, mime_type=mime_type)
    return EmbeddedResource(type="resource", resource=contents)


def _add_tools(server: MemoryServer) -> None:
    @server.tool(description="A fixture.", structured_output=False)
    def test_simple_text() -> str:
        return "This is a simple text response for testing."

    @server.tool(description="A fixture.", structured_output=False)
    def test_image_content() -> Image:
        return Image(data=PNG, format="png")

    @server.tool(description="A fixture.", structured_output=False)
    def test_audio_content() -> Audio:
        return Audio(data=WAV, format="wav")

    @server.tool(description="A fixture.", structured_output=False)
    def test_embedded_resource() -> EmbeddedResource:
        return embedded("test://embedded-resource", "This is an embedded resource content.")

    @server.tool(description="A fixture.", structured_output=False)
    def test_multiple_content_types() -> list[ContentBlock]:
        data = json.dumps({"test": "data", "value": 123})
        return [
            TextContent(type="text", text="Multiple content types test:"),
            Image(data=PNG, format="png").to_image_content(),
            embedded("test://mixed-content-resource", data, "application/json"),
        ]

    @server.tool(description="A fixture.", structured_output=False)
    def test_error_handling() -> str:
        raise ToolError("This tool intentionally returns an error for testing")

    @server.tool(description="A fixture.", structured_output=False)
    async def test_tool_with_progress(context: Context[Any, Any]) -> str:
        for progress in (0, 50, 100):
            await context.report_progress(progress, 100)
            await asyncio.sleep(0.02)
        return "done"

    @server.tool(description="A fixture.", structured_output=False)
    async def test_trigger_tool_change(context: Context[Any, Any]) -> str:
        await context.notify_tools_changed()
        return "done"

    @server.tool(description="A fixture.", structured_output=False)
    async def test_trigger_prompt_change(context: Context[Any, Any]) -> str:
        await context.notify_prompts_changed()
        return "done"


def _add_resources(server: MemoryServer) -> None:
    @server.resource("test://static-text", mime_type="text/plain", description="A fixture.")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png", description="A fixture.")
    def static_binary() -> bytes:
        return PNG

    @server.resource("test://template/{id}/data", mime_type="application/json", description="A fixture.")
    def template(id: str) -> str:
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def _add_prompts(server: MemoryServer) -> None:
    @server.prompt(description="A fixture.")
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @server.prompt(description="A fixture.")
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt(description="A fixture.")
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803
        return [
            UserMessage(embedded(resourceUri, "Embedded resource content for testing.")),
            UserMessage("Please process the embedded resource above."),
        ]

    @server.prompt(description="A fixture.")
    def test_prompt_with_image() -> list[UserMessage]:
        return [UserMessage(Image(data=PNG, format="png")), UserMessage("Please analyze the image above.")]

    @server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=[], total=0, has_more=False)
