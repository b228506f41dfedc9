"""The example agent, run as people run it: it remembers from one run to the next, with
its stand-in and with a model behind an endpoint.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from examples import agent
from memory import BlockingMemory, Memory

AGENT = Path(agent.__file__)
pytestmark = pytest.mark.backend("sqlite")


def says(folder: Path, session: str, said: str, **environ: str) -> tuple[str, list[str]]:
    """What it answers, and what it tells of its memory."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MEMORY", "OPENAI"))}
    command = [sys.executable, str(AGENT), "--session", session, said]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**clean, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), [line.removeprefix("  · ") for line in done.stderr.splitlines()]


def test_it_knows_on_tuesday_what_it_was_told_on_monday_and_looks_up_what_it_is_asked_to(
    tmp_path: Path,
) -> None:
    home = "I live in Porto with two cats."
    assert says(tmp_path, "monday", home) == ("I will remember that.", [f"learnt: {home}"])
    assert says(tmp_path, "tuesday", "In which city do I live?") == (
        f"You told me: {home}",
        ["shown to the model: 1 entries of memory"],
    )
    with BlockingMemory(f"sqlite:///{tmp_path / 'agent.db'}", embedder="none") as memory:
        sessions = memory.sessions.list(by="created", order="oldest").sessions
        assert [(one.id, one.message_count, one.preview) for one in sessions] == [
            ("ada/monday", 3, home),
            ("ada/tuesday", 3, "In which city do I live?"),
        ]
        answer = memory.session("ada/tuesday").context().messages[-1]
        assert (answer.text, answer.is_final) == (f"You told me: {home}", True)
        assert "<memory>" not in "".join(
            message.text for message in memory.session("ada/tuesday").context().messages
        ), "shown, and not kept"
    found, told = says(tmp_path, "wednesday", "Please look up in which city I live?")
    assert found == f"You told me: {home}"
    assert [line for line in told if line.startswith("called search_memory")]
    with BlockingMemory(f"sqlite:///{tmp_path / 'agent.db'}", embedder="none") as memory:
        roles = [message.role.value for message in memory.session("ada/wednesday").context().messages]
        assert roles == ["system", "user", "assistant", "tool", "assistant"]


async def test_its_window_stays_small_and_its_history_whole(tmp_path: Path) -> None:
    async with (
        Memory(f"sqlite:///{tmp_path / 'agent.db'}", embedder="none") as memory,
        agent.manager_of(memory, agent.stand_in, "ada") as manager,
    ):
        session = memory.session("s1", user="ada", system=agent.SYSTEM)
        for number in range(40):
            said = f"Note {number}: " + f"the ferry number {number} runs on Sundays " * 12
            assert [piece async for piece in agent.turn(manager, session, agent.stand_in, said)]
        info = await session.info()
        assert info.compaction_count > 0
        assert (await session.context()).total_tokens < agent.BUDGET
        assert len((await session.history(summaries=False)).items) == 81


@pytest.fixture
def model() -> Iterator[tuple[str, list[Any]]]:
    """The address of an endpoint that speaks as OpenAI's does, and what it was asked."""
    asked: list[Any] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(
                (
                    self.path,
                    self.headers["Authorization"],
                    json.loads(self.rfile.read(int(self.headers["Content-Length"]))),
                )
            )
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for delta in answers(asked[-1][2]):
                self.wfile.write(f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n".encode())
            self.wfile.write(b'data: {"choices": []}\n\ndata: [DONE]\n\n')

        def log_message(self, *_: object) -> None:
            """Nothing on the tests' screen."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
        server.shutdown()
        thread.join()


def answers(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Pieces of what the model behind the endpoint says, in the stream's form: it notes
    a fact, then calls the tool, then answers.
    """
    if "tools" not in request:
        return [{"content": '[{"content": "Ada lives in Porto '}, {"content": 'with two cats."}]'}]
    if request["messages"][-1]["role"] == "tool":
        return [{"content": "In "}, {"content": "Porto."}]
    called = {"index": 0, "id": "c9", "function": {"name": "search_memory", "arguments": ""}}
    parts = [{"index": 0, "function": {"arguments": text}} for text in ('{"query": ', '"the city"}')]
    return [{"tool_calls": [part]} for part in (called, *parts)]


@pytest.mark.thorough
def test_a_model_behind_an_endpoint_is_shown_what_is_known_and_calls_tools(
    tmp_path: Path, model: tuple[str, list[Any]]
) -> None:
    address, asked = model
    environ = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "sk-1", "OPENAI_MODEL": "small"}
    assert (
        says(tmp_path, "monday", "I live in Porto with two cats.", **environ)[1][-1]
        == "learnt: Ada lives in Porto with two cats."
    )
    before = len(asked)
    answer, told = says(tmp_path, "tuesday", "In which city do I live?", **environ)
    assert answer == "In Porto."
    assert [line.partition(" {")[0] for line in told][:2] == [
        "shown to the model: 1 entries of memory",
        "called search_memory",
    ]
    path, key, request = asked[before]
    assert (path, key, request["model"]) == ("/v1/chat/completions", "Bearer sk-1", "small")
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert (
        '<entry source="ada">Ada lives in Porto with two cats.</entry>' in request["messages"][1]["content"]
    )
    assert [tool["function"]["name"] for tool in request["tools"]] == ["search_memory"]
    (result,) = [message for message in asked[before + 1][2]["messages"] if message["role"] == "tool"]
    [shown] = json.loads(result["content"])
    assert 0 < shown.pop("relevance") < 1
    assert shown == {"content": "Ada lives in Porto with two cats.", "store_name": "ada"}
