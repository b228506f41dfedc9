"""Translation of SQLite's errors into ours, most specific first.

An error that is unknown here is not retryable.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from memory.domain.errors import PicklableException, StoreError, StoreFull, StoreUnavailable

_UNDECODABLE = "Could not decode to UTF-8"
_FULL = (
    "the disk is full, or the file has reached its largest size; nothing of this call was kept, everything"
    " acknowledged before it was. Make room on the disk and call again. A deletion too needs a little room"
    " first, for the log; what it frees is used by later writes, and given back to the disk by a vacuum"
)
_DAMAGED = "the file is damaged; restore it from a backup, or export what can still be read"


def original(error: BaseException) -> BaseException:
    """Return the driver's own error inside SQLAlchemy's."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def code_of(error: BaseException) -> int:
    """Return SQLite's primary result code, or 0 where there is none."""
    return int(getattr(original(error), "sqlite_errorcode", 0) or 0) & 0xFF


def is_busy(error: BaseException) -> bool:
    return code_of(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_full(error: BaseException) -> bool:
    return code_of(error) == sqlite3.SQLITE_FULL


def is_undecodable(error: BaseException) -> bool:
    """Whether a text is not UTF-8: a flipped byte. The driver has no code for it."""
    return isinstance(original(error), sqlite3.OperationalError) and str(original(error)).startswith(
        _UNDECODABLE
    )


def is_outgrown(error: BaseException) -> bool:
    """Whether a column is missing: the table has grown since the store opened.

    See `memory.adapters.sql.columns.checksum_column`.
    """
    return code_of(error) == sqlite3.SQLITE_ERROR and any(
        said in str(original(error)) for said in ("no such column", "has no column")
    )


def is_damage(error: BaseException) -> bool:
    """Whether SQLite cannot follow the file's structure.

    SQLite quotes names in its messages. A damaged name makes a message invalid UTF-8.
    """
    return (
        isinstance(original(error), UnicodeDecodeError)
        or code_of(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        or is_undecodable(error)
    )


def is_of_a_table(error: BaseException) -> bool:
    """Whether a table is missing, damaged, or differs from its declaration.

    Other statements need not fail for it, unlike for a full disk or a locked file.
    """
    kinds = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)
    return code_of(error) in kinds or is_undecodable(error)


class WordIndexMismatch(PicklableException):
    """The word index differs from the records, so no search by words uses it."""

    def __init__(self, collection: str) -> None:
        super().__init__(
            f"the word index of '{collection}' is damaged or incomplete, so searches by words are off; no"
            " record is affected: `memory doctor --repair` rebuilds it from them, and so does opening the"
            " file again"
        )


def translate(store: str, error: BaseException) -> Exception | None:
    """Return our error for the driver's; None if the error is not the driver's."""
    if isinstance(error, WordIndexMismatch):
        return StoreError(store, str(error))
    cause = original(error)
    if not isinstance(cause, sqlite3.Error | SQLAlchemyError | UnicodeDecodeError):
        return None
    code = code_of(cause)
    if is_full(cause):
        return StoreFull(store, _FULL)
    if is_busy(cause):
        return StoreUnavailable(store, "another process kept the file locked for too long; try again")
    if is_damage(cause):
        return StoreError(store, f"{_DAMAGED} ({_short(cause)})")
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnavailable(store, f"the disk failed to read or write ({_short(cause)})")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreUnavailable(store, f"the file cannot be opened for writing ({_short(cause)})")
    return StoreError(store, f"SQLite refused ({type(cause).__name__}: {_short(cause)})")


def _short(cause: BaseException) -> str:
    """Return the driver's message without any value of a record.

    SQLite quotes column contents in one of its messages.
    """
    return (
        "text that is not UTF-8"
        if is_undecodable(cause) or isinstance(cause, UnicodeDecodeError)
        else str(cause)[:200]
    )
