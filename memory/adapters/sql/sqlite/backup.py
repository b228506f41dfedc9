"""Backup and restore of a SQLite file, by SQLite's online backup. Loads no SQLAlchemy.

Both run beside processes that read and write the file. A backup is one read
transaction: it holds every commit from before it began. A restore refuses a file that
is open elsewhere.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from memory.adapters.sql.sqlite.forking import hold_forks
from memory.adapters.sql.sqlite.log import check_log, new_id
from memory.domain.errors import ConfigError, InvalidInput, StoreError, StoreUnavailable

_OURS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'memory_schema_version'"
_PATIENCE = 10.0
"""The seconds to wait for a lock of another process."""
BESIDE = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside a database."""


def back_up(store: str, file: Path, to: Path) -> int:
    """Copy the database to a new file; its size in bytes.

    Raises:
        InvalidInput: `to` exists, or its folder does not.
        ConfigError: `file` does not exist, or is no database of ours.
    """
    _check_new(to)
    with _verified_copy(store, file, to.parent, to.name) as made:
        try:
            os.link(made, to)
        except FileExistsError:
            raise _exists(to) from None
        except OSError:  # this disk has no hard links
            os.rename(made, to)
    _sync_folder(to.parent)
    return to.stat().st_size


def restore(store: str, source: Path, file: Path, *, replace: bool) -> Path | None:
    """Put a backup in the place of `file`; return the path of the replaced file.

    Raises:
        InvalidInput: `source` is no backup, or `file` exists and `replace` is false.
        StoreUnavailable: Another process, or this one, has `file` open.
    """
    if file.exists() and source.exists() and source.samefile(file):
        raise InvalidInput("file", f"{source} is the memory's own file; name a backup of it")
    if file.exists() and not replace:
        raise InvalidInput(
            "replace",
            f"{file} exists; with --replace the backup takes its place, and the old file is kept beside it",
        )
    if not file.parent.is_dir():
        raise ConfigError(
            f"store '{store}': the directory {file.parent} does not exist; create it, or name another place"
        )
    try:
        with _verified_copy(store, source, file.parent, file.name) as made:
            kept = _move_beside(store, file)
            os.replace(made, file)
    except ConfigError as error:
        raise InvalidInput("file", str(error).removeprefix(f"store '{store}': ")) from None
    _sync_folder(file.parent)
    return kept


def _check_new(to: Path) -> None:
    if to.exists():
        raise _exists(to)
    if not to.parent.is_dir():
        raise InvalidInput("file", f"the directory {to.parent} does not exist; create it, or name another")


def _exists(to: Path) -> InvalidInput:
    return InvalidInput("file", f"{to} exists; name a new file, a backup replaces none")


@contextmanager
def _verified_copy(store: str, file: Path, folder: Path, name: str) -> Iterator[Path]:
    """Make a verified copy of the database in the folder, readable by its owner only.

    The copy is deleted if it is still there at the end.
    """
    if not file.is_file():
        raise ConfigError(f"store '{store}': {file} does not exist")
    check_log(store, file)
    descriptor, text = tempfile.mkstemp(prefix=f".{name}-", dir=folder)
    os.close(descriptor)
    made = Path(text)
    try:
        with hold_forks(file), closing(_connect(file)) as source, closing(sqlite3.connect(made)) as target:
            if source.execute(_OURS).fetchone() is None:
                raise ConfigError(
                    f"store '{store}': {file} is not a memory: it has no table 'memory_schema_version'"
                )
            source.backup(target)
            (found,) = target.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise StoreError(
                    store,
                    f"{file} is damaged ({str(found)[:200]}); export what can still be read, or take an"
                    " earlier backup",
                )
            target.execute("PRAGMA journal_mode = DELETE")  # the copy needs no log beside it
            target.execute(f"PRAGMA user_version = {new_id()}")
        with made.open("rb+") as copy:
            os.fsync(copy.fileno())
        yield made
    except sqlite3.Error as error:
        raise _copy_error(store, file, error) from error
    finally:
        for suffix in ("", *BESIDE):
            with suppress(FileNotFoundError):
                os.unlink(f"{made}{suffix}")


def _connect(file: Path) -> sqlite3.Connection:
    """Return a connection that creates no file.

    For a file that cannot be written, the connection takes no locks.
    """
    place = quote(str(file.absolute()))
    wal = Path(f"{file}-wal")
    read_only = not os.access(file, os.W_OK) or not os.access(file.parent, os.W_OK)
    how = "mode=ro&immutable=1" if read_only and not (wal.exists() and wal.stat().st_size) else "mode=rw"
    return sqlite3.connect(f"file:{place}?{how}", uri=True, timeout=_PATIENCE)


def _move_beside(store: str, file: Path) -> Path | None:
    """Rename the file at the place, once nobody has it open.

    A log without its file is renamed too: SQLite would replay it into the backup.
    """
    if file.exists():
        _check_unused(store, file)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    kept = file.with_name(f"{file.name}.replaced-{stamp}-{time.monotonic_ns() % 1_000_000:06}")
    moved = False
    for suffix in (*BESIDE, ""):
        with suppress(FileNotFoundError):
            os.rename(f"{file}{suffix}", f"{kept}{suffix}")
            moved = True
    return kept if moved else None


def _check_unused(store: str, file: Path) -> None:
    """Leave WAL mode, which SQLite allows only to a file's only connection.

    It folds the log into the file as well.
    """
    try:
        with closing(
            sqlite3.connect(
                f"file:{quote(str(file.absolute()))}?mode=rw", uri=True, timeout=1.0, isolation_level=None
            )
        ) as connection:
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
    except sqlite3.DatabaseError as error:
        if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreUnavailable(
                store, f"{file} is open in another process or memory; end it, then restore"
            ) from error
        if _code(error) not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise StoreError(
                store, f"{file} cannot be replaced ({error})"
            ) from error  # a restore may replace a damaged file


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _copy_error(store: str, file: Path, error: sqlite3.Error) -> Exception:
    if _code(error) == sqlite3.SQLITE_NOTADB:
        return ConfigError(f"store '{store}': {file} is not a SQLite database")
    if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable(store, f"another process kept {file} locked for too long; try again")
    return StoreError(store, f"{file} cannot be copied ({error})")


def _sync_folder(folder: Path) -> None:
    """Make the new name durable."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
