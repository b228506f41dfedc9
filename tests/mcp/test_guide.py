"""The configurations of docs/guide/mcp.md start a server, as a client would."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.mcp.calls import answered
from tests.support.readme import ROOT, blocks

PAGE = ROOT / "docs" / "guide" / "mcp.md"


def configurations() -> list[dict[str, Any]]:
    """The server entry of each configuration on the page."""
    told = [json.loads(block) for block in blocks("json", PAGE)]
    told += [tomllib.loads(block) for block in blocks("text", PAGE) if block.startswith("[mcp_servers.")]
    servers = [next(iter(one.values()))["memory"] for one in told]
    return [one for one in servers if "command" in one]


def test_every_client_is_told_the_same_command() -> None:
    commands = [(one["command"], one["args"]) for one in configurations()]
    assert len(commands) == 3
    assert commands == [commands[0]] * 3
    assert commands[0][0] == "memory"


async def test_the_configuration_of_the_page_starts_a_server(tmp_path: Path) -> None:
    configuration = configurations()[0]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMORY")}
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "memory_tiers", *configuration["args"]],
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
    )
    async with Client(stdio_client(command)) as client:
        await answered(client, "add_memory", content="Ada likes tea")
        assert len((await answered(client, "search_memory", query="what does Ada drink?"))["entries"]) == 1
    assert (tmp_path / "agent.db").exists()
