"""`memory mcp` as a process that a client starts, over its standard input and output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from typer.testing import CliRunner

from memory.cli.exit_codes import PIPE_CLOSED
from memory.cli.main import app
from tests.mcp.calls import answered, refused

ROOT = Path(__file__).resolve().parents[2]
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMORY")}
    return {**kept, "MEMORY__EMBEDDER": "none", "PYTHONPATH": str(ROOT)}


def parameters(folder: Path, *words: str) -> StdioServerParameters:
    arguments = ["-m", "memory.cli", "mcp", "--config", str(folder / "m.db"), *words]
    return StdioServerParameters(command=sys.executable, args=arguments, env=environment(), cwd=folder)


@contextmanager
def served(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    told = parameters(folder, *words)
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([told.command, *told.args], cwd=folder, env=told.env, text=True, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: subprocess.Popen[str], number: int, method: str, **params: Any) -> dict[str, Any]:
    """The answer to one request; no other line comes before it."""
    return send(process, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def send(process: subprocess.Popen[str], request: dict[str, Any]) -> dict[str, Any]:
    """The answer to an object that has an id."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    assert answer["id"] == request["id"]
    return answer


@pytest.mark.nightly
async def test_both_versions_of_the_protocol_share_a_memory(tmp_path: Path) -> None:
    words = ("--scope", "user:ada")
    for mode, protocol in (("legacy", "2025-11-25"), ("auto", "2026-07-28")):
        async with Client(stdio_client(parameters(tmp_path, *words)), mode=mode) as client:
            assert client.protocol_version == protocol
            assert len((await client.list_tools()).tools) == 11
            added = await answered(client, "add_memory", content="Ada likes tea", key="tea")
            found = await answered(client, "search_memory", query="tea")
            assert [one["id"] for one in found["entries"]] == [added["entry"]["id"]]


@pytest.mark.nightly
async def test_options_say_what_callers_see_and_do(tmp_path: Path) -> None:
    async with Client(stdio_client(parameters(tmp_path, "--scope", "user:ada"))) as client:
        await answered(client, "add_memory", content="Ada likes tea")
    async with Client(stdio_client(parameters(tmp_path, "--scope", "user:bob", "--read-only"))) as client:
        assert (await answered(client, "search_memory", query="tea"))["entries"] == []
        assert (await refused(client, "add_memory", content="x"))[0] == "unknown_tool"


@pytest.mark.nightly
def test_nothing_but_the_protocol_is_on_standard_output(tmp_path: Path) -> None:
    with served(tmp_path, "--scope", "user:ada") as process:
        assert process.stdin is not None
        process.stdin.write("this is not JSON\n\n{}\n[]\n\x00\n" + "x" * 5_000_000 + "\n")
        assert "result" in ask(process, 1, "initialize", **INITIALIZE)
        assert "error" in ask(process, 2, "no/method")
        assert "result" in ask(process, 3, "tools/call", name="list_memories", arguments={})
        out, _ = process.communicate(timeout=60)
        assert [json.loads(line)["jsonrpc"] for line in out.splitlines()] == []
        assert process.returncode == 0


def test_a_client_that_goes_away_is_no_bug(tmp_path: Path) -> None:
    with served(tmp_path) as process:
        assert process.stdout is not None
        process.stdout.close()
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        _, err = process.communicate(json.dumps(ping) + "\n", timeout=60)
        assert (process.returncode, err) == (PIPE_CLOSED, "")


def test_calls_that_run_when_the_input_ends_are_answered(tmp_path: Path) -> None:
    """The memory opens behind the first answer, so the calls run while the input ends."""
    requests: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": INITIALIZE},
        *[
            {"id": number, "method": "tools/call", "params": {"name": "add_memory", "arguments": given}}
            for number, given in enumerate(({"content": "tea"}, {"content": "milk"}, {}), 2)
        ],
        {"method": "notifications/cancelled", "params": {"requestId": 99}},
    ]
    with served(tmp_path, "--scope", "user:ada") as process:
        lines = "".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in requests)
        out, _ = process.communicate(lines, timeout=120)
    answers = {one["id"]: one for one in map(json.loads, out.splitlines())}
    assert sorted(answers) == [1, 2, 3, 4]
    stored = {answers[number]["result"]["structuredContent"]["entry"]["content"] for number in (2, 3)}
    assert stored == {"tea", "milk"}
    assert answers[4]["result"]["isError"]
    assert process.returncode == 0


@pytest.mark.nightly
def test_calls_that_the_client_cancels_end_no_other_call(tmp_path: Path) -> None:
    with served(tmp_path, "--scope", "user:ada") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ask(process, 1, "initialize", **INITIALIZE)
        ask(process, 2, "tools/call", name="add_memory", arguments={"content": "Ada drinks tea"})
        search = {"name": "search_memory", "arguments": {"query": "tea"}}
        for number in range(3, 90):
            for line in (
                {"id": number, "method": "tools/call", "params": search},
                {"method": "notifications/cancelled", "params": {"requestId": number}},
            ):
                process.stdin.write(json.dumps({"jsonrpc": "2.0", **line}) + "\n")
                process.stdin.flush()
                time.sleep(number % 7 / 1_000)
        last = {"jsonrpc": "2.0", "id": 90, "method": "tools/call", "params": search}
        out, err = process.communicate(json.dumps(last) + "\n", timeout=120)
    answers = {one["id"]: one for one in map(json.loads, out.splitlines())}
    assert "Ada drinks tea" in answers[90]["result"]["content"][0]["text"], err
    assert process.returncode == 0


def test_a_request_that_cannot_be_read_is_answered_under_its_id(tmp_path: Path) -> None:
    """A client would wait for ever for an answer to half of an emoji, or without a version."""
    with served(tmp_path, "--scope", "user:ada") as process:
        ask(process, 1, "initialize", **INITIALIZE)
        for number, odd in enumerate(["tea \ud83d", "\udc00 tea", int("9" * 4_000), [[[]] * 9]], 2):
            for arguments in ({"query": "tea", "limit": odd}, {str(odd)[:20]: 1}):
                call = {"name": "search_memory", "arguments": arguments}
                answer = ask(process, number, "tools/call", **call)
                assert "error" in answer or answer["result"]["isError"]
                if isinstance(odd, str):
                    assert "whole characters" in answer["error"]["message"]
        for field, wrong in (
            ("params", {"jsonrpc": "2.0", "id": 90, "method": "tools/call", "params": ["list_memories"]}),
            ("jsonrpc", {"id": "a", "method": "ping"}),
            ("jsonrpc", {"jsonrpc": "1.0", "id": 91, "method": "ping"}),
            ("method", {"jsonrpc": "2.0", "id": 92, "method": 5}),
        ):
            error = send(process, wrong)["error"]
            assert (error["code"], error["message"].partition(":")[0]) == (-32600, field), wrong
        listed = ask(process, 99, "tools/call", name="list_memories", arguments={})
        assert not listed["result"].get("isError")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_a_signal_ends_it_and_loses_nothing_acknowledged(tmp_path: Path, number: signal.Signals) -> None:
    call = {"name": "add_memory", "arguments": {"content": "Ada likes tea"}}
    with served(tmp_path, "--scope", "user:ada") as process:
        ask(process, 1, "initialize", **INITIALIZE)
        assert not ask(process, 2, "tools/call", **call)["result"].get("isError")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, "Traceback" in err) == (0, "", False)
    with served(tmp_path, "--scope", "user:ada") as process:
        ask(process, 1, "initialize", **INITIALIZE)
        listed = ask(process, 2, "tools/call", name="list_memories", arguments={})
        assert len(listed["result"]["structuredContent"]["entries"]) == 1


@pytest.mark.nightly
def test_calls_that_a_kill_cut_off_are_repeated_without_loss_or_double(tmp_path: Path) -> None:
    def call(n: int) -> dict[str, Any]:
        return {"name": "add_memory", "arguments": {"content": f"fact {n}", "request_id": f"r{n}"}}

    acknowledged: dict[int, str] = {}
    for killed_after in (10, 40, None):
        with served(tmp_path, "--scope", "user:ada", "--token-budget", "100000") as process:
            ask(process, 0, "initialize", **INITIALIZE)
            assert process.stdin is not None
            assert process.stdout is not None
            for n in range(1, 101):  # without waiting for an answer
                request = {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": call(n)}
                process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            for _ in range(killed_after or 100):
                answer = json.loads(process.stdout.readline())
                entry = answer["result"]["structuredContent"]["entry"]["id"]
                assert acknowledged.setdefault(answer["id"], entry) == entry
            if killed_after is not None:
                process.kill()
                continue
            listed = ask(process, 101, "tools/call", name="list_memories", arguments={"limit": 100})
            entries = listed["result"]["structuredContent"]
            assert entries.get("cursor") is None
            assert {one["id"] for one in entries["entries"]} == set(acknowledged.values())
            assert len(entries["entries"]) == 100


@pytest.mark.nightly
async def test_a_store_that_cannot_be_opened_is_an_error_result(tmp_path: Path) -> None:
    (tmp_path / "m.db").write_text("this is no database " * 500)
    async with Client(stdio_client(parameters(tmp_path))) as client:
        assert len((await client.list_tools()).tools) == 11
        for _ in range(2):
            assert (await refused(client, "list_memories"))[0] != "internal"


def test_a_wrong_option_ends_it_at_once(tmp_path: Path) -> None:
    """The first as a process; where the options are read is the same for all."""
    told = parameters(tmp_path, "--scope", "ada")
    ended = subprocess.run(
        [told.command, *told.args],
        cwd=tmp_path,
        env=told.env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert (ended.returncode, ended.stdout) == (4, "")
    assert "error: scope: " in ended.stderr
    wrong = {
        "tools": ["--tools", "ad_memory"],
        "token_budget": ["--token-budget", "1"],
        "allow_delete": ["--read-only", "--allow-delete"],
    }
    for named, words in wrong.items():
        result = CliRunner().invoke(app, [*parameters(tmp_path, *words).args[2:]], env=told.env)
        assert (result.exit_code, result.stdout) == (4, ""), named
        assert f"error: {named}: " in result.stderr


def test_the_first_answer_waits_for_no_store_and_no_model() -> None:
    """They take longer to load than a client should wait."""
    own = ("memory.orchestrator", "memory.adapters", "memory.facade.memory", "memory.facade.runtime")
    heavy = (*own, "memory.facade.config.settings", "sqlalchemy", "numpy", "tokenizers")
    script = "import sys, memory.cli.main, memory.cli.mcp, memory.mcp.stdio\nprint(*sys.modules)"
    command = [sys.executable, "-c", script]
    loaded = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=True
    ).stdout.split()
    assert "memory.mcp.stdio" in loaded
    assert [one for one in loaded if one.startswith(heavy)] == []
