"""A folder, and an open store on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from memory.adapters.file.store import FileStore
from tests.unit.adapters.file.helping import opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest_asyncio.fixture
async def store(folder: Path) -> AsyncIterator[FileStore]:
    made = await opened(folder)
    yield made
    await made.close()
