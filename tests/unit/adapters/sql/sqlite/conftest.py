"""A store on a file of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.contract.collections import DECLARED


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest_asyncio.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(f"sqlite:///{file}")
    await opened.open(DECLARED)
    yield opened
    await opened.close()
