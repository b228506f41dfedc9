"""Refuses to use a parent process's open resources in a forked child.

A child of `fork` has the parent's connections, event loops and locks, but none of its
threads. Using them hangs, or takes bytes from the parent's sockets.
"""

from __future__ import annotations

import ctypes
import os
from weakref import WeakSet

from memory.domain.errors import ForkedProcess


class ForkGuard:
    """Raises `ForkedProcess` in every process that did not open `owner`."""

    __slots__ = ("__weakref__", "_owner", "_process")

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._process: int | None = None

    def acquire(self) -> None:
        """Note that this process opens the owner."""
        self._process = os.getpid()
        _GUARDS.add(self)

    def release(self) -> None:
        """Note that the owner is closed. A child may open it for itself then."""
        self._process = None
        _GUARDS.discard(self)

    @property
    def is_inherited(self) -> bool:
        """Whether another process opened the owner and this one inherited it."""
        return self._process is not None and self._process != os.getpid()

    def check(self) -> None:
        """Raise `ForkedProcess` if this process inherited the owner.

        Raises:
            ForkedProcess: Another process opened the owner.
        """
        process = self._process
        if process is not None and process != os.getpid():
            raise ForkedProcess(process)


def keep_alive(thing: object) -> None:
    """Keep the object alive until the process ends.

    Its destructor would damage resources that another owner uses.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


_GUARDS: WeakSet[ForkGuard] = WeakSet()


def _keep_inherited() -> None:
    """Keep all inherited objects alive until the child ends.

    A destructor in the child would remove sockets from the parent's epoll, which both
    processes share. It could also close a SQLite connection of the parent.
    """
    for guard in list(_GUARDS):
        keep_alive(guard)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_inherited)
