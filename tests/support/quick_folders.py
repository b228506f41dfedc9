"""Folders on a disk in memory, where one has room: for stores that wait for the disk (Edge when it makes a folder, files at every write)."""

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
    return Path(tempfile.mkdtemp(prefix="memory-tests-", dir=IN_MEMORY if fast else otherwise))
