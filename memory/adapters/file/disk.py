"""The folder on disk: files read whole, written beside and renamed into place, no
symbolic link followed, nobody else let in.

Folders are opened step by step from the root, each without following a link, and files
relative to their folder: what another process swaps in between leads nowhere.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from memory.adapters.file.errors import FolderMismatch, ReadOnly, Symlink

if sys.platform == "darwin":
    import fcntl

Parts = Sequence[str]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_STUBBORN = (errno.EPERM, errno.EACCES, errno.EBUSY)
LOCK = "store.lock"
RETRIES, FIRST_DELAY = 5, 0.01


def flush(fd: int) -> None:
    """Wait until the disk itself has it: on macOS fsync stops at the disk's own memory."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


class NotRegularFile(Exception):
    """What stands there is no plain file, so it is not read."""


class DirectoryOrDevice(NotRegularFile):
    """A folder or a device stands there. The store makes none in the place of a file."""


class Disk:
    """Everything below one root. `fsync` says whether what was written is waited for.
    With `read_only` nothing is ever changed.
    """

    def __init__(self, root: Path, fsync: bool, read_only: bool = False) -> None:
        self.root, self.fsync = root, fsync
        self._asked_to_read = self.read_only = read_only
        self._root: int | None = None

    def open(self) -> bool:
        """Take the root. It is made where it is missing; one that may not be written is
        taken to read only.

        Returns:
            False where it is to be read only, and is not there.
        """
        there = self.root.is_dir()
        self.read_only = self._asked_to_read or (there and not _may_be_written(self.root))
        if not there and self.read_only:
            return False
        if not there:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.root.chmod(0o700)
            _sync_path(self.root.parent, self.fsync)
        self._root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return True

    def close(self) -> None:
        if self._root is not None:
            os.close(self._root)
            self._root = None

    def check_root(self) -> None:
        """Raise `FolderMismatch` unless the open folder is the one under its path: what is
        written to another would be lost.
        """
        try:
            found = os.stat(self.root)
        except FileNotFoundError:
            raise FolderMismatch(str(self.root), "was deleted or renamed") from None
        if not os.path.samestat(found, os.fstat(self._handle())):
            raise FolderMismatch(str(self.root), "was replaced by another folder")

    # -- folders -----------------------------------------------------------------------

    @contextmanager
    def folder(self, parts: Parts) -> Iterator[int]:
        """A descriptor of the folder. Raises `FileNotFoundError` where it is not there,
        `Symlink` where it is a link.
        """
        fd = os.dup(self._handle())
        try:
            for i, part in enumerate(parts):
                fd = self._step(fd, part, parts[: i + 1])
            yield fd
        finally:
            os.close(fd)

    def _handle(self) -> int:
        if self._root is None:
            raise OSError(errno.EBADF, "the folder is closed")
        return self._root

    def _step(self, fd: int, part: str, path: Parts) -> int:
        try:
            inner = os.open(part, _FOLDER, dir_fd=fd)
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(part, fd):
                raise Symlink("/".join(path)) from exc
            if exc.errno == errno.ENOTDIR:  # somebody else's: nothing of ours is in it
                raise FileNotFoundError(
                    errno.ENOENT, "a file stands in the place of a folder", "/".join(path)
                ) from exc
            if exc.errno == errno.EACCES:
                raise PermissionError(exc.errno, exc.strerror, "/".join(path)) from exc
            raise
        os.close(fd)
        return inner

    def check_writable(self) -> None:
        """Raise `ReadOnly` where nothing may be changed."""
        if self.read_only:
            raise ReadOnly(errno.EROFS, "opened to read only", str(self.root))

    def make_folder(self, parts: Parts) -> None:
        """Make it and those above it, for this user alone, and wait until they are
        kept.
        """
        with suppress(FileNotFoundError), self.folder(parts):
            return
        self.check_writable()
        for depth in range(1, len(parts) + 1):
            with self.folder(parts[: depth - 1]) as above:
                try:
                    os.mkdir(parts[depth - 1], 0o700, dir_fd=above)
                except FileExistsError:
                    continue
                with self.folder(parts[:depth]) as made:
                    os.fchmod(made, 0o700)  # whatever the umask
                self._sync(above)

    def names(self, parts: Parts) -> list[str]:
        """What is in the folder; nothing where there is none."""
        try:
            with self.folder(parts) as fd:
                return os.listdir(fd)
        except FileNotFoundError:
            return []

    def folders(self, parts: Parts) -> list[str]:
        """The folders in the folder, links left out."""
        try:
            with self.folder(parts) as fd, os.scandir(fd) as entries:
                return [e.name for e in entries if e.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def sync_folder(self, parts: Parts) -> None:
        """Wait until the folder's names are kept."""
        if self.fsync:
            with self.folder(parts) as fd:
                self._sync(fd)

    def _sync(self, fd: int) -> None:
        if self.fsync:
            flush(fd)

    # -- files -------------------------------------------------------------------------

    def read(self, parts: Parts, name: str) -> bytes | None:
        """The whole file, None where there is none. Raises `NotRegularFile` for a link, a
        folder or a device.
        """
        try:
            with self.folder(parts) as fd:
                return read_at(fd, name)
        except FileNotFoundError:
            return None

    def exists(self, parts: Parts, name: str) -> bool:
        try:
            with self.folder(parts) as fd:
                os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def write_new(self, parts: Parts, name: str, content: bytes) -> None:
        """A file that was not there, with its content waited for; its name is not until
        the folder is synced. Nothing is left on failure.
        """
        self.check_writable()
        with self.folder(parts) as folder:
            fd = os.open(name, _NEW, 0o600, dir_fd=folder)
            try:
                os.fchmod(fd, 0o600)
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                self._sync(fd)
            except BaseException:
                os.close(fd)
                os.unlink(name, dir_fd=folder)
                raise
            os.close(fd)

    def copy(self, parts: Parts, name: str, to: Parts, new: str) -> bool:
        """Give the file a second name, or where the disk knows none, copy it. False
        where there is no such file.
        """
        self.check_writable()
        try:
            with self.folder(parts) as source, self.folder(to) as target:
                os.link(name, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as exc:
            if exc.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS):
                raise
            try:
                content = self.read(parts, name)
            except NotRegularFile:
                return False
            if content is None:
                return False
            self.write_new(to, new, content)
        return True

    def rename(self, parts: Parts, name: str, to: Parts, new: str) -> bool:
        """Put the file in the place of what is there, in one step. False where there is
        no such file. Of two names of one file the first goes too, which the system
        leaves as it is.

        Virus scanners and indexers hold files for moments on some systems: a refusal is
        tried again five times, each time a little later.
        """
        self.check_writable()
        delay = FIRST_DELAY
        for attempt in range(RETRIES + 1):
            try:
                with self.folder(parts) as source, self.folder(to) as target:
                    os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=source)
            except FileNotFoundError:
                return False
            except OSError as exc:
                if exc.errno not in _STUBBORN or attempt == RETRIES:
                    raise
                time.sleep(delay)
                delay *= 2
            else:
                return True
        raise AssertionError("the last attempt returns or raises")  # pragma: no cover

    def remove(self, parts: Parts, name: str) -> bool:
        """False where there is no such file."""
        self.check_writable()
        try:
            with self.folder(parts) as fd:
                os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            return False
        return True

    def remove_folder(self, parts: Parts) -> bool:
        """False where something is in it, or it is not there."""
        self.check_writable()
        try:
            with self.folder(parts[:-1]) as above:
                os.rmdir(parts[-1], dir_fd=above)
        except FileNotFoundError:
            return False
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        return True

    def size(self, parts: Parts, name: str) -> int:
        """Bytes of the file, 0 where there is none."""
        try:
            with self.folder(parts) as fd:
                return os.stat(name, dir_fd=fd, follow_symlinks=False).st_size
        except FileNotFoundError:
            return 0


def read_at(folder: int, name: str) -> bytes:
    """The whole file in the open folder. Raises `FileNotFoundError`, and `NotRegularFile` for a
    link, a folder or a device.
    """
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.EMLINK):
            raise NotRegularFile("a symbolic link stands there, and none is followed") from exc
        if exc.errno == errno.ENXIO:
            raise DirectoryOrDevice("no plain file stands there") from exc
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise DirectoryOrDevice("no plain file stands there")
        pieces = []
        while piece := os.read(fd, max(found.st_size + 1, 65_536)):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def _may_be_written(root: Path) -> bool:
    """Whether this user may write the folder, and the file that every writer locks."""
    lock = root / LOCK
    return os.access(root, os.W_OK) and (os.access(lock, os.W_OK) or not lock.exists())


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _sync_path(path: Path, fsync: bool) -> None:
    if fsync:
        fd = os.open(path, os.O_RDONLY)
        try:
            flush(fd)
        finally:
            os.close(fd)
