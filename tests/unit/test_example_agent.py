"""The example agent, run as people run it: it remembers from one run to the next, with its stand-in and with a model behind an endpoint."""

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


def says(folder: Path, session: str, said: str, **environ: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MEMORY", "OPENAI"))}
    command = [sys.executable, str(AGENT), "--session", session, said]
    return subprocess.run(command, cwd=folder, env={**clean, **environ}, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


def test_it_knows_on_tuesday_what_it_was_told_on_monday(tmp_path: Path) -> None:
    assert says(tmp_path, "monday", "I live in Porto with two cats.") == "I will remember that."
    assert says(tmp_path, "tuesday", "In which city do I live?") == "You told me: I live in Porto with two cats."
    with BlockingMemory(f"sqlite:///{tmp_path / 'agent.db'}", embedder="none") as memory:
        sessions = memory.sessions.list(by="created", order="oldest").sessions
        assert [(one.id, one.message_count, one.preview) for one in sessions] == [
            ("monday", 3, "I live in Porto with two cats."),
            ("tuesday", 3, "In which city do I live?"),
        ]
        answer = memory.session("tuesday").context().messages[-1]
        assert (answer.text, answer.is_final) == ("You told me: I live in Porto with two cats.", True)


async def test_its_window_stays_small_and_its_history_whole(tmp_path: Path) -> None:
    async with Memory(f"sqlite:///{tmp_path / 'agent.db'}", embedder="none") as memory:
        for number in range(40):
            said = f"Note {number}: " + f"the ferry number {number} runs on Sundays " * 12
            assert [piece async for piece in agent.turn(memory, agent.stand_in, said, user="ada", session_id="s1")]
        session = memory.session("s1")
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
            asked.append((self.path, self.headers["Authorization"], json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for piece in ("In ", "Porto."):
                self.wfile.write(f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\n\n".encode())
            self.wfile.write(b'data: {"choices": []}\n\ndata: [DONE]\n\n')

        def log_message(self, *_: object) -> None:
            """Nothing on the tests' screen."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
        server.shutdown()
        thread.join()


def test_a_model_behind_an_endpoint_is_sent_what_is_known(tmp_path: Path, model: tuple[str, list[Any]]) -> None:
    address, asked = model
    environ = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "sk-1", "OPENAI_MODEL": "small"}
    says(tmp_path, "monday", "I live in Porto with two cats.", **environ)
    assert says(tmp_path, "tuesday", "In which city do I live?", **environ) == "In Porto."
    path, key, request = asked[-1]
    assert (path, key, request["model"]) == ("/v1/chat/completions", "Bearer sk-1", "small")
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert "- I live in Porto with two cats." in request["messages"][0]["content"]
