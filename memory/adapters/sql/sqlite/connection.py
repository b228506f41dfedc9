"""SQLite through SQLAlchemy, with one connection that writes and one that reads.

Each has its own thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from memory.adapters.sql.sqlite import forking
from memory.adapters.sql.sqlite.config import SqliteConfig
from memory.adapters.sql.sqlite.errors import code_of, is_busy, is_full, is_outgrown, is_undecodable
from memory.adapters.sql.sqlite.log import check_log, mark_commit
from memory.adapters.sql.sqlite.session import DeclaredCollections, Session
from memory.adapters.sql.sqlite.worker import Worker, attempt
from memory.domain.errors import ConfigError, NotOpen, StoreError, StoreFull, StoreUnavailable
from memory.ports.collections import Collection
from memory.ports.fork_guard import keep_alive

log = logging.getLogger(__name__)

T = TypeVar("T")
Look: TypeAlias = Callable[[Session], Mapping[str, Collection]]


_UNUSABLE = {
    sqlite3.SQLITE_NOTADB: "is not a SQLite database; name another file",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that it may be read and written, and its directory too",
    sqlite3.SQLITE_READONLY: "cannot be written; check the permissions of the file and of its directory",
    sqlite3.SQLITE_PERM: "cannot be opened; check its permissions",
}


class SqliteDriver:
    """Connections to one file.

    Writers of several processes queue at `BEGIN IMMEDIATE`. Readers see the last commit
    and never wait.
    """

    def __init__(self, name: str, config: SqliteConfig) -> None:
        self._name = name
        self._config = config
        self._tables = Tables(lambda _: {}, lambda _: None)
        self._is_full = False
        """Whether the file was opened to read only because the disk was full."""
        self._writer: ConnectionThread | None = None
        self._reader: ConnectionThread | None = None

    @property
    def is_read_only(self) -> bool:
        """Whether the file was opened to read only."""
        return self._reader is not None and self._writer is None

    @property
    def declarations(self) -> DeclaredCollections:
        """The collections as their tables are, for all connections."""
        return self._tables.declared

    async def open(self, prepare: Look, look: Look, complete: Callable[[Session], None]) -> None:
        """Connect, and make the schema ready with `prepare`.

        `look` shows how tables have changed. Both return the collections as their
        tables are. A connection that only reads gets the missing parts of tables by
        `complete`.
        """
        self._check_path()
        self._is_full = False
        self._tables = Tables(look, complete)
        if self._config.path is not None and opens_read_only(self._config.path, self._config.mode):
            await self._open_read_only(look)
            return
        writer = ConnectionThread(f"{self._name}-writer", self._config, self._tables, store=self._name)
        try:
            await writer.worker.run(writer.connect)
        except (sqlite3.Error, sa.exc.DBAPIError):
            await writer.stop()
            if not _has_no_room(self._config.path):  # for the index of the log
                raise
            await self._open_read_only(look)
            self._is_full = True
            log.warning(
                "store '%s': the disk of %s is full; until there is room and it is opened again it is read"
                " only",
                self._name,
                self._config.path,
            )
            return
        except BaseException:
            await writer.stop()
            raise
        try:
            self._tables.declared.tables = await writer.worker.run(partial(writer.plainly, prepare))
            await writer.worker.run(writer.note_files)
            if self._config.path is None:
                reader = writer
            else:
                reader = ConnectionThread(
                    f"{self._name}-reader", self._config, self._tables, store=self._name
                )
                try:
                    await reader.worker.run(partial(reader.connect, read_only=True))
                except BaseException:
                    await reader.stop()
                    raise
        except BaseException:
            await writer.stop()
            raise
        self._writer, self._reader = writer, reader

    async def _open_read_only(self, look: Look) -> None:
        reader = ConnectionThread(f"{self._name}-reader", self._config, self._tables, store=self._name)
        try:
            await reader.worker.run(reader.connect_read_only)
            tables = await reader.worker.run(partial(reader.run_read, look))
            if not tables:
                raise ConfigError(
                    f"store '{self._name}': {self._config.path} is opened to read only, and holds no memory;"
                    " open it to write first"
                )
            self._tables.declared.tables = tables
        except BaseException:
            await reader.stop()
            raise
        log.info("store '%s': %s is opened to read only", self._name, self._config.path)
        self._reader = reader

    async def check_files(self) -> None:
        """Check that the open file and its log are still in place.

        Raises:
            StoreError: One of them was deleted or replaced.
        """
        if self._writer is not None:
            await self._writer.worker.run(self._writer.check_files)

    async def close(self) -> None:
        """Finish the accepted calls, then close.

        The last connection to close folds the log into the file.
        """
        writer, reader = self._writer, self._reader
        self._writer = self._reader = None
        if reader is not None and reader is not writer:
            await reader.stop()
        if writer is not None:
            await writer.stop()

    async def read(self, work: Callable[[Session], T]) -> T:
        thread = self._reader
        if thread is None:
            raise NotOpen(f"store '{self._name}'")
        return await thread.worker.run(partial(thread.run_read, work))

    async def read_beside(self, work: Callable[[Session], T]) -> T:
        """Read on a separate connection, so that a long read delays no other call."""
        if self._reader is None or self._config.path is None:
            return await self.read(work)
        thread = ConnectionThread(f"{self._name}-aside", self._config, self._tables, store=self._name)
        try:
            await thread.worker.run(
                thread.connect_read_only if self.is_read_only else partial(thread.connect, read_only=True)
            )
            return await thread.worker.run(partial(thread.run_read, work))
        finally:
            await thread.stop()

    async def shrink(self) -> int:
        """Rewrite the file without deleted data, and empty the log.

        Returns the number of bytes by which both are smaller.
        """
        thread = self._writing_thread()
        return await thread.worker.run(thread.shrink)

    async def write(self, work: Callable[[Session], T]) -> T:
        thread = self._writing_thread()
        return await thread.worker.run(partial(thread.run_write, work), sharing=True)

    def _writing_thread(self) -> ConnectionThread:
        if self._writer is not None:
            return self._writer
        if self._reader is None:
            raise NotOpen(f"store '{self._name}'")
        if self._is_full:
            raise StoreFull(
                self._name,
                f"the disk of {self._config.path} was full when it was opened, to read only. Make room on the"
                " disk and open the memory again",
            )
        raise StoreError(
            self._name,
            f"{self._config.path} is opened to read only: nothing can be written, deleted or erased. "
            "Open it without mode=ro, by a user who may write the file and its folder",
        )

    def _check_path(self) -> None:
        path = self._config.path
        if path is None:
            return
        if path.is_dir():
            raise ConfigError(f"store '{self._name}': {path} is a directory; name a file in it")
        if path.parent.exists() and not path.parent.is_dir():
            raise ConfigError(
                f"store '{self._name}': {path.parent} is a file, not a directory; name another place"
            )
        if not path.parent.is_dir():
            raise ConfigError(
                f"store '{self._name}': the directory {path.parent} does not exist; create it, or name"
                " another place"
            )


class Tables:
    """The declarations of the file's tables, and how to read them again."""

    def __init__(self, look: Look, complete: Callable[[Session], None]) -> None:
        self.declared = DeclaredCollections()
        self.complete = complete
        self._look = look

    def have_changed(self, session: Session, since: Mapping[str, Collection]) -> bool:
        """Whether the tables differ from `since`.

        The change may be one that another connection has already seen.
        """
        if self.declared.tables is since and (found := self._look(session)) != since:
            self.declared.tables = found
        return self.declared.tables is not since


class ConnectionThread:
    """A worker and the connection that it owns."""

    def __init__(self, name: str, config: SqliteConfig, tables: Tables, *, store: str) -> None:
        self._tables = tables
        self._store = store
        self._files: dict[Path, tuple[int, int]] = {}
        self._frozen: tuple[int, ...] | None = None
        self.worker = Worker(name, self._write_together, config.thresholds.writes_together)
        self._name = name
        self._config = config
        self._raw: sqlite3.Connection | None = None
        self._session: Session | None = None
        self._shares = False
        self._connected_by: Callable[[], None] | None = None
        self.identity: tuple[int, int] | None = None
        """Device and inode of the open file, or None while there is none."""
        self._parted_from: tuple[int, int] | None = None
        """The file that was open before a fork, until the next job connects again."""
        forking.watch(self)  # not within a job, because a fork waits for that

    def connect(self, read_only: bool = False) -> None:
        self._connected_by = partial(self.connect, read_only)
        try:
            connection = _connection_of(self._connect)
        except (sqlite3.DatabaseError, sa.exc.DBAPIError) as exc:
            if (problem := _UNUSABLE.get(code_of(exc))) is not None:
                raise ConfigError(f"store '{self._store}': {self._config.path} {problem}") from exc
            raise
        self._session = Session(connection, self._config.thresholds, self._tables.declared)
        if read_only:
            self._session.run("PRAGMA query_only = ON")

    def connect_read_only(self) -> None:
        """Connect to a file that is only read.

        It may lie in a place where nothing can be written.
        """
        self._connected_by = self.connect_read_only
        connection = _connection_of(self._connect_read_only)
        self._session = Session(connection, self._config.thresholds, self._tables.declared)
        self._tables.complete(self._session)
        self._session.run("PRAGMA query_only = ON")

    # -- forks of the process ----------------------------------------------------------

    @property
    def at_rest(self) -> threading.Lock:
        return self.worker.at_rest

    def part(self) -> None:
        """Close the connection for a fork of the process.

        The forking thread calls this between two jobs.
        """
        if self._session is None:
            self.identity = None  # no connection was made
        elif self.identity is not None and not self._log_is_anothers():
            self._parted_from = self.identity
            self._disconnect()

    def _connect_again(self) -> None:
        """Connect as before the fork, unless the file has been replaced meanwhile."""
        before, self._parted_from = self._parted_from, None
        path = self._config.path
        if before is None or path is None or self._connected_by is None:
            return
        try:
            if not path.exists() or _identity(path) != before:
                raise self._lost_file_error(
                    path, "was replaced by another file" if path.exists() else "was deleted"
                )
            self._connected_by()
        except BaseException:
            self._parted_from = before
            raise
        if self._files:
            self._files.clear()
            self.note_files()

    def _refuse_inherited(self, path: Path) -> None:
        """Refuse a connection that this process inherited by a fork.

        Raises:
            StoreError: The process was forked while a connection to the file was
                open that could not be closed in time.
        """
        if path.exists() and forking.is_inherited(_identity(path)):
            raise StoreError(
                self._store,
                f"{path} was in use while this process was forked, and SQLite cannot open it here. Close the"
                " memory before the fork, or start the process with 'spawn'",
            )

    def _connect_read_only(self) -> sqlite3.Connection:
        """Return a connection that writes nothing.

        SQLite needs a shared index beside a file with a log. If it cannot make one, and
        the log is empty, the file is read as one that does not change. `reading`
        notices if it does.
        """
        path = self._config.path
        assert path is not None  # noqa: S101 - nothing in memory is opened to read only
        self._refuse_inherited(path)
        check_log(self._store, path)
        if path.exists():
            self.identity = _identity(path)
        try:
            return self._read_only(path, "mode=ro")
        except sqlite3.DatabaseError as exc:
            no_index = code_of(exc) in (
                sqlite3.SQLITE_CANTOPEN,
                sqlite3.SQLITE_READONLY,
                sqlite3.SQLITE_PERM,
            ) or _has_no_room(path)
            if not no_index or not path.exists():
                raise self._unusable(exc) from exc
            if _size(_beside(path, "-wal")):
                raise ConfigError(
                    f"store '{self._store}': the log {path}-wal holds commits that are not in {path} yet, and"
                    " cannot be read without write access to the folder. Open and close the memory once with"
                    " write access, or read a backup (`memory backup`)"
                ) from exc
        try:
            raw = self._read_only(path, "mode=ro&immutable=1")
        except sqlite3.DatabaseError as exc:
            raise self._unusable(exc) from exc
        self._frozen = _state(path)
        return raw

    def _read_only(self, path: Path, how: str) -> sqlite3.Connection:
        place, patience = f"file:{quote(str(path.absolute()))}?{how}", self._config.busy_timeout
        raw = sqlite3.connect(
            place,
            uri=True,
            timeout=patience,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        try:
            raw.execute("PRAGMA cache_size = -16384")
            raw.execute("PRAGMA temp_store = MEMORY")
            raw.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            raw.close()
            raise
        self._raw = raw
        return raw

    def _unusable(self, exc: sqlite3.DatabaseError) -> Exception:
        problem = _UNUSABLE.get(code_of(exc))
        return (
            exc if problem is None else ConfigError(f"store '{self._store}': {self._config.path} {problem}")
        )

    def note_files(self) -> None:
        """Remember which files are open: the database, its log, and the log's index."""
        path = self._config.path
        for file in () if path is None else (path, _beside(path, "-wal"), _beside(path, "-shm")):
            with contextlib.suppress(FileNotFoundError):
                self._files[file] = _identity(file)

    def check_files(self) -> None:
        """Check that each open file is still the one under its name.

        Raises:
            StoreError: One is not, so writes to it would be lost.
        """
        self._connect_again()
        for file, opened in self._files.items():
            try:
                found = _identity(file)
            except FileNotFoundError:
                happened = "was deleted"
            else:
                if found == opened:
                    continue
                happened = "was replaced by another file"
            raise self._lost_file_error(file, happened)

    def _lost_file_error(self, file: Path, happened: str) -> StoreError:
        return StoreError(
            self._store,
            f"{file} {happened} while it was open. Nothing of this call was kept. Close the memory, put the"
            " right file in place, and open it again; stop every process that uses a file before you delete,"
            " restore or replace it",
        )

    def _connect(self) -> sqlite3.Connection:
        target = ":memory:" if self._config.path is None else str(self._config.path)
        if self._config.path is not None:
            self._refuse_inherited(self._config.path)
            check_log(self._store, self._config.path)
            _make_own(self._config.path)
            if self._config.path.exists():
                self.identity = _identity(self._config.path)
        raw = sqlite3.connect(
            target,
            timeout=self._config.busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        try:
            self._persistently(lambda: raw.execute("PRAGMA journal_mode = WAL").fetchone())
            raw.execute(f"PRAGMA synchronous = {self._config.synchronous}")
            raw.execute("PRAGMA secure_delete = ON")
            raw.execute("PRAGMA foreign_keys = ON")
            raw.execute("PRAGMA cache_size = -16384")
            raw.execute("PRAGMA temp_store = MEMORY")
            raw.execute(f"PRAGMA wal_autocheckpoint = {self._config.thresholds.log_pages}")
        except BaseException:
            raw.close()
            raise
        self._raw = raw
        return raw

    def _persistently(self, work: Callable[[], T]) -> T:
        """Repeat the work while the file is locked, until the deadline.

        SQLite's own waiting does not cover every lock.
        """
        deadline = time.monotonic() + self._config.busy_timeout
        while True:
            try:
                return work()
            except sqlite3.OperationalError as exc:
                if not is_busy(exc) or time.monotonic() >= deadline:
                    raise
                time.sleep(0.005)

    # -- in the worker's thread --------------------------------------------------------

    def plainly(self, work: Callable[[Session], T]) -> T:
        """Run the work without a transaction."""
        return work(self._open_session())

    def shrink(self) -> int:
        session = self._open_session()
        self.check_files()
        before = self._bytes(session)
        session.run("PRAGMA temp_store = FILE")  # the copy is as large as the file
        try:
            self._persistently(lambda: session.run("VACUUM"))
        finally:
            session.run("PRAGMA temp_store = MEMORY")
        session.row("PRAGMA wal_checkpoint(TRUNCATE)")
        return max(0, before - self._bytes(session))

    def _bytes(self, session: Session) -> int:
        path = self._config.path
        if path is None:
            return int(session.row("PRAGMA page_count")[0]) * int(session.row("PRAGMA page_size")[0])
        return sum(f.stat().st_size for f in (path, path.with_name(f"{path.name}-wal")) if f.exists())

    def run_read(self, work: Callable[[Session], T]) -> T:
        path = self._config.path
        if self._frozen is not None and path is not None and _state(path) != self._frozen:
            raise StoreUnavailable(
                self._store,
                f"{path} changed while it was read without locks; close the memory and open it again",
            )
        return self._again(self._read_once, work)

    def _again(self, once: Callable[[Session, Callable[[Session], T]], T], work: Callable[[Session], T]) -> T:
        """Do the work, and repeat it once where a retry can help.

        It can after a table has grown, or where a text is not UTF-8.
        """
        session, tables = self._open_session(), self._tables.declared.tables
        try:
            return once(session, work)
        except Exception as exc:
            if is_outgrown(exc) and self._tables.have_changed(session, tables):
                return once(session, work)
            if not is_undecodable(exc) or self._raw is None:
                raise
            # A flipped byte in a text. Let it through, so that its row fails its
            # checksum and the other rows can be read.
            self._raw.text_factory = _lenient
            try:
                return once(session, work)
            finally:
                self._raw.text_factory = str

    def _read_once(self, session: Session, work: Callable[[Session], T]) -> T:
        self._persistently(lambda: session.run("BEGIN"))
        try:
            return work(session)
        finally:
            self._end(session, "ROLLBACK")

    def run_write(self, work: Callable[[Session], T]) -> T:
        session = self._open_session()
        if self._shares:  # inside a transaction already
            return work(session)
        return self._again(self._write_once, work)

    def _write_together(
        self, works: Sequence[Callable[[], Any]]
    ) -> Sequence[tuple[Any, BaseException | None]]:
        """Do waiting writes in one transaction with one commit.

        Each is still kept whole or not at all. If the transaction itself fails, nothing
        was kept, and each write is repeated on its own.
        """
        try:
            session = self._open_session()
        except Exception as exc:  # noqa: BLE001 - each gets it
            return [(None, exc)] * len(works)
        self._shares = True
        try:
            return self._write_once(
                session, lambda _: [self._within_savepoint(session, work) for work in works]
            )
        except Exception as exc:  # noqa: BLE001 - each gets an error of its own
            if is_busy(exc):  # waiting again for each would take too long
                return [(None, exc)] * len(works)
        finally:
            self._shares = False
        return [attempt(work) for work in works]

    def _within_savepoint(
        self, session: Session, work: Callable[[], Any]
    ) -> tuple[Any, BaseException | None]:
        session.run("SAVEPOINT one")
        result, error = attempt(work)
        if error is not None:
            if isinstance(error, sqlite3.Error | sa.exc.SQLAlchemyError):
                raise error
            session.run("ROLLBACK TO one")
        session.run("RELEASE one")
        return result, error

    def _write_once(self, session: Session, work: Callable[[Session], T]) -> T:
        try:
            return self._transaction(session, work)
        except Exception as exc:
            if not is_full(exc) or not self._fold_log(session):
                raise
        return self._transaction(session, work)

    def _fold_log(self, session: Session) -> bool:
        """Copy the log into the file, so that the next commit overwrites the log.

        So a deletion on a full disk needs no more room.
        """
        try:
            busy, _, _ = session.row("PRAGMA wal_checkpoint(RESTART)")
        except sqlite3.OperationalError:  # the file itself would have to grow
            return False
        return not busy

    def _transaction(self, session: Session, work: Callable[[Session], T]) -> T:
        self._persistently(lambda: session.run("BEGIN IMMEDIATE"))
        try:
            changes = self._changes()
            result = work(session)
            if self._config.path is not None and self._changes() != changes:
                mark_commit(session)
            self.check_files()
            session.run("COMMIT")
        except BaseException:
            self._end(session, "ROLLBACK")
            raise
        return result

    def _changes(self) -> int:
        return 0 if self._raw is None else self._raw.total_changes

    def _end(self, session: Session, how: str) -> None:
        if (
            self._raw is not None and self._raw.in_transaction
        ):  # SQLite ends it by itself if the disk has become full
            session.run(how)

    def _open_session(self) -> Session:
        if self._session is None:
            self._connect_again()
        if self._session is None:
            raise NotOpen(f"store '{self._name}'")
        return self._session

    # -- the end -----------------------------------------------------------------------

    def _log_is_anothers(self) -> bool:
        """Whether the log under the file's name is another one than the open one."""
        for file, opened in self._files.items():
            if file.name.endswith("-wal"):
                with contextlib.suppress(FileNotFoundError):
                    return _identity(file) != opened
        return False

    async def stop(self) -> None:
        await self.worker.stop(self._end_connection)

    def _end_connection(self) -> None:
        self._parted_from = None
        self._disconnect()

    def _disconnect(self) -> None:
        session = self._session
        if self._log_is_anothers():  # closing would delete the log that now has the name
            keep_alive(session)
            session = None
        self._session = self._raw = None
        if session is not None:
            session.connection.close()
        self.identity = None


_making: ContextVar[Callable[[], sqlite3.Connection]] = ContextVar("_making")
"""The function that makes the driver's connection for the next connection."""


@cache
def _engine() -> sa.Engine:
    """Return the engine of all files, which keeps no connection.

    Making an engine and its dialect takes as long as opening a file.
    """
    return sa.create_engine(
        "sqlite://", creator=lambda: _making.get()(), poolclass=NullPool, isolation_level="AUTOCOMMIT"
    )


def _connection_of(make: Callable[[], sqlite3.Connection]) -> sa.Connection:
    """Return a connection over the driver's connection that `make` returns."""
    token = _making.set(make)
    try:
        return _engine().connect()
    finally:
        _making.reset(token)


def opens_read_only(path: Path, mode: str) -> bool:
    """Whether a file is opened to read only.

    It is, if `mode` says so or the file may not be written.
    """
    return mode == "ro" or (path.exists() and not os.access(path, os.W_OK))


def _has_no_room(path: Path | None) -> bool:
    """Whether the disk has no room for the index of a log."""
    return path is not None and shutil.disk_usage(path.parent).free < 65_536


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def _identity(file: Path) -> tuple[int, int]:
    found = os.stat(file)
    return found.st_dev, found.st_ino


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _state(path: Path) -> tuple[int, ...]:
    """Return values that change when anybody writes to the file or its log."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size, _size(_beside(path, "-wal"))


def _make_own(path: Path) -> None:
    """Create a missing file so that only its owner has access under any umask.

    The log and its index, which SQLite puts beside it, get the same permissions.

    The file is first made under another name, because closing a second descriptor of an
    open file drops all locks of the process on it. SQLite's locks go too, see "How To
    Corrupt An SQLite Database File", 2.2.
    """
    if path.exists():
        return
    with contextlib.suppress(OSError):  # SQLite reports the reason later
        descriptor, made = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        os.close(descriptor)
        try:
            os.chmod(made, 0o600)
            os.link(made, path)
        except FileExistsError:
            pass
        except OSError:  # no links on this kind of disk
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            path.chmod(0o600)
        finally:
            os.unlink(made)


def _lenient(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
