"""A database file with the schema in it: copying it is faster than making it."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from memory.adapters.sql.sqlite.store import SqliteStore
from memory.orchestrator.storage.kinds import KINDS


def put(path: Path) -> None:
    """Put such a file there: a memory opens it as one that was opened before."""
    path.write_bytes(_content())


@functools.cache
def _content() -> bytes:
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(1) as apart,
    ):  # a loop may be running here
        path = Path(folder) / "empty.db"
        apart.submit(lambda: asyncio.run(_make(path))).result()
        return path.read_bytes()


async def _make(path: Path) -> None:
    store = SqliteStore(f"sqlite:///{path}", name="template")
    await store.open(KINDS.collections)
    await store.close()
