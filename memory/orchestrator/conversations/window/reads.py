"""What each task has last read of the windows of sessions: a write removes only
messages of that read.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Container, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeAlias, TypeVar

from memory.domain.message import Message
from memory.orchestrator.conversations.log.events import Event
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.policies.message_alignment import align_messages

SESSIONS_KEPT = 1_000
"""Sessions of which one task's last read is kept; of others it counts as not having
read.
"""
MESSAGES_KEPT = 1_000
"""Messages of a read that are kept for recognising them without ids."""
CHILD_SESSIONS_KEPT = 100
"""Sessions of which a task keeps the reads of its child tasks."""
CHILD_READS_KEPT = 4
"""Reads of one session by child tasks that a task keeps."""

P = ParamSpec("P")
T = TypeVar("T")
Version: TypeAlias = tuple[int, int]
"""Of a message: its place, and how often it was edited."""
Owner: TypeAlias = "asyncio.Task[Any] | threading.Thread"


def version_of(event: Event) -> Version:
    """Which version of its message an event holds."""
    return event.place, event.edits


@dataclass(slots=True)
class WindowRead:
    """One read of a window, and what the same task wrote since."""

    places: Places = NOWHERE
    """The places of the messages that the caller was shown. A write removes no others."""
    versions: dict[str, Version] = field(default_factory=dict)
    """The version of each message of the window as far as it was read, by its id. The
    caller was not shown all of them.
    """
    shown: list[Message] | None = None
    """The messages as the caller knows them, oldest first. None where they are too many
    to keep.
    """
    is_read: bool = True
    """False where the task has only written: then a write takes the window as it is
    when it begins.
    """

    is_assumed: bool = False
    """Whether the task read the same messages elsewhere: in another part of a composite
    provider.
    """
    written: dict[object, Places] = field(default_factory=dict)
    """The places of messages that the task has written since, by the handle that wrote
    them.
    """

    @property
    def known_places(self) -> Places:
        """The places of all messages that the caller was shown or has written since."""
        return functools.reduce(Places.with_all, self.written.values(), self.places)

    @property
    def hidden_messages(self) -> dict[str, int]:
        """The messages of the window that the caller neither was shown nor wrote since,
        with their places.
        """
        known = self.known_places
        return {name: place for name, (place, _) in self.versions.items() if place not in known}

    def hide(self, message_ids: Container[str | None]) -> None:
        """Note that the caller was not shown these messages."""
        hidden = Places.of(place for name, (place, _) in self.versions.items() if name in message_ids)
        self.places = self.places.without(hidden)
        self.written = {handle: places.without(hidden) for handle, places in self.written.items()}

    def removable(self, handle: object) -> Places:
        """The places that a write by this handle may take out of the window."""
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
        """The last read of this life of a session; None where the task has not read it."""
        return self._own.get(incarnation)

    def put(self, incarnation: str, read: WindowRead) -> None:
        """Keep a read in place of the one before it, and let the parent tasks know it."""
        self._keep(incarnation, read)
        for parent in self.parents():
            parent._child_has_read(incarnation, self._mark, read)

    def settle(self, incarnation: str, messages: Sequence[Message]) -> WindowRead | None:
        """Decide from which read these messages come that the task hands back; it
        counts as the task's last from now on.

        A list may come from the task's own read or from that of a child task, such as a
        function that `asyncio.wait_for` runs. A task that has read nothing may have
        been given a list that another one read. It is the read that has most of the
        messages; of equal ones what all of them showed, so that no message is removed
        that the caller may not have seen.
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
        """Let what was read before the session existed, under the name `unwritten`,
        count as reads of this life of it.
        """
        if self._own.pop(unwritten, None) is not None and incarnation not in self._own:
            self._own[incarnation] = WindowRead(shown=[])
        if earlier := self._of_children.pop(unwritten, None):
            self._of_children[incarnation] = {
                **{child: WindowRead(shown=[]) for child in earlier},
                **self._of_children.get(incarnation, {}),
            }

    def _read_above(self, incarnation: str) -> list[WindowRead]:
        """What parent tasks and other children of theirs have read."""
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
        """Let the parent tasks forget the task's read: it has replaced the window
        itself.
        """
        for parent in self.parents():
            parent._of_children.get(incarnation, {}).pop(self._mark, None)

    def parents(self) -> Iterator[WindowReads]:
        """The reads of the tasks that this one descends from, those that still run.

        The others are let go: each of a chain of tasks, of which one begins the next,
        would keep all before it.
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
            del reads[list(reads)[-2]]  # the first may be the one that is handed back, and so may the newest
        self._of_children.move_to_end(incarnation)
        if len(self._of_children) > CHILD_SESSIONS_KEPT:
            self._of_children.popitem(last=False)


def _common(reads: Sequence[WindowRead]) -> WindowRead:
    """What all of the reads, the earliest first, showed or wrote."""
    first, *others = reads
    places, versions = first.known_places, first.versions
    for read in others:
        places, versions = places.both(read.known_places), {**read.versions, **versions}
    return first if not others else WindowRead(places, versions, first.shown)


def _count_recognised(messages: Sequence[Message], read: WindowRead) -> int:
    """How many of the messages a read has."""
    found = align_messages(messages, read.shown or [])
    return sum(
        at is not None or message.id in read.versions for message, at in zip(messages, found, strict=True)
    )


_READS: ContextVar[tuple[weakref.ref[Owner], WindowReads] | None] = ContextVar("memory_reads", default=None)


def reads_of_caller() -> WindowReads:
    """The reads of the running task, or of the thread where no task runs.

    A child task inherits the context of its parent, but not the parent's reads: eight
    tasks of one parent have eight. What they read, the parent has read too.
    """
    held, owner = _READS.get(), _owner()
    if held is not None and held[0]() is owner:
        return held[1]
    mine = weakref.ref(owner)
    reads = WindowReads(mine, None if held is None else held[1])
    for _ in reads.parents():
        pass  # lets go of those that are over
    _READS.set((mine, reads))
    return reads


def lends_reads(call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Let an async method use the reads of whoever calls it, in whichever task it runs.

    `asyncio.gather`, `asyncio.wait_for` and the blocking twin run the coroutine in a
    task of its own. The caller's holder is made before that, so the read reaches the
    caller.
    """

    @functools.wraps(call)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return with_reads(reads_of_caller(), call, *args, **kwargs)

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
