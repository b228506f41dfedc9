"""The last read of each session's window, by task.

A write takes out of the window only messages of that read.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Container, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeAlias, TypeVar

from memory.domain.message import Message
from memory.orchestrator.conversations.log.events import Event
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.policies.message_alignment import align_messages

SESSIONS_KEPT = 1_000
"""Sessions of which one task's last read is kept; others count as not read."""
MESSAGES_KEPT = 1_000
"""Messages of a read that are kept to recognise them without ids."""
CHILD_SESSIONS_KEPT = 100
"""Sessions of which a task keeps the reads of its child tasks."""
CHILD_READS_KEPT = 4
"""Reads of one session by child tasks that a task keeps."""

P = ParamSpec("P")
T = TypeVar("T")
Version: TypeAlias = tuple[int, int]
"""The version of a message: its place, and how often it was edited."""
Owner: TypeAlias = "asyncio.Task[Any] | threading.Thread"


def version_of(event: Event) -> Version:
    """Return the version of an event's message."""
    return event.place, event.edits


@dataclass(slots=True)
class WindowRead:
    """One read of a window, and the same task's later writes."""

    places: Places = NOWHERE
    """The places of the messages shown to the caller. A write removes no others."""
    versions: dict[str, Version] = field(default_factory=dict)
    """The version of each message of the window that was read, by its id.

    The caller was not shown all of them.
    """
    shown: list[Message] | None = None
    """The messages as the caller knows them, oldest first; None if too many."""
    is_read: bool = True
    """False if the task has only written. A write then uses the current window."""

    is_assumed: bool = False
    """Whether the task read them in another part of a composite provider."""
    written: dict[object, Places] = field(default_factory=dict)
    """The places of messages that the task has written since, by their handle."""

    @property
    def known_places(self) -> Places:
        """The places of all messages that the caller was shown or has written since."""
        return functools.reduce(Places.with_all, self.written.values(), self.places)

    @property
    def hidden_messages(self) -> dict[str, int]:
        """The other messages of the window, with their places.

        The caller neither was shown them nor has written them since.
        """
        known = self.known_places
        return {name: place for name, (place, _) in self.versions.items() if place not in known}

    def hide(self, message_ids: Container[str | None]) -> None:
        """Note that the caller was not shown these messages."""
        hidden = Places.of(place for name, (place, _) in self.versions.items() if name in message_ids)
        self.places = self.places.without(hidden)
        self.written = {handle: places.without(hidden) for handle, places in self.written.items()}

    def removable(self, handle: object) -> Places:
        """Return the places that a write by this handle may take out of the window."""
        return self.places.with_all(self.written.get(handle, NOWHERE))

    def note_write(self, event: Event, handle: object) -> None:
        """Note a message that the same task has written."""
        if event.draft.message is not None:
            self.written[handle] = self.written.get(handle, NOWHERE).with_one(event.place)
            self.versions[str(event.draft.message.id)] = version_of(event)


class WindowReads:
    """The last read of each session by one task, and those of its child tasks."""

    def __init__(self, owner: weakref.ref[Owner] | None = None, parent: WindowReads | None = None) -> None:
        self._owner = owner
        self._parent = parent
        self._mark = object()
        self._own: OrderedDict[str, WindowRead] = OrderedDict()
        self._of_children: OrderedDict[str, dict[object, WindowRead]] = OrderedDict()

    def get(self, incarnation: str) -> WindowRead | None:
        """Return the last read of this life of a session, or None."""
        return self._own.get(incarnation)

    def put(self, incarnation: str, read: WindowRead) -> None:
        """Replace the last read, and tell the parent tasks."""
        self._keep(incarnation, read)
        for parent in self.parents():
            parent._child_has_read(incarnation, self._mark, read)

    def settle(self, incarnation: str, messages: Sequence[Message]) -> WindowRead | None:
        """Find the read that these messages come from; it becomes the task's last.

        The task hands the messages back. They may come from its own read or that of a
        child task, such as a function that `asyncio.wait_for` runs. A task that has
        read nothing may have received them from another task.

        The read that has most of the messages is chosen. If several have as many, their
        common part is used. So no message is removed that the caller may not have seen.
        """
        own, of_children = self._own.get(incarnation), self._of_children.get(incarnation, {})
        reads = [*([] if own is None or not own.is_read else [own]), *of_children.values()]
        if not reads:
            reads = [read for read in self._read_above(incarnation) if _count_recognised(messages, read)]
        if of_children or (reads and reads[0] is not own):
            found = [_count_recognised(messages, read) for read in reads]
            self._keep(
                incarnation,
                _common([read for read, count in zip(reads, found, strict=True) if count == max(found)]),
            )
        return self._own.get(incarnation)

    def begin(self, unwritten: str, incarnation: str) -> None:
        """Move reads to this life of the session.

        They were made under the name `unwritten`, before the session existed.
        """
        if self._own.pop(unwritten, None) is not None and incarnation not in self._own:
            self._own[incarnation] = WindowRead(shown=[])
        if earlier := self._of_children.pop(unwritten, None):
            self._of_children[incarnation] = {
                **{child: WindowRead(shown=[]) for child in earlier},
                **self._of_children.get(incarnation, {}),
            }

    def _read_above(self, incarnation: str) -> list[WindowRead]:
        """Return the reads of parent tasks and of their other children."""
        reads = list[WindowRead]()
        for parent in self.parents():
            own = parent._own.get(incarnation)
            above = [
                *([] if own is None or not own.is_read else [own]),
                *parent._of_children.get(incarnation, {}).values(),
            ]
            reads += [replace(read, versions=dict(read.versions), written={}) for read in above]
        return reads

    def note_write(self, incarnation: str, event: Event, handle: object) -> None:
        """Note a message that the task has written."""
        for read in (self._own.get(incarnation), *self._of_children.get(incarnation, {}).values()):
            if read is not None:
                read.note_write(event, handle)

    def take_back(self, incarnation: str) -> None:
        """Remove the task's read from its parents, after it has replaced the window."""
        for parent in self.parents():
            parent._of_children.get(incarnation, {}).pop(self._mark, None)

    def parents(self) -> Iterator[WindowReads]:
        """Yield the reads of the running tasks that this one descends from.

        Finished ones are dropped. Otherwise, in a chain where each task starts the
        next, each would keep all before it.
        """
        reads = self
        while True:
            while reads._parent is not None and reads._parent._is_over():
                reads._parent = reads._parent._parent
            if reads._parent is None:
                return
            reads = reads._parent
            yield reads

    def _is_over(self) -> bool:
        owner = None if self._owner is None else self._owner()
        return owner is None or (
            not owner.is_alive() if isinstance(owner, threading.Thread) else owner.done()
        )

    def _keep(self, incarnation: str, read: WindowRead) -> None:
        self._of_children.pop(incarnation, None)
        self._own[incarnation] = read
        self._own.move_to_end(incarnation)
        if len(self._own) > SESSIONS_KEPT:
            self._own.popitem(last=False)

    def _child_has_read(self, incarnation: str, child: object, read: WindowRead) -> None:
        reads = self._of_children.setdefault(incarnation, {})
        reads.pop(child, None)
        reads[child] = replace(read, versions=dict(read.versions), written={})
        if len(reads) > CHILD_READS_KEPT:
            del reads[list(reads)[-2]]  # the oldest or the newest may be handed back
        self._of_children.move_to_end(incarnation)
        if len(self._of_children) > CHILD_SESSIONS_KEPT:
            self._of_children.popitem(last=False)


def _common(reads: Sequence[WindowRead]) -> WindowRead:
    """Return the common part of reads; the earliest comes first."""
    first, *others = reads
    places, versions = first.known_places, first.versions
    for read in others:
        places, versions = places.both(read.known_places), {**read.versions, **versions}
    return first if not others else WindowRead(places, versions, first.shown)


def _count_recognised(messages: Sequence[Message], read: WindowRead) -> int:
    """Return how many of the messages a read has."""
    found = align_messages(messages, read.shown or [])
    return sum(
        at is not None or message.id in read.versions for message, at in zip(messages, found, strict=True)
    )


_READS: ContextVar[tuple[weakref.ref[Owner], WindowReads] | None] = ContextVar("memory_reads", default=None)


def reads_of_caller() -> WindowReads:
    """Return the reads of the running task, or of the thread if no task runs.

    A child task inherits the context of its parent, but not the parent's reads: eight
    tasks of one parent have eight. The parent has also read everything that they read.
    """
    held, owner = _READS.get(), _owner()
    if held is not None and held[0]() is owner:
        return held[1]
    mine = weakref.ref(owner)
    reads = WindowReads(mine, None if held is None else held[1])
    for _ in reads.parents():
        pass  # drops finished ones
    _READS.set((mine, reads))
    return reads


@contextmanager
def without_earlier_reads() -> Iterator[None]:
    """Let the block begin without reads, as if no task had started the running one.

    A server uses it for each request. Otherwise a request would count as the child of
    the task that started the server. Reads of other clients would be those of siblings.
    """
    before = _READS.get()
    _READS.set(None)
    try:
        yield
    finally:
        _READS.set(before)


def lends_reads(call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make an async method use the caller's reads, in any task that it runs in.

    `asyncio.gather`, `asyncio.wait_for` and the sync wrapper run the coroutine in a
    task of its own. The caller's holder is made before that, so the read reaches the
    caller.
    """

    @functools.wraps(call)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        made: Any = with_reads(reads_of_caller(), call, *args, **kwargs)
        made.__name__, made.__qualname__ = call.__name__, call.__qualname__  # for "was never awaited"
        lent: Coroutine[Any, Any, T] = made
        return lent

    return wrapper


async def with_reads(
    reads: WindowReads, call: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
) -> T:
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
