"""Folders for Edge and open stores on both engines."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from memory.adapters.qdrant.store import QdrantStore
from memory.ports.contract.collections import DECLARED
from tests.support import edge_folders, quick_folders

ENGINES = [pytest.param(name, marks=pytest.mark.backend(name)) for name in ("qdrant_edge", "qdrant_local")]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where nothing is yet; on a disk in memory where there is one."""
    made = quick_folders.new(otherwise=tmp_path)
    yield made / "data"
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Path]:
    made = quick_folders.on_disk(otherwise=tmp_path)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest_asyncio.fixture
async def edge(folder: Path) -> AsyncIterator[QdrantStore]:
    opened = QdrantStore(f"qdrant+edge:///{edge_folders.begun(folder, DECLARED)}", name="edge")
    await opened.open(DECLARED)
    yield opened
    await opened.close()


@pytest_asyncio.fixture(params=ENGINES)
async def either(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[QdrantStore]:
    """A store on each engine in turn."""
    edge = request.param == "qdrant_edge"
    opened = QdrantStore(
        f"qdrant+edge:///{edge_folders.begun(folder, DECLARED)}" if edge else "qdrant://:memory:"
    )
    await opened.open(DECLARED)
    yield opened
    await opened.close()
