"""Binds the write-ahead log to its file: a log of another file is never replayed.

SQLite replays any log that lies beside a file under the right name. After a process was
killed, a backup may be copied over its file. The old log then corrupts the backup or
undoes the restore.

So every write transaction gives the file a new random id (`user_version`) and notes the
id before it (`application_id`). Both are on page 1, so each log names the id that it
began with and the ids of its commits. The file on disk must have one of these. Copies
by `memory backup` get an id of their own.
"""

from __future__ import annotations

import secrets
import sqlite3
import struct
import time
from contextlib import closing
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from memory.domain.errors import ConfigError

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = (0x377F0682, 0x377F0683)
_AT, _ID_AT, _BEFORE_AT = 72, 60, 68
"""The number of bytes read of page 1, and the positions of both ids in them."""
_LOOKS, _BETWEEN = 5, 0.05
"""The number of looks at a log, and the seconds between them.

Another process may begin the log anew meanwhile.
"""


class StatementRunner(Protocol):
    """An object that runs statements."""

    def row(self, sql: str) -> tuple[int]: ...

    def run(self, sql: str) -> object: ...


def new_id() -> int:
    """Return a random id for a state of a file."""
    return secrets.randbelow(2**31 - 1) + 1


def mark_commit(session: StatementRunner) -> None:
    """Give the file a new id within a write transaction."""
    (before,) = session.row("PRAGMA user_version")
    session.run(f"PRAGMA application_id = {int(before)}")
    session.run(f"PRAGMA user_version = {new_id()}")


def check_log(store: str, file: Path) -> None:
    """Check that the log beside the file is its own, before SQLite opens the file.

    Raises:
        ConfigError: It is another file's log.
    """
    log = file.with_name(f"{file.name}-wal")
    for look in range(_LOOKS):
        if look:
            time.sleep(_BETWEEN)
        ids = _ids_of(log)
        if not ids or (now := _id_of(file)) is None or now in ids:
            return
    raise ConfigError(
        f"store '{store}': {log} is the log of another file than {file}: one of them was replaced. It was not"
        f" applied. If {file.name} is the right file, stop every process that uses it, move {log.name} and"
        f" {file.name}-shm away, and open it again: the log holds the latest commits of the file that was"
        " there before. `memory restore` puts a backup in place without this"
    )


def _ids_of(log: Path) -> set[int]:
    """Return the ids that the file of a log may have.

    There are none if the log has no commit that names one.
    """
    ids = set[int]()
    try:
        with log.open("rb") as stream:
            header = stream.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return ids
            magic, _, page_size, _, *salts, _, _ = _HEADER.unpack(header)
            if magic not in _MAGIC:
                return ids
            at = _HEADER.size
            while len(frame := stream.read(_FRAME.size + _AT)) == _FRAME.size + _AT:
                page, _, *of_frame, _, _ = _FRAME.unpack_from(frame)
                if of_frame != salts:
                    break
                if page == 1:
                    if not ids:
                        ids.add(_number(frame, _BEFORE_AT))
                    ids.add(_number(frame, _ID_AT))
                at += _FRAME.size + page_size
                stream.seek(at)
    except FileNotFoundError:
        pass
    return ids


def _number(frame: bytes, at: int) -> int:
    return int.from_bytes(frame[_FRAME.size + at : _FRAME.size + at + 4], "big", signed=True)


def _id_of(file: Path) -> int | None:
    """Return the id of the file on disk, without its log.

    Returns None if the file is empty or not a database. The id is read through SQLite:
    opening and closing the file in another way takes all locks from other connections
    of this process.
    """
    try:
        if not file.stat().st_size:
            return None
        with closing(
            sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1", uri=True)
        ) as connection:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])
    except (FileNotFoundError, sqlite3.Error):
        return None
