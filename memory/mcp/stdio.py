"""Serve MCP over standard input and output."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memory.mcp.callers import Caller, restrict_to_settings
from memory.mcp.server import create_server
from memory.mcp.settings import McpSettings

if TYPE_CHECKING:
    from memory.facade.memory import Memory

log = logging.getLogger(__name__)


class LateMemory:
    """A memory that is opened by its first use.

    So the first request is answered before the memory is loaded. A failed open raises
    its error, and the next use tries again.
    """

    def __init__(self, make: Callable[[], Memory], settings: McpSettings) -> None:
        self._make = make
        self._settings = settings
        self._memory: Memory | None = None
        self._caller: Caller | None = None
        self._lock = asyncio.Lock()

    async def caller(self, _: Any) -> Caller:
        """Return the caller of the settings; open the memory if it is not open."""
        async with self._lock:
            if self._caller is None:
                made = await asyncio.to_thread(self._make)
                await made.open()
                self._memory = made
                self._caller = restrict_to_settings(made, self._settings)
            return self._caller

    async def close(self) -> None:
        """Close the memory if it was opened."""
        if self._memory is not None:
            await self._memory.close()


async def serve_stdio(make: Callable[[], Memory], settings: McpSettings) -> None:
    """Serve until standard input ends, or until SIGTERM or SIGINT.

    Args:
        make: Makes the memory. It is called in a thread, at the first use.
        settings: The settings of the server.

    Raises:
        ConfigError: The settings name an unknown tool.
    """
    memory = LateMemory(make, settings)
    server = create_server(None, settings, callers=memory.caller)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    serving = asyncio.create_task(server.run_stdio_async())
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        await memory.close()
    if not serving.done():  # a thread still waits for a line, which would hold the process
        sys.stderr.flush()
        os._exit(0)
    await serving
