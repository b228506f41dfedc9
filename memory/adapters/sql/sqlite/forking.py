"""Closes SQLite's connections around a fork, so that no child process inherits one.

SQLite keeps a table of the locks that this process holds on each file. A child of
`fork` inherits the table and takes the parent's locks for its own. Then two processes
write at once, or the parent deletes a log that the child still writes to. SQLite
forbids carrying an open connection across a fork
(https://www.sqlite.org/howtocorrupt.html, 2.6).

Each connection is closed between two of its jobs, right before the fork. The parent
connects again with its next job. A database in memory stays open. Its job only ends
before the fork, as a child must not inherit SQLite's mutexes locked.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from memory.ports.fork_guard import keep_alive

REST_SECONDS = 5.0
"""The seconds that a fork waits for the jobs under way.

After that the child may not open their files.
"""


class ForkableConnection(Protocol):
    """A connection that can be closed for a fork."""

    @property
    def at_rest(self) -> threading.Lock:
        """Held while a job uses the connection."""

    @property
    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the open file, None if none is open."""

    def part(self) -> None:
        """Close the connection if it has a file; the next job connects again."""


def watch(connection: ForkableConnection) -> None:
    """Bring this connection to rest before each fork, from now on."""
    with _lock.mine:
        _connections.add(connection)


def is_inherited(identity: tuple[int, int]) -> bool:
    """Whether this process inherited an open connection to the file with this id."""
    return identity in _inherited


class _TemporaryConnection:
    """A connection that its owner closes soon: a fork waits until then."""

    def __init__(self, identity: tuple[int, int]) -> None:
        self.at_rest = threading.Lock()
        self.identity: tuple[int, int] | None = identity

    def part(self) -> None:
        """Do nothing: no connection is open once the lock is free."""


@contextlib.contextmanager
def hold_forks(file: Path) -> Iterator[None]:
    """Let forks wait while a temporary connection to the file is open.

    Such a connection cannot be closed and opened again.
    """
    found = os.stat(file)
    use = _TemporaryConnection((found.st_dev, found.st_ino))
    watch(use)
    with use.at_rest:
        try:
            yield
        finally:
            use.identity = None


class _Lock:
    """The lock of `_connections`, which a child replaces by a new one.

    The thread that held it is not in the child.
    """

    def __init__(self) -> None:
        self.mine = threading.Lock()


_lock = _Lock()
_connections: WeakSet[ForkableConnection] = WeakSet()
_parted: list[ForkableConnection] = []
_inherited: set[tuple[int, int]] = set()


def _part() -> None:
    _lock.mine.acquire()
    deadline = time.monotonic() + REST_SECONDS
    for connection in list(_connections):
        if connection.at_rest.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _parted.append(connection)
            with contextlib.suppress(
                Exception
            ):  # a fork cannot be refused; `is_inherited` reveals it in the child
                connection.part()


def _go_on() -> None:
    for connection in _parted:
        connection.at_rest.release()
    _parted.clear()
    _lock.mine.release()


def _begin_as_child() -> None:
    for connection in list(_connections):
        if (identity := connection.identity) is not None:
            _inherited.add(identity)
            keep_alive(connection)  # closing it here would release the parent's files
    _connections.clear()  # their threads are not in the child, which may fork again
    _parted.clear()
    _lock.mine = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_part, after_in_parent=_go_on, after_in_child=_begin_as_child)
