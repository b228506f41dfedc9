"""The lines of the guide's page: each `curl` is sent, and answered well."""

from __future__ import annotations

from typing import Any

import pytest

from memory.facade.memory import Memory
from tests.server.support import Client, client_of, request_of_curl
from tests.support.readme import GUIDE, blocks

pytestmark = pytest.mark.backend("in_memory")
[PAGE] = [page for page in GUIDE if page.name == "server.md"]
LINES = [line for block in blocks("bash", PAGE) for line in block.splitlines() if line.strip()]


async def send(client: Client, line: str) -> Any:
    """Send what a line of curl sends."""
    asked = request_of_curl(line)
    path = asked.url.removeprefix("http://127.0.0.1:8080")
    answer = await client.answer(asked.method, path, content=asked.body, headers=asked.headers)
    assert answer.status_code < 300, (line, answer.text)
    return answer.json()


async def test_the_lines_of_the_page_run() -> None:
    assert len(LINES) >= 8
    async with Memory("memory://") as memory, client_of(memory, local_only=True) as client:
        written, found, listed, *_ = [await send(client, line) for line in LINES]
        assert written["title"] == found["entries"][0]["title"] == listed["entries"][0]["title"] == "Tea"
