"""Folders of Qdrant Edge to begin with. On a disk Edge waits some hundred times when it
makes one, for seconds; a copy waits for nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from memory.ports.collections import Collection
from tests.support import quick_folders


def begun(folder: Path, collections: Sequence[Collection]) -> Path:
    """The folder, with an empty store in it that was open with these collections and is
    closed; untouched where folders are on a disk in memory.
    """
    if sys.platform == "linux" and not quick_folders.there_is_one():
        copied(_empty(tuple(collections)), folder)
    return folder


def copied(folder: Path, to: Path) -> None:
    """With the holes in its files, which are most of them."""
    subprocess.run(["cp", "-a", "--sparse=always", str(folder), str(to)], check=True)


@cache
def _empty(collections: tuple[Collection, ...]) -> Path:
    """Made once a process."""
    place = Path(tempfile.mkdtemp(prefix="memory-tests-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    with ThreadPoolExecutor(1) as apart:  # a loop may be running here
        apart.submit(lambda: asyncio.run(_make(place / "data", collections))).result()
    return place / "data"


async def _make(folder: Path, collections: Sequence[Collection]) -> None:
    from memory.adapters.qdrant.store import QdrantStore

    store = QdrantStore(f"qdrant+edge:///{folder}")
    await store.open(collections)
    await store.close()
