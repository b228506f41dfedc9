"""The configurations of docs/guide/mcp.md start a server, as each client would."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.mcp.calls import answered
from tests.support.readme import ROOT, blocks

PAGE = ROOT / "docs" / "guide" / "mcp.md"
TOLD = ("command", "args", "env", "type")
"""What a client reads of the entry of a server."""


def configurations() -> dict[str, dict[str, Any]]:
    """The entry of the server by client, as the table of the page says."""
    first, second = [json.loads(block) for block in blocks("json", PAGE)]
    (third,) = [tomllib.loads(block) for block in blocks("text", PAGE) if block.startswith("[mcp_servers.")]
    forms = {
        "as above": first["mcpServers"],
        "as below, first": second["servers"],
        "as below, second": third["mcp_servers"],
    }
    rows = re.findall(r"(?m)^\| ([^|]+) \| `[^|]+ \| (as [^|]+) \|$", PAGE.read_text())
    return {client: forms[form]["memory"] for client, form in rows}


def commands_of_claude() -> list[list[str]]:
    """The words after `--` of `claude mcp add` on the page."""
    told = re.findall(r"`(claude mcp add [^`]* -- [^`]*)`", PAGE.read_text())
    return [shlex.split(one.partition(" -- ")[2]) for one in told]


CLIENTS = ("Claude Code", "Claude Desktop", "Cursor", "VS Code", "Codex")


def test_every_client_is_told_the_same_command() -> None:
    told = configurations()
    assert tuple(told) == CLIENTS
    for client, one in told.items():
        assert one.keys() <= set(TOLD), client
        assert one.get("type", "stdio") == "stdio"
        assert (one["command"], one["args"]) == ("memory", told[CLIENTS[0]]["args"]), client
    assert [words[0] for words in commands_of_claude()] == ["memory"]


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a client that finds the command `memory` on its path."""
    commands = tmp_path / "bin"
    commands.mkdir()
    command = commands / "memory"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m memory_tiers "$@"\n')
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMORY")}
    return {**kept, "PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


async def use(told: Mapping[str, Any], folder: Path, environment: Mapping[str, str]) -> None:
    """Start a server exactly as an entry says, list its tools and call two of them."""
    command = StdioServerParameters(
        command=told["command"], args=told["args"], env={**environment, **told.get("env", {})}, cwd=folder
    )
    async with Client(stdio_client(command)) as client:
        assert "search_memory" in {one.name for one in (await client.list_tools()).tools}
        await answered(client, "add_memory", content="Ada likes tea")
        assert len((await answered(client, "search_memory", query="what does Ada drink?"))["entries"]) == 1


@pytest.mark.parametrize(
    "client", [pytest.param(one, marks=[pytest.mark.nightly] if one != "Codex" else []) for one in CLIENTS]
)
async def test_the_configuration_of_each_client_starts_a_server(
    client: str, tmp_path: Path, installed: dict[str, str]
) -> None:
    await use(configurations()[client], tmp_path, installed)
    assert (tmp_path / "agent.db").exists()


@pytest.mark.nightly
async def test_the_command_for_claude_code_starts_a_server(tmp_path: Path, installed: dict[str, str]) -> None:
    for words in commands_of_claude():
        environment = {**installed, "XDG_DATA_HOME": str(tmp_path)}  # it names no database
        await use({"command": words[0], "args": words[1:]}, tmp_path, environment)
