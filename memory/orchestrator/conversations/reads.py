"""What each task has last read of the windows of sessions: a write removes only messages of that read."""

from __future__ import annotations

import asyncio
import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeAlias, TypeVar

from memory.domain.message import Message
from memory.orchestrator.conversations.events import Event
from memory.orchestrator.conversations.places import NOWHERE, Places

SESSIONS_KEPT = 1_000
"""Sessions of which one task's last read is kept; of others it counts as not having read."""
MESSAGES_KEPT = 1_000
"""Messages of a read that are kept for recognising them without ids."""

P = ParamSpec("P")
T = TypeVar("T")
Version: TypeAlias = tuple[int, int]
"""Of a message: its place, and how often it was edited."""
Owner: TypeAlias = "asyncio.Task[Any] | threading.Thread"


def version_of(event: Event) -> Version:
    """Which version of its message an event holds."""
    return event.place, event.edits


@dataclass(slots=True)
class Read:
    """One read of a window, and what the same task wrote since."""

    places: Places = NOWHERE
    """The places of all messages of the window at that moment."""
    versions: dict[str, Version] = field(default_factory=dict)
    """The version of each message that was read, by its id."""
    shown: list[Message] | None = None
    """The messages as the caller knows them, oldest first. None where they are too many to keep."""
    is_read: bool = True
    """False where the task has only written: then a write takes the window as it is when it begins."""

    is_assumed: bool = False
    """Whether the task read the same messages elsewhere: in another part of a composite provider."""
    written: dict[object, Places] = field(default_factory=dict)
    """The places of messages that the task has written since, by the handle that wrote them."""

    def removable(self, handle: object) -> Places:
        """The places that a write by this handle may take out of the window."""
        return self.places.with_all(self.written.get(handle, NOWHERE))

    def wrote(self, event: Event, handle: object) -> None:
        """Note a message that the same task has written."""
        if event.draft.message is not None:
            self.written[handle] = self.written.get(handle, NOWHERE).with_one(event.place)
            self.versions[str(event.draft.message.id)] = version_of(event)


class Reads:
    """The last read of each session by one task."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, Read] = OrderedDict()

    def get(self, incarnation: str) -> Read | None:
        """The last read of this life of a session; None where the task has not read it."""
        return self._of.get(incarnation)

    def put(self, incarnation: str, read: Read) -> None:
        """Keep a read in place of the one before it."""
        self._of[incarnation] = read
        self._of.move_to_end(incarnation)
        if len(self._of) > SESSIONS_KEPT:
            self._of.popitem(last=False)


_READS: ContextVar[tuple[weakref.ref[Owner], Reads] | None] = ContextVar("memory_reads", default=None)


def reads_of_caller() -> Reads:
    """The reads of the running task, or of the thread where no task runs.

    A child task inherits the context of its parent, but not the parent's reads: eight
    tasks of one parent have eight.
    """
    held, owner = _READS.get(), _owner()
    if held is not None and held[0]() is owner:
        return held[1]
    reads = Reads()
    _READS.set((weakref.ref(owner), reads))
    return reads


def lends_reads(call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Let an async method use the reads of whoever calls it, in whichever task it runs.

    `asyncio.gather`, `asyncio.wait_for` and the blocking twin run the coroutine in a task
    of its own. The caller's holder is made before that, so the read reaches the caller.
    """

    @functools.wraps(call)
    def calling(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return with_reads(reads_of_caller(), call, *args, **kwargs)

    return calling


async def with_reads(reads: Reads, call: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a call with these reads as those of the running task."""
    before = _READS.get()
    _READS.set((weakref.ref(_owner()), reads))
    try:
        return await call(*args, **kwargs)
    finally:
        _READS.set(before)


def _owner() -> Owner:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.current_thread() if task is None else task
