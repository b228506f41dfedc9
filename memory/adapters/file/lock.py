"""Lock that lets one process write at a time: a lock on `store.lock`.

The kernel releases it when the process ends. The file names the last holder, so that a
process that waits in vain can report it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from memory.adapters.file.disk import LOCK
from memory.domain.errors import StoreUnavailable

try:
    import fcntl
except ImportError:  # pragma: no cover - on Windows the adapter is refused when it is built
    fcntl = None  # type: ignore[assignment]

_SHORTEST, _LONGEST = 0.0002, 0.004


class Lock:
    """Lock of one store. Its calls must not run concurrently."""

    def __init__(self, store: str, root: Path) -> None:
        self._store, self._path = store, root / LOCK

    @contextmanager
    def hold(self, deadline: float, reading: bool = False) -> Iterator[None]:
        """Hold the lock, acquired before `deadline` of the monotonic clock.

        With `reading`, several readers may hold it at once.

        Raises:
            StoreUnavailable: It was not free in time; the message names the file and
                the holder.
        """
        fd = self._open_file(reading)
        try:
            self._take(fd, deadline, reading)
            while not self._is_still(fd):  # someone removed the file, and later processes lock another one
                os.close(fd)
                fd = self._open_file(reading)
                self._take(fd, deadline, reading)
            try:
                if not reading:
                    self._sign(fd)
                yield
            finally:
                fcntl.flock(
                    fd, fcntl.LOCK_UN
                )  # closing is not enough if a forked child has the file open, too
        finally:
            os.close(fd)

    def _open_file(self, reading: bool) -> int:
        return os.open(
            self._path,
            (os.O_RDONLY if reading else os.O_RDWR | os.O_CREAT) | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
        )

    def _is_still(self, fd: int) -> bool:
        """Whether this still is the file under the lock's name."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def _take(self, fd: int, deadline: float, reading: bool) -> None:
        delay = _SHORTEST
        while True:
            try:
                fcntl.flock(fd, (fcntl.LOCK_SH if reading else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise StoreUnavailable(
                        self._store,
                        f"the lock '{self._path}' was not free in time: {self._holder()} holds it; nothing"
                        " was written; try again",
                    ) from exc
                time.sleep(min(delay, left))
                delay = min(delay * 2, _LONGEST)
            else:
                return

    def _sign(self, fd: int) -> None:
        note = {
            "process": os.getpid(),
            "machine": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        text = json.dumps(note).encode() + b"\n"
        with suppress(OSError):  # a full disk must not prevent locking
            os.fchmod(fd, 0o600)  # independent of the umask
            os.pwrite(fd, text.ljust(200), 0)

    def _holder(self) -> str:
        try:
            note = json.loads(self._path.read_text())
            return f"process {note['process']} on {note['machine']} (since {note['since']})"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"
