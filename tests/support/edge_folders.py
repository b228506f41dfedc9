"""Folders for Qdrant Edge: on a disk in memory where there is one with room, because Edge waits for the disk thirty times when a folder is made."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

IN_MEMORY = Path("/dev/shm")
ROOM = 2**30
"""Containers often have 64 MiB there, less than Edge keeps free."""


def new(otherwise: Path) -> Path:
    """A fresh folder, in `otherwise` where there is no such disk. Whoever asked for it removes it."""
    fast = os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > ROOM
    return Path(tempfile.mkdtemp(prefix="memory-edge-", dir=IN_MEMORY if fast else otherwise))


def change(folder: Path, point: str, values: dict[str, str]) -> None:
    """Change values of a point's payload behind the adapter's back. No store may have the folder open."""
    import qdrant_edge

    shard = qdrant_edge.EdgeShard.load(str(folder / "shard"))
    try:
        shard.update(qdrant_edge.UpdateOperation.set_payload([point], values))
        shard.flush()
    finally:
        shard.close()
