"""Folder of an Edge shard: its owner, its shard and its vectors.

    folder/owner.json   the owner (process, machine, time), which locks it while open
    folder/shard.new/   a rewritten shard; it becomes the shard when it is complete
    folder/shard.old/   the former shard until then
    folder/shard/       Edge's own files

Only the owner can access `shard`, independent of the umask and the modes of its files.

The folder itself is created with the same access. An existing one keeps its mode.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from memory.domain.errors import StoreFull, StoreUnavailable

try:
    import fcntl
except ImportError:  # pragma: no cover - on Windows the lock of Edge's own log has to do
    fcntl = None  # type: ignore[assignment]


def dimensions_of(shard: Path) -> set[int]:
    config = json.loads((shard / "edge_config.json").read_text())
    return {
        int(name.removeprefix("dense_")) for name in config.get("vectors") or {} if name.startswith("dense_")
    }


class Folder:
    def __init__(self, store: str, path: Path, reserve: int) -> None:
        self._store, self._path, self._reserve = store, path, reserve
        self._owner = path / "owner.json"
        self._lock: int | None = None
        self.shard, self.new, self._old = path / "shard", path / "shard.new", path / "shard.old"

    def has_shard(self) -> bool:
        return (self.shard / "edge_config.json").exists()

    def dimensions(self) -> set[int]:
        """Return the dimensions for which the shard has a vector."""
        return dimensions_of(self.shard)

    def size(self) -> int:
        """Return the bytes of the shard's files on disk."""
        return sum(file.stat().st_blocks * 512 for file in self.shard.rglob("*") if file.is_file())

    def swap(self) -> None:
        """Replace the shard by the new one.

        After an interruption, `put_right` finds one of the two complete.
        """
        self.shard.rename(self._old)
        try:
            self.new.rename(self.shard)
        except OSError:
            self._old.rename(self.shard)
            raise
        shutil.rmtree(self._old)

    def put_right(self) -> None:
        """Complete a swap that a dead process left."""
        if not self.shard.exists() and self._old.exists():
            self._old.rename(self.shard)
        for left in (self.new, self._old):
            shutil.rmtree(left, ignore_errors=True)

    def make_sure_of_room(self, size: int, deleting: bool = False) -> None:
        """Raise `StoreFull` unless this many bytes fit and the reserve stays free.

        Deletions and opening may use half of the reserve.
        """
        reserve = self._reserve // 2 if deleting else self._reserve
        free = shutil.disk_usage(self._path).free
        if free < reserve + size:
            raise StoreFull(
                self._store,
                f"{free} bytes are free on the disk of {self._path}, and reserve_bytes={self._reserve} must"
                " stay free (deletions may use half); make room there, or delete and vacuum",
            )

    def take(self) -> None:
        """Lock the folder for this process, until its release or the end of it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self._path.mkdir(mode=0o700)
        lock = os.open(self._owner, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(lock)
            raise StoreUnavailable(self._store, self._refusal()) from exc
        self._lock = lock
        self.put_right()
        self.make_sure_of_room(0, deleting=True)
        note = {
            "process": os.getpid(),
            "machine": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(note).encode(), 0)

    def seal_shard(self) -> None:
        """Create the shard's folder if needed, accessible only to the owner."""
        with suppress(FileExistsError):
            self.shard.mkdir(mode=0o700)
        self.shard.chmod(0o700)

    def _refusal(self) -> str:
        holder = "another opener"
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads(self._owner.read_text())
            mine = note["process"] == os.getpid() and note["machine"] == socket.gethostname()
            holder = (
                f"{'this process' if mine else 'process'} {note['process']} on {note['machine']} since"
                f" {note['since']}"
            )
        return (
            f"folder {self._path} is open in {holder}, and Qdrant Edge allows one opener at a time; stop that"
            " one, use another folder, or run a Qdrant server for several processes (qdrant://host:6333)"
        )

    def give_back(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_UN)  # a forked child may still have a copy of the descriptor
            os.close(lock)
