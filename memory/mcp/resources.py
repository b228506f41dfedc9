"""The resources and prompts of an MCP server.

Each stands for a tool, and exists only if the server offers that tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from memory.domain.errors import InvalidInput, MemoryTiersError, NotFound
from memory.mcp.entry_tools import GetArguments, SearchArguments, get_memory, search_memory
from memory.mcp.rendering import Answer, frame_answer
from memory.mcp.session_tools import ContextArguments, get_context
from memory.mcp.tools import Call, error_text

if TYPE_CHECKING:
    from memory.mcp.server import MemoryServer

REMEMBER = (
    "Look at our conversation, and find the facts that later conversations need: about me, my wishes,"
    " decisions and open work. Search memory for each with search_memory. Store a new fact with add_memory,"
    " correct a wrong one with update_memory, and retire what is no longer true with retire_memory. One fact"
    " each, understandable by itself. Then say what you stored."
)
"""The prompt `remember_this_conversation`."""


def add_resources(server: MemoryServer) -> None:
    """Add the resources whose tools the server offers."""
    if server.offers("get_memory"):

        @server.resource(
            "memory://entries/{id}",
            name="entry",
            title="Entry",
            description="One entry.",
            mime_type="text/plain",
        )
        async def entry(id: str, context: Context[Any, Any]) -> str:
            return await _read(server, context, "entry", lambda call: get_memory(call, GetArguments(id=id)))

    if server.offers("get_context"):

        @server.resource(
            "memory://sessions/{id}",
            name="session",
            title="Conversation",
            description="The newest messages of a conversation.",
            mime_type="text/plain",
        )
        async def session(id: str, context: Context[Any, Any]) -> str:
            asked = ContextArguments(session_id=id)
            return await _read(server, context, "session", lambda call: get_context(call, asked))


def add_prompts(server: MemoryServer) -> None:
    """Add the prompts whose tools the server offers."""
    if server.offers("search_memory"):

        @server.prompt(
            "recall",
            title="Recall",
            description="What memory holds about a topic, to answer a question with.",
        )
        async def recall(topic: str, context: Context[Any, Any]) -> str:
            try:
                asked = SearchArguments(query=topic)
                answer = await server.make_noted_call(context, lambda call: search_memory(call, asked))
            except Exception as error:  # noqa: BLE001 - the text of a bug is for the log
                raise MCPError(code=INVALID_PARAMS, message=error_text(error)) from None
            return f"Use what memory holds about the topic below.\n\n{frame_answer('recall', answer)}"

    if server.offers("search_memory", "add_memory", "update_memory", "retire_memory"):

        @server.prompt(
            "remember_this_conversation",
            title="Remember this conversation",
            description="Ask the model to store what later conversations need.",
        )
        def remember_this_conversation() -> str:
            return REMEMBER


async def _read(
    server: MemoryServer,
    context: Context[Any, Any],
    name: str,
    read: Callable[[Call], Awaitable[Answer]],
) -> str:
    try:
        answer = await server.make_noted_call(context, read)
    except MemoryTiersError as error:  # an id that is no id names nothing
        kind = ResourceNotFoundError if isinstance(error, NotFound | InvalidInput) else ResourceError
        raise kind(error_text(error)) from None
    return frame_answer(name, answer)
