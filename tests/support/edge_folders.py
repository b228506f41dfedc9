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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

from memory.ports.collections import Collection
from tests.support import quick_folders

LONG = 1_000
"""Vectors longer than this make each segment large, also for what comes after them."""


def begun(folder: Path, collections: Sequence[Collection]) -> Path:
    """The folder, with an empty store in it that was open with these collections and is
    closed; untouched where folders are on a disk in memory.
    """
    if sys.platform == "linux" and not quick_folders.there_is_one():
        copied(_empty(tuple(collections)), folder)
    return folder


@contextmanager
def kept_open() -> Iterator[Path]:
    """A folder with an empty store in its `data`, whose shard stays open between the memories
    that use it in turn: making and reading its indexes takes longer than most tests.
    """
    from qdrant_edge import Filter, UpdateOperation

    from memory.adapters.qdrant.edge import EdgeEngine
    from memory.adapters.qdrant.edge_folder import dimensions_of

    load, let_go = EdgeEngine._load, EdgeEngine._let_go
    shard = _kept.folder / "data" / "shard"
    if not _kept.is_open() or max(dimensions_of(shard), default=0) > LONG:
        _kept.close()
    else:
        _kept.shard.update(UpdateOperation.delete_points_by_filter(Filter()))

    def take_over(engine: EdgeEngine) -> None:
        ours = engine.folder.shard == shard
        if not ours or not _kept.is_open():
            load(engine)
            _kept.shard = engine.shard if ours else _kept.shard
            return
        engine.shard, engine.dimensions, engine._logged = _kept.shard, engine.folder.dimensions(), 0

    def leave_open(engine: EdgeEngine) -> None:
        if engine.shard is _kept.shard:
            engine.shard = None
        let_go(engine)

    with patch.object(EdgeEngine, "_load", take_over), patch.object(EdgeEngine, "_let_go", leave_open):
        yield _kept.folder


class _Kept:
    """The shard that stays open in this process."""

    def __init__(self) -> None:
        self.shard: Any = None

    @cached_property
    def folder(self) -> Path:
        folder = quick_folders.new(otherwise=Path(tempfile.gettempdir()))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def is_open(self) -> bool:
        """Whether it is; a vacuum closes it and opens another."""
        try:
            return self.shard is not None and self.shard.info() is not None
        except Exception:  # noqa: BLE001 - Edge raises plain exceptions
            return False

    def close(self) -> None:
        if self.is_open():
            self.shard.close()
        self.shard = None
        shutil.rmtree(self.folder / "data", ignore_errors=True)


_kept = _Kept()


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
