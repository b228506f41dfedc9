"""What has changed, so that processes need not look at every file again: `changes.log`,
one line a file.

A writer, under the lock, notes the files it is about to change, and then changes them.
A reader who finds new lines waits for the lock, by which time the change is done or its
writer is dead, and reads those files again. The log is never waited for on the disk:
the death of the machine ends all who had read it.
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
        """A log of more bytes is begun anew, and everyone looks at everything again."""
        self._disk, self._largest = disk, largest
        self._fd: int | None = None
        self._seen = 0

    def open(self) -> None:
        """Begin to listen: what was noted before is not told."""
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
        """The files noted since the last call, whoever noted them; None where the log
        was begun anew and anything may have changed.
        """
        fd = self._handle()
        found = os.fstat(fd)
        if found.st_nlink == 0 or found.st_size < self._seen:
            self.open()
            self._seen = 0  # what is noted there already may be under way
            return None
        if found.st_size == self._seen:
            return []
        text = os.pread(fd, found.st_size - self._seen, self._seen)
        whole = text.rfind(b"\n") + 1  # a line being written is read when it is whole
        self._seen += whole
        return list(
            dict.fromkeys(line for line in text[:whole].decode("ascii", "replace").split("\n") if line)
        )

    def any(self) -> bool:
        """Whether there is something new."""
        found = os.fstat(self._handle())
        return found.st_nlink == 0 or found.st_size != self._seen

    def note(self, files: Iterable[str]) -> None:
        """Say what is about to change. With the lock, and after `news`: what this
        process notes is no news to it.
        """
        if os.fstat(self._handle()).st_size > self._largest:
            self._begin_anew()
        fd = self._handle()
        rest = memoryview(
            ("\n" + "\n".join(files) + "\n").encode()
        )  # begins with a new line: the last writer may have died within one
        try:
            while rest:
                rest = rest[os.write(fd, rest) :]
        except OSError as exc:
            if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._begin_anew()  # an empty file takes no room, and lets everyone look at everything again
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
