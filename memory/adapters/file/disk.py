"""File access below one root folder.

Files are read whole, and written to a temporary file that is renamed. No symbolic link
is followed, and other users have no access.

Folders are opened step by step from the root, without following links, and files
relative to their folder. A process that swaps a path meanwhile gains nothing.
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
    """Wait until the disk has the data; on macOS fsync stops at the disk's cache."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


class NotRegularFile(Exception):
    """The path is not a plain file, so it is not read."""


class DirectoryOrDevice(NotRegularFile):
    """The path is a folder or a device, which the store never creates for a file."""


class Disk:
    """Everything below one root.

    `fsync` says whether writes are synced. With `read_only` nothing is ever changed.
    """

    def __init__(self, root: Path, fsync: bool, read_only: bool = False) -> None:
        self.root, self.fsync = root, fsync
        self._asked_to_read = self.read_only = read_only
        self._root: int | None = None

    def open(self) -> bool:
        """Open the root folder, and create it if it is missing.

        A folder without write permission is opened for reading only.

        Returns:
            False if the folder is missing and opened for reading only.
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
        """Raise `FolderMismatch` unless the path still leads to the open folder.

        Writes to another folder would be lost.
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
        """Yield a descriptor of the folder.

        Raises:
            FileNotFoundError: The folder does not exist.
            Symlink: The folder is a symbolic link.
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
            if exc.errno == errno.ENOTDIR:  # a foreign file; none of our files are below it
                raise FileNotFoundError(
                    errno.ENOENT, "a file is in the place of a folder", "/".join(path)
                ) from exc
            if exc.errno == errno.EACCES:
                raise PermissionError(exc.errno, exc.strerror, "/".join(path)) from exc
            raise
        os.close(fd)
        return inner

    def check_writable(self) -> None:
        """Raise `ReadOnly` if the folder is opened for reading only."""
        if self.read_only:
            raise ReadOnly(errno.EROFS, "opened to read only", str(self.root))

    def make_folder(self, parts: Parts) -> None:
        """Create the folder and its parents for this user only, and sync them."""
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
                    os.fchmod(made, 0o700)  # independent of the umask
                self._sync(above)

    def names(self, parts: Parts) -> list[str]:
        """Return the names in the folder; none if it does not exist."""
        try:
            with self.folder(parts) as fd:
                return os.listdir(fd)
        except FileNotFoundError:
            return []

    def folders(self, parts: Parts) -> list[str]:
        """Return the names of folders in the folder, without links."""
        try:
            with self.folder(parts) as fd, os.scandir(fd) as entries:
                return [e.name for e in entries if e.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def sync_folder(self, parts: Parts) -> None:
        """Sync the names in the folder."""
        if self.fsync:
            with self.folder(parts) as fd:
                self._sync(fd)

    def _sync(self, fd: int) -> None:
        if self.fsync:
            flush(fd)

    # -- files -------------------------------------------------------------------------

    def read(self, parts: Parts, name: str) -> bytes | None:
        """Return the content of the file; None if it does not exist.

        Raises:
            NotRegularFile: The path is a link, a folder or a device.
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
        """Create a file with synced content. Its name is durable after `sync_folder`.

        On failure nothing remains.
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
        """Link the file to a second name, or copy it if the disk has no links.

        Returns:
            False if the file does not exist.
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
        """Move the file over the target in one step; return False if it does not exist.

        If both names are links to one file, the operating system renames nothing. The
        method then removes the first name itself. On some systems, virus scanners and
        indexers hold files for moments. So a refused rename is retried five times, with
        growing pauses.
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
        """Remove a file; return False if it does not exist."""
        self.check_writable()
        try:
            with self.folder(parts) as fd:
                os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            return False
        return True

    def remove_folder(self, parts: Parts) -> bool:
        """Remove a folder; return False if it is not empty or does not exist."""
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
        """Return the size of the file in bytes; 0 if it does not exist."""
        try:
            with self.folder(parts) as fd:
                return os.stat(name, dir_fd=fd, follow_symlinks=False).st_size
        except FileNotFoundError:
            return 0


def read_at(folder: int, name: str) -> bytes:
    """Return the content of a file in an open folder.

    Raises:
        FileNotFoundError: The file does not exist.
        NotRegularFile: The path is a link, a folder or a device.
    """
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.EMLINK):
            raise NotRegularFile("it is a symbolic link, and links are not followed") from exc
        if exc.errno == errno.ENXIO:
            raise DirectoryOrDevice("it is not a plain file") from exc
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise DirectoryOrDevice("it is not a plain file")
        pieces = []
        while piece := os.read(fd, max(found.st_size + 1, 65_536)):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def _may_be_written(root: Path) -> bool:
    """Whether this user may write the folder and the lock file."""
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
