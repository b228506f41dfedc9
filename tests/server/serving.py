"""Real `memory serve` processes, and the topologies that they serve."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.readme import ROOT

LOADED = {f"MEMORY__SERVER__{name}": "100000" for name in ("RATE", "BURST", "CONCURRENCY")}
"""Settings of a server that limits no key."""


class Server:
    """A running `memory serve`, and its address.

    Args:
        folder: Where it runs. Its standard error is `server.log` there.
        options: Further options of the command.
        config: What it serves, by default one file in the folder.
        dev: Whether it serves without keys.
        module: The module that is run.
        environment: Further variables, such as settings.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        config: str | None = None,
        dev: bool = True,
        module: str = "memory.cli",
        **environment: str,
    ) -> None:
        kind = ["--dev"] if dev else []
        asked = [*command_of(folder, config, module), "serve", *kind, "--port", "0", *options]
        self.log = folder / "server.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                asked,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env={**environment_of(), **environment},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("serving http://127.0.0.1:"), (line, self.log.read_text()[-4000:])
        self.url = line.removeprefix("serving ").strip()

    def connect(self) -> socket.socket:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return socket.create_connection((host, int(port)), timeout=60)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, unless it has ended, and return its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(timeout=120)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def environment_of() -> dict[str, str]:
    """The environment of a command: this one, with the sources of this checkout."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MEMORY_")}
    return {**own, "PYTHONPATH": str(ROOT)}


def command_of(folder: Path, config: str | None = None, module: str = "memory.cli") -> list[str]:
    """The command `memory` with a configuration."""
    return [sys.executable, "-m", module, "--config", config or f"sqlite:///{folder}/memory.db"]


@contextmanager
def serving(folder: Path, *options: str, **given: Any) -> Iterator[Server]:
    """A server that is gone afterwards."""
    server = Server(folder, *options, **given)
    try:
        yield server
    finally:
        server.end(signal.SIGKILL)


def toml_of(folder: Path, config: dict[str, Any]) -> str:
    """A configuration as a file in the folder, for commands; its path."""
    file = folder / "served.toml"
    tiers = [f"{name} = {json.dumps(url)}" for name, url in config["tiers"].items()]
    file.write_text("\n".join(['embedder = "none"', "[tiers]", *tiers, ""]))
    return str(file)


def create_key(folder: Path, config: str | None, role: str, *options: str) -> str:
    """The text of a new key, by the command."""
    asked = [*command_of(folder, config), "--json", "keys", "create", "--role", role, *options]
    made = subprocess.run(
        asked, env=environment_of(), cwd=folder, text=True, capture_output=True, timeout=120
    )
    assert made.returncode == 0, made.stderr
    return str(json.loads(made.stdout)["key"])


def check_health(folder: Path, config: str | None, *options: str) -> None:
    """Check that `memory doctor` finds nothing wrong once no server runs."""
    asked = [*command_of(folder, config), "--json", "doctor", *options]
    done = subprocess.run(
        asked, env=environment_of(), cwd=folder, text=True, capture_output=True, timeout=600
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    told = json.loads(done.stdout)
    assert told["ok"]
    assert not told["problems"]
    assert not any(one["quarantined"] for one in told["stores"]), told["stores"]
