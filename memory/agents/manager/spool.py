"""Messages that are not yet in every store, and the delivery position of each store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import takewhile
from secrets import token_hex
from typing import Protocol

from memory.domain.message import Message, Role
from memory.domain.task import Run
from memory.facade.memory import Memory
from memory.facade.resources.session import Session
from memory.facade.runtime.access import access_of, engine_of
from memory.orchestrator.conversations.tasks.runs import RunDraft
from memory.orchestrator.storage.sources import MessageSource, track_source
from memory.ports.concurrency import each_at_once

PREFIX = "extraction:"
STREAMS = timedelta(minutes=5)
"""A message that is not final counts as complete after this long without an update."""
BATCH = 200
"""The maximum number of messages of one save."""
PAGE = 500
_SPEAK = (Role.USER, Role.ASSISTANT, Role.TOOL)

Numbered = tuple[int, Message]


@dataclass(frozen=True, slots=True)
class Position:
    """The delivery position of a store."""

    mark: int = 0
    """The number of the first message that the store has not received."""
    until: int | None = None
    """The end of a range whose delivery has begun; None if none has.

    Every process that continues must deliver exactly this range.
    """
    waits: bool = True
    """Whether messages may be pending for the store."""
    closing: str | None = None
    """The token of the recording that is about to store that nothing is pending."""

    def at(self, mark: int) -> Position:
        """Return the position after delivery up to `mark`, with messages pending.

        If another process moved the position or began a range beyond `mark`, the result
        keeps that position or range.
        """
        mark = max(mark, self.mark)
        return Position(mark, self.until if self.until is not None and self.until > mark else None)


class Spool(Protocol):
    """Where messages wait. Their numbers start at 0 and are consecutive."""

    async def open(self) -> None:
        """Store that messages may be pending for each store, before any is added."""
        ...

    async def is_of(self, session: Session | None) -> bool:
        """Return whether the spool is of this session, not of a deleted namesake."""
        ...

    async def add(self, messages: Sequence[Message]) -> None: ...
    async def wait(self) -> None:
        """Store again that messages are pending, if the opposite was stored."""
        ...

    async def since(self, mark: int, until: int | None) -> tuple[list[Numbered], int]:
        """Return up to 200 messages from `mark` to `until`, and the mark after them.

        The returned messages end before a message that is still being streamed.
        """
        ...

    async def position(self, store: str) -> Position: ...
    async def begin_delivery(self, store: str, mark: int, until: int) -> Position:
        """Store that the delivery of this range to a store begins.

        Return the range to deliver. It differs from the given range if another process
        has delivered more or has begun a delivery.
        """
        ...

    async def commit(self, store: str, mark: int) -> None: ...
    async def track_source(self, of: range) -> AbstractContextManager[None]:
        """Return a context in which written entries name this range as their source."""
        ...

    async def is_delivered(self) -> bool:
        """Return whether every store has received all messages."""
        ...

    async def close(self) -> bool:
        """For each store that has received all messages, store that none is pending.

        This is not stored if messages were added since `is_delivered`. Return whether
        it is stored for all stores.
        """
        ...


class Buffer:
    """A spool in this process, lost with it.

    Messages are dropped once every store has them.
    """

    def __init__(self, stores: Sequence[str]) -> None:
        self._marks = dict.fromkeys(stores, 0)
        self._held: list[Message] = []
        self._first = 0

    async def open(self) -> None:
        """Do nothing: the buffer does not outlive the process."""

    async def is_of(self, session: Session | None) -> bool:
        return session is None

    async def wait(self) -> None:
        """Do nothing, as `open`."""

    async def add(self, messages: Sequence[Message]) -> None:
        if self._marks:
            self._held += messages

    async def since(self, mark: int, until: int | None) -> tuple[list[Numbered], int]:
        there = self._held[mark - self._first :][: _most(mark, until)]
        return list(enumerate(there, mark)), mark + len(there)

    async def position(self, store: str) -> Position:
        return Position(self._marks[store])

    async def begin_delivery(self, store: str, mark: int, until: int) -> Position:
        return Position(mark, until)

    async def commit(self, store: str, mark: int) -> None:
        self._marks[store] = mark
        gone = min(self._marks.values()) - self._first
        del self._held[:gone]
        self._first += gone

    async def track_source(self, of: range) -> AbstractContextManager[None]:
        """Track nothing: the messages belong to no session."""
        return nullcontext()

    async def is_delivered(self) -> bool:
        """Return whether every store has received all messages."""
        return not self._held

    async def close(self) -> bool:
        """Return whether every store has received all messages."""
        return not self._held

    def __len__(self) -> int:
        return len(self._held)


class Log:
    """A spool on the log of a session: durable, and erased with the session.

    The position of a store is a run of the session, queued while messages may be
    pending. So the index of runs finds the sessions that a dead process left behind.

    Several processes may record one session, and a process taken for dead may only be
    slow. Therefore a mark never goes back. To store that no message is pending for a
    store, a recording works in three steps. It stores its token in the store's run,
    reads the number of messages, and then completes the run if the token is still in
    it. A writer removes the token after it added messages.
    """

    def __init__(self, session: Session, stores: Sequence[str]) -> None:
        self.session = session
        self._stores = stores
        self._token = token_hex(8)
        self._have_all: list[str] = []
        self._unnoted: Sequence[Message] | None = None
        """Messages that were appended, but not noted as pending.

        If they are added again, they are not appended twice.
        """

    async def open(self) -> None:
        """Store that messages may be pending for each store, before any is added."""
        for store in self._stores:
            await self._change(store, lambda come: come.at(0))

    async def is_of(self, session: Session | None) -> bool:
        return session is self.session or (
            session is not None and await _incarnation(session) == await _incarnation(self.session)
        )

    async def add(self, messages: Sequence[Message]) -> None:
        if messages != self._unnoted:
            await self.session.append(list(messages))
        try:
            await self.wait()
        except BaseException:
            self._unnoted = messages
            raise
        self._unnoted = None

    async def wait(self) -> None:
        """Store again that messages are pending.

        This is needed if another recording has stored the opposite, or is about to.
        """
        there = await each_at_once(map(self.position, self._stores))
        for store, come in zip(self._stores, there, strict=True):
            if come != come.at(0):
                await self._change(store, lambda come: come.at(0))

    async def since(self, mark: int, until: int | None) -> tuple[list[Numbered], int]:
        now = engine_of(self.session).placement.now()
        page = await self.session.history(first=mark + 1, limit=_most(mark, until))
        items = list(
            takewhile(lambda item: item.message.is_final or now - item.updated_at > STREAMS, page.items)
        )
        said = [
            (i.number - 1, i.message)
            for i in items
            if i.message.role in _SPEAK and not i.is_redacted and not i.is_summary
        ]
        return said, max((item.number for item in items), default=mark)

    async def position(self, store: str) -> Position:
        log = (await self.session._conversation()).log
        run = await engine_of(self.session).conversations.runs.get(log, PREFIX + store)
        return _position_of(run, log.life.incarnation)

    async def begin_delivery(self, store: str, mark: int, until: int) -> Position:
        def set_range(come: Position) -> Position:
            told = come.at(mark)
            return told if told.until is not None or told.mark >= until else replace(told, until=until)

        return await self._change(store, set_range)

    async def commit(self, store: str, mark: int) -> None:
        await self._change(store, lambda come: come.at(mark))

    async def track_source(self, of: range) -> AbstractContextManager[None]:
        """Return a context in which written entries name the messages as their source.

        So an erasure of the messages also erases these entries, if they are in the
        session's own memory.
        """
        life, placement = (await self.session._conversation()).log.life, engine_of(self.session).placement
        source = MessageSource(life.session_id, life.incarnation, numbers=(of.start + 1, of.stop))
        return track_source(placement, life.tenant, source)

    async def is_delivered(self) -> bool:
        """Return whether every store has received all messages.

        As a preparation for `close`, the call stores this recording's token for each
        store.
        """
        come = [
            await self._change(store, lambda come: replace(come, closing=self._token))
            for store in self._stores
        ]
        there = (await self.session.info()).message_count
        self._have_all = [store for store, one in zip(self._stores, come, strict=True) if one.mark >= there]
        return len(self._have_all) == len(come)

    async def close(self) -> bool:
        """For each store that has received all messages, store that none is pending.

        This is not stored if messages were added since `is_delivered`. Return whether
        it is stored for all stores.
        """

        def stop_waiting(come: Position) -> Position:
            return replace(come, waits=False) if come.closing == self._token else come

        ends = [await self._change(store, stop_waiting) for store in self._have_all]
        return len(ends) == len(self._stores) and not any(come.waits for come in ends)

    async def _change(self, store: str, change: Callable[[Position], Position]) -> Position:
        """Change the stored position of a store atomically."""
        log = (await self.session._conversation()).log
        come = Position()

        def draft(run: Run | None) -> RunDraft | None:
            nonlocal come
            come = change(there := _position_of(run, log.life.incarnation))
            if come == there:
                return None
            told = {"of": log.life.incarnation, "until": come.until, "closing": come.closing}
            metadata = {name: value for name, value in told.items() if value is not None}
            return RunDraft(
                PREFIX + store,
                store,
                "queued" if come.waits else "completed",
                "background",
                come.mark,
                metadata,
            )

        await engine_of(self.session).conversations.runs.change(log, PREFIX + store, draft)
        return come


async def _incarnation(session: Session) -> str:
    return (await session._conversation()).log.life.incarnation


def _position_of(run: Run | None, incarnation: str) -> Position:
    """Return the position that a run stores.

    A run of a deleted session with the same id counts as empty.
    """
    if run is None or run.metadata.get("of") != incarnation:
        return Position(waits=False)
    return Position(
        run.message_count, run.metadata.get("until"), run.status == "queued", run.metadata.get("closing")
    )


def _most(mark: int, until: int | None) -> int:
    return BATCH if until is None else min(BATCH, until - mark)


async def drop_delivered(session: Session) -> None:
    """Erase a temporary session. The facts that were learnt from it stay.

    An erasure of the session would erase them too.
    """
    access, session._held = access_of(session), None
    await access.engine.conversations.sessions.expire(access.tenant, session.id)


async def waiting_sessions(memory: Memory, store: str) -> list[str]:
    """Return the sessions in which messages may be pending for a store."""
    found: list[str] = []
    cursor = None
    while True:
        page = await memory.sessions.runs(run_id=PREFIX + store, status="queued", limit=PAGE, cursor=cursor)
        found += [run.session_id for run in page.runs]
        if (cursor := page.cursor) is None:
            return found
