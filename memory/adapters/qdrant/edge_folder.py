"""The folder of an Edge shard: who has it open, where the shard is, and which vectors
it has.

folder/owner.json   who has it open (process, machine, since when); locked by that process while it is
folder/shard.new/   while the shard is written anew: becomes the shard when it is whole, and `shard.old` is what was the shard until then
folder/shard/       Edge's own: nobody but the owner can enter it, whatever the umask and the modes of what Edge makes in it

The folder itself is made so too; one that was there already keeps the mode that it was
given.
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
        """The numbers of dimensions that the shard has a vector for."""
        return dimensions_of(self.shard)

    def size(self) -> int:
        """The bytes that the shard's files take."""
        return sum(file.stat().st_blocks * 512 for file in self.shard.rglob("*") if file.is_file())

    def swap(self) -> None:
        """Let the new shard be the shard. Whenever this stops, `put_right` finds one of
        the two whole.
        """
        self.shard.rename(self._old)
        try:
            self.new.rename(self.shard)
        except OSError:
            self._old.rename(self.shard)
            raise
        shutil.rmtree(self._old)

    def put_right(self) -> None:
        """Bring to an end what a process that died left of a swap."""
        if not self.shard.exists() and self._old.exists():
            self._old.rename(self.shard)
        for left in (self.new, self._old):
            shutil.rmtree(left, ignore_errors=True)

    def make_sure_of_room(self, size: int, deleting: bool = False) -> None:
        """Raise `StoreFull` unless so much can be written and the reserve stays free;
        what only deletes, and opening, may use half of that.
        """
        reserve = self._reserve // 2 if deleting else self._reserve
        free = shutil.disk_usage(self._path).free
        if free < reserve + size:
            raise StoreFull(
                self._store,
                f"{free} bytes are free where {self._path} is, and {self._reserve} are kept free (reserve_bytes, of which deleting may use half); "
                "make room there, or delete and vacuum",
            )

    def take(self) -> None:
        """Make the folder this process's own until it is given back or the process
        ends, however that ends.
        """
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
        """Make sure that there is a folder for the shard, and that only the owner can
        enter it.
        """
        with suppress(FileExistsError):
            self.shard.mkdir(mode=0o700)
        self.shard.chmod(0o700)

    def _refusal(self) -> str:
        holder = "another opener"
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads(self._owner.read_text())
            mine = note["process"] == os.getpid() and note["machine"] == socket.gethostname()
            holder = f"{'this process' if mine else 'process'} {note['process']} on {note['machine']} since {note['since']}"
        return (
            f"folder {self._path} is open in {holder}, and Qdrant Edge lets one opener in at a time; "
            "end that one, use another folder, or run a Qdrant server for several processes (qdrant://host:6333)"
        )

    def give_back(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_UN)  # a forked child may still hold a copy of the descriptor
            os.close(lock)
