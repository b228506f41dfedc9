"""Fixtures of the tests of the HTTP server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memory.facade.memory import Memory
from tests.acceptance.support import Clock
from tests.server.api import Api, open_api
from tests.server.support import Client, client_of
from tests.support import empty_file


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def memory(tmp_path: Path, clock: Clock) -> AsyncIterator[Memory]:
    """An open memory over one SQLite file."""
    empty_file.put(tmp_path / "memory.db")
    async with Memory(f"sqlite:///{tmp_path}/memory.db", clock=clock) as opened:
        yield opened


@pytest.fixture
async def client(memory: Memory) -> AsyncIterator[Client]:
    """A client of that memory's application, as in `memory serve --dev`."""
    async with client_of(memory, models=("small",)) as one:
        yield one


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """The application over a memory in memory, whose answers are checked against OpenAPI."""
    async with open_api() as opened:
        yield opened


@pytest.fixture
def ada(api: Api) -> Client:
    """A writer of its tenant."""
    return api.client()
