"""The example advisor, run as people run it, against an endpoint of this machine that
speaks as OpenAI's does.
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

from examples import advisor
from memory import BlockingMemory
from memory.ports.advisor import Advice, Prompt

pytestmark = pytest.mark.backend("sqlite")


class Endpoint(BaseHTTPRequestHandler):
    """Answers as it is scripted, and notes what it was asked."""

    asked: list[tuple[str, str | None, dict[str, Any]]]
    answers: dict[str, Any]

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, self.headers["Authorization"], said))
        of = "tags" if "tags" in said["messages"][0]["content"] else "supersedes"
        answer = json.dumps(self.answers[of]).encode()
        self.send_response(200 if "choices" in self.answers[of] else 500)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def completion(text: str | None, **usage: int) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]} | (
        {"usage": usage} if usage else {}
    )


@pytest.fixture
def endpoint() -> Iterator[tuple[str, type[Endpoint]]]:
    kind = type("Scripted", (Endpoint,), {"asked": [], "answers": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", kind
    server.shutdown()
    server.server_close()


def run(folder: Path, said: str, **environ: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MEMORY", "OPENAI"))}
    command = [sys.executable, str(Path(advisor.__file__)), said]
    given = {**clean, "MEMORY__EMBEDDER": "none", **environ}
    done = subprocess.run(
        command, cwd=folder, env=given, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.thorough
def test_what_is_written_is_tagged_and_takes_the_place_of_what_it_contradicts(
    tmp_path: Path, endpoint: tuple[str, type[Endpoint]]
) -> None:
    url, scripted = endpoint
    with BlockingMemory(f"sqlite:///{tmp_path / 'advisor.db'}", embedder="none") as memory:
        old = memory.write("Ada lives in Lisbon", scope="user:me")
    scripted.answers = {
        "tags": completion("Home\ncity", prompt_tokens=90, completion_tokens=4),
        "supersedes": completion("1\nShe has moved."),
    }
    told = run(
        tmp_path,
        "Ada lives in Porto",
        OPENAI_BASE_URL=url + "/",
        OPENAI_MODEL="words-1",
        OPENAI_API_KEY="a-key",
    )
    assert told[0] == "remembered: Ada lives in Porto ['home', 'city']"
    assert "  · auto_tag by words-1: 90 tokens in, 4 out" in told
    assert "  · auto_supersede by words-1: None tokens in, None out" in told
    assert {(path, key, said["model"]) for path, key, said in scripted.asked} == {
        ("/v1/chat/completions", "Bearer a-key", "words-1")
    }
    with BlockingMemory(f"sqlite:///{tmp_path / 'advisor.db'}", embedder="none") as memory:
        assert [entry.content for entry in memory.retrieve("user:me")] == ["Ada lives in Porto"]
        (link,) = memory.relations.find(target_id=old.id)
        assert (link.made_by, link.note) == ("words-1", "She has moved.")


@pytest.mark.thorough
def test_an_endpoint_that_fails_costs_no_write_and_without_one_nobody_is_asked(
    tmp_path: Path, endpoint: tuple[str, type[Endpoint]]
) -> None:
    url, scripted = endpoint
    scripted.answers = {"tags": {"error": "no"}, "supersedes": {"error": "no"}}
    told = run(tmp_path, "Ada lives in Porto", OPENAI_BASE_URL=url, OPENAI_MODEL="words-1")
    assert told[0] == "remembered: Ada lives in Porto []"
    assert "HTTP Error 500" in told[1]
    assert scripted.asked[0][1] is None
    assert (
        run(tmp_path, "Ada sails")[1:] == ["  · nobody was asked: set OPENAI_BASE_URL and OPENAI_MODEL"] * 2
    )
    assert advisor.OpenAIAdvisor.from_environment({"OPENAI_MODEL": "words-1"}) is None


async def test_an_answer_without_text_is_an_empty_one(endpoint: tuple[str, type[Endpoint]]) -> None:
    url, scripted = endpoint
    scripted.answers = {"supersedes": completion(None)}
    answer = await advisor.OpenAIAdvisor(url, "words-1").advise(Prompt("which?", "this"))
    assert isinstance(answer, Advice)
    assert (str(answer), answer.input_tokens) == ("", None)
