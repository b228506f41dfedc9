"""The lines of the guide about keys, run against a server of its own."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from memory.cli.main import app
from tests.server.support import request_of_curl
from tests.support.readme import ROOT

PAGE = ROOT / "docs" / "guide" / "server-keys.md"
ENTRIES = "/v1/memory/entries"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - it must be refused


class CommandLine:
    """`memory` in this process, over one file, and a server of it in another process."""

    def __init__(self, folder: Path) -> None:
        self.environ = {
            "MEMORY_CONFIG": f"sqlite:///{folder / 'memory.db'}",
            "MEMORY__EMBEDDER": "none",
            "COLUMNS": "200",
        }

    def run(self, *words: str) -> str:
        result = CliRunner().invoke(app, list(words), env=self.environ, catch_exceptions=False)
        assert result.exit_code == 0, (words, result.stderr)
        return result.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    @contextmanager
    def server(self) -> Iterator[tuple[subprocess.Popen[str], str]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "memory.cli", "serve", "--port", "0"],
            env={**os.environ, **self.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving http://127.0.0.1:"), (line, process.communicate(timeout=10))
            yield process, line.split()[1]
        finally:
            process.kill()
            process.communicate(timeout=30)


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def status_of(url: str, key: str, method: str = "GET", body: Any = None) -> int:
    return httpx.request(method, url, headers={"X-API-Key": key}, json=body, timeout=30).status_code


def test_the_lines_of_the_guide_do_what_the_guide_says(line: CommandLine) -> None:
    lines = "".join(re.findall(r"(?ms)^```(?:sh|bash)\n(.*?)^```$", PAGE.read_text("utf-8"))).splitlines()
    before, after = lines[: lines.index("memory serve")], lines[lines.index("memory serve") + 1 :]
    shown = [line.run(*shlex.split(command)[1:]) for command in before]
    key = shown[0].strip()
    assert key.startswith("mt_")
    listed = line.json("keys", "list", "--tenant", "acme")
    assert [one["role"] for one in listed] == ["operator", "writer"]
    environ = {"KEY": key, "KEY_ID": listed[1]["id"]}
    writer = shown[1].strip()
    with line.server() as (process, address):
        environ["SERVER"] = address
        assert status_of(f"{address}{ENTRIES}?scope=user:ada", writer) == 200
        for command in after:
            if command.startswith("memory "):
                line.run(*[environ.get(word.lstrip("$"), word) for word in shlex.split(command)[1:]])
                continue
            asked = request_of_curl(Template(command).substitute(environ))
            done = httpx.request(
                asked.method, asked.url, headers=asked.headers, content=asked.body, timeout=30
            )
            assert done.status_code < 300, (command, done.text)
            assert isinstance(done.json(), dict)
        begun = time.monotonic()  # the guide has revoked the writer's key
        while status_of(f"{address}{ENTRIES}?scope=user:ada", writer) != 401:
            assert time.monotonic() - begun < 30
            time.sleep(0.1)
        made = status_of(address + ENTRIES, key, "POST", {"scope": "user:ada", "content": "tea"})
        assert made == 201
        while not any(one["action"] == f"POST {ENTRIES}" for one in _records(line)):
            assert time.monotonic() - begun < 60
            time.sleep(0.2)
        assert status_of(f"{address}/v1/admin/keys/{listed[0]['id']}", key, "DELETE") == 204
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    kept = [(one["action"], one["outcome"]) for one in _records(line)]
    assert ("DELETE /v1/admin/keys/{key_id}", 204) in kept
    assert ("POST /v1/admin/blocked-sources", 201) in kept


def _records(line: CommandLine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = line.json("audit", "list", "--tenant", "acme")["records"]
    return found


def test_a_server_that_would_show_the_memory_does_not_start(line: CommandLine) -> None:
    for words, problem in (
        ([], "no key exists yet"),
        (["--dev", "--host", EVERYWHERE], "127.0.0.1 only"),
        (["--host", EVERYWHERE], "unencrypted"),
        (["--tls-cert", "x.pem"], "go together"),
        (["--tls-cert", "x.pem", "--tls-key", __file__], "there is no file x.pem"),
        (["--tls-cert", __file__, "--tls-key", __file__], "not a PEM certificate"),
        (["--tenant", "~server"], "reserved"),
        (["--tenant", "~server", "--dev"], "reserved"),
    ):
        result = CliRunner().invoke(app, ["serve", "--port", "0", *words], env=line.environ)
        assert result.exit_code in (2, 4), result.stderr
        assert problem in result.stderr


def test_an_address_that_cannot_be_used_is_one_line(line: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, problem in (
            (["--port", str(port)], f"127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}. Choose another"),
            (["--port", "0", "--host", "192.0.2.1", "--behind-proxy"], "192.0.2.1:0: "),
        ):
            line.run("keys", "create", "--role", "operator")
            result = CliRunner().invoke(app, ["serve", *words], env=line.environ)
            assert result.exit_code == 4, result.stderr
            assert problem in result.stderr
            assert result.stderr.count("\n") == 1


def test_keys_are_managed_on_the_command_line(line: CommandLine) -> None:
    made = line.json("keys", "create", "--tenant", "acme", "--role", "reader", "--scope", "user:ada")
    assert made["key"].startswith(f"mt_{made['id']}_")
    rotated = line.json("keys", "rotate", made["id"], "--overlap", "0s")
    assert rotated["id"] == made["id"]
    assert rotated["key"] != made["key"]
    assert line.json("keys", "revoke", made["id"])["revoked_at"] is not None
    assert line.json("keys", "list") == []
    assert [one["id"] for one in line.json("keys", "list", "--all")] == [made["id"]]
    assert "revoked" in line.run("keys", "list", "--tenant", "acme")
    assert line.json("audit", "list", "--all") == {"records": [], "cursor": None}
    for words, code in (
        (["keys", "revoke", made["id"]], 1),
        (["keys", "rotate", "nobody0000"], 1),
        (["keys", "create", "--role", "root"], 2),
        (["keys", "create", "--role", "reader", "--expires", "soon"], 2),
        (["keys", "create", "--role", "admin", "--scope", "user:ada"], 2),
        (["keys", "create", "--role", "reader", "--tenant", "~server"], 2),
        (["audit", "list", "--since", "soon"], 2),
    ):
        result = CliRunner().invoke(app, words, env=line.environ)
        assert result.exit_code == code, (words, result.stderr)


def test_volatile_stores_have_no_keys(line: CommandLine) -> None:
    line.environ["MEMORY_CONFIG"] = "memory://"
    for words in (["keys", "create", "--role", "reader"], ["serve", "--port", "0"]):
        result = CliRunner().invoke(app, words, env=line.environ)
        assert result.exit_code == 4
        assert "durable" in result.stderr


@pytest.mark.parametrize("length", ["P90D", "9999999d", "soon"])
def test_a_wrong_length_of_time_is_refused_by_name(line: CommandLine, length: str) -> None:
    key = line.json("keys", "create", "--role", "reader")
    for words in (
        ("keys", "create", "--role", "reader", "--expires", length),
        ("keys", "rotate", key["id"], "--overlap", length),
    ):
        result = CliRunner().invoke(app, list(words), env=line.environ)
        field = words[-2].removeprefix("--")
        assert (result.exit_code, result.stderr.startswith(f"error: {field}: ")) == (2, True), result.stderr
    result = CliRunner().invoke(app, ["audit", "list", "--since", length], env=line.environ)
    assert result.exit_code == (0 if length == "9999999d" else 2), result.stderr
