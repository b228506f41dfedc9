"""Fixtures of the tests of the HTTP server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memory.facade.memory import Memory
from tests.acceptance.support import Clock
from tests.server.support import Client, client_of


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def memory(tmp_path: Path, clock: Clock) -> AsyncIterator[Memory]:
    """An open memory over one SQLite file."""
    async with Memory(f"sqlite:///{tmp_path}/memory.db", clock=clock) as opened:
        yield opened


@pytest.fixture
async def client(memory: Memory) -> AsyncIterator[Client]:
    """A client of that memory's application, as in `memory serve --dev`."""
    async with client_of(memory, models=("small",)) as one:
        yield one
