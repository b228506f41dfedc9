"""Folders on a disk in memory, where one has room: for stores that wait for the disk
(Edge when it makes a folder, files at every write).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

IN_MEMORY = Path("/dev/shm")
ON_DISK = Path("/var/tmp")
ROOM = 2**30
"""Containers often have 64 MiB there, less than Edge keeps free."""
ROOM_OF_SERVERS = 8 * ROOM
"""A database takes some hundred MiB, and each worker has its own."""


def there_is_one() -> bool:
    return os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > ROOM


def new(otherwise: Path) -> Path:
    """A fresh folder, in `otherwise` where there is no such disk. Whoever asked for it
    removes it.
    """
    return Path(tempfile.mkdtemp(prefix="memory-tests-", dir=IN_MEMORY if there_is_one() else otherwise))


def programs_run_there() -> bool:
    return there_is_one() and not os.statvfs(IN_MEMORY).f_flag & os.ST_NOEXEC


def servers_run_there() -> bool:
    """Whether servers in containers may keep their data there. They write as users of
    their own, so only root can remove the data.
    """
    there = there_is_one() and shutil.disk_usage(IN_MEMORY).free > ROOM_OF_SERVERS
    return there and hasattr(os, "geteuid") and os.geteuid() == 0


def on_disk(otherwise: Path) -> Path:
    """A fresh folder that is on no disk in memory, for what is about disks. Whoever
    asked for it removes it.
    """
    return Path(
        tempfile.mkdtemp(prefix="memory-tests-", dir=ON_DISK if os.access(ON_DISK, os.W_OK) else otherwise)
    )
