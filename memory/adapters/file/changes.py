"""Log of changed files, so that processes need not read every file again.

`changes.log` has one line per file. A writer holds the lock, logs the files that it is
about to change, and then changes them. A reader that finds new lines waits for the
lock. By then the change is done or its writer is dead. Then the reader reads those
files again. The log is never synced to disk, because a crash of the machine ends all
its readers.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress

from memory.adapters.file.commits import STAGING
from memory.adapters.file.disk import Disk

NAME = "changes.log"


class Changes:
    def __init__(self, disk: Disk, largest: int) -> None:
        """Create a log; after more than `largest` bytes it starts again.

        All processes then read everything again.
        """
        self._disk, self._largest = disk, largest
        self._fd: int | None = None
        self._seen = 0

    def open(self) -> None:
        """Start to listen; earlier lines are not reported."""
        self.close()
        how = os.O_RDONLY if self._disk.read_only else os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._fd = os.open(self._disk.root / NAME, how | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if not self._disk.read_only:
            with suppress(PermissionError):
                os.fchmod(self._fd, 0o600)
        self._seen = os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def news(self) -> list[str] | None:
        """Return the files logged since the last call, by any process.

        The result is None if the log started again and any file may have changed.
        """
        fd = self._handle()
        found = os.fstat(fd)
        if found.st_nlink == 0 or found.st_size < self._seen:
            self.open()
            self._seen = 0  # changes logged there already may be in progress
            return None
        if found.st_size == self._seen:
            return []
        text = os.pread(fd, found.st_size - self._seen, self._seen)
        whole = text.rfind(b"\n") + 1  # a partial line is read once it is complete
        self._seen += whole
        return list(
            dict.fromkeys(line for line in text[:whole].decode("ascii", "replace").split("\n") if line)
        )

    def any(self) -> bool:
        """Whether there are new lines."""
        found = os.fstat(self._handle())
        return found.st_nlink == 0 or found.st_size != self._seen

    def note(self, files: Iterable[str]) -> None:
        """Log files that are about to change.

        It needs the lock, and `news` must be read before: a process's own lines are not
        news to it.
        """
        if os.fstat(self._handle()).st_size > self._largest:
            self._begin_anew()
        fd = self._handle()
        rest = memoryview(
            ("\n" + "\n".join(files) + "\n").encode()
        )  # begins with a new line, because the last writer may have died within a line
        try:
            while rest:
                rest = rest[os.write(fd, rest) :]
        except OSError as exc:
            if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._begin_anew()  # an empty file needs no space, and makes all processes read everything again
            return
        self._seen = os.fstat(fd).st_size

    def _handle(self) -> int:
        if self._fd is None:
            raise OSError(errno.EBADF, "the folder is closed")
        return self._fd

    def _begin_anew(self) -> None:
        draft = f"{secrets.token_hex(8)}.tmp"
        self._disk.make_folder(STAGING)
        self._disk.write_new(STAGING, draft, b"")
        self._disk.rename(STAGING, draft, (), NAME)
        self.open()
