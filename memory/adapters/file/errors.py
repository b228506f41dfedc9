"""Translates errors of the operating system.

Unknown errors become errors that are not retryable.
"""

from __future__ import annotations

import errno

from memory.domain.errors import StoreError, StoreFull, StoreUnavailable

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FAILING = (
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EAGAIN,
    errno.EBUSY,
    errno.EINTR,
)

_KEPT = (
    "nothing of this call was kept; earlier acknowledged writes were. Make room on the disk and call again; a"
    " deletion also needs a little room for its tombstone, before it frees any"
)


class Symlink(Exception):
    """A symbolic link in the place of a file or folder of the store.

    It is not followed, because it may lead anywhere.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class IncompleteCommit(OSError):
    """The system failed after a change was decided, so it is applied in part.

    The next holder of the lock completes it.
    """


class FolderMismatch(Exception):
    """The store's path leads to another folder than the open one, or to none."""

    def __init__(self, folder: str, happened: str) -> None:
        super().__init__(folder, happened)
        self.folder, self.happened = folder, happened


class ReadOnly(OSError):
    """The folder is opened for reading only: an `EROFS` of that folder."""


def translate(store: str, error: BaseException) -> Exception | None:
    """Return our error for an error of the system; None for any other error."""
    if isinstance(error, Symlink):
        return StoreError(
            store,
            f"'{error.path}' is a symbolic link, which the store does not follow below its folder; replace it"
            " by the folder itself",
        )
    if isinstance(error, FolderMismatch):
        return StoreError(
            store,
            f"the folder {error.folder} {error.happened} while it was open. Nothing of this call was kept."
            " Close the memory, put the right folder in place, and open it again; stop every process that"
            " uses a folder before you delete, restore or replace it",
        )
    if not isinstance(error, OSError):
        return None
    if isinstance(error, ReadOnly):
        return StoreError(
            store,
            f"{error.filename} is opened to read only: nothing can be written, deleted or erased. "
            "Open it without mode=ro, by a user who may write the folder and its files",
        )
    said = f"{error.strerror or type(error).__name__}" + (f": '{error.filename}'" if error.filename else "")
    if isinstance(error, IncompleteCommit):
        return StoreUnavailable(
            store,
            f"the disk failed while the call was being carried out ({said}); it may be kept: read before you"
            " write again",
        )
    if error.errno in _FULL:
        return StoreFull(
            store, f"the disk has no room left, or the file would be too large ({said}); {_KEPT}"
        )
    if error.errno in _REFUSED:
        return StoreUnavailable(store, f"the folder refuses access ({said}); check its permissions")
    if error.errno in _FAILING:
        return StoreUnavailable(store, f"the disk failed ({said}); check it and try again")
    return StoreError(store, f"the system refused ({said})")
