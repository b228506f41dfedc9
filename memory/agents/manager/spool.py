"""What was said and is not yet in every store: numbered, kept until it is, and how far
each store has come.
"""

from __future__ import annotations

import asyncio
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
from memory.orchestrator.conversations.tasks.runs import RunDraft
from memory.orchestrator.storage.sources import MessageSource, track_source

PREFIX = "extraction:"
STREAMS = timedelta(minutes=5)
"""After so long nothing is added any more to a message that is not final: it is taken
as it stands.
"""
BATCH = 200
"""Messages of one save at most."""
PAGE = 500
_SPEAK = (Role.USER, Role.ASSISTANT, Role.TOOL)

Numbered = tuple[int, Message]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a store has come."""

    mark: int = 0
    """The number of the first message that it has not."""
    until: int | None = None
    """Where a range ends that somebody began to tell it: whoever goes on tells that
    range and no other. None where nobody did.
    """
    waits: bool = True
    """Whether something may wait for it."""
    closing: str | None = None
    """Who is about to note that nothing does."""

    def at(self, mark: int) -> Position:
        """Once it has what is before this mark, or what another process has told it
        beyond; and something may wait for it.
        """
        mark = max(mark, self.mark)
        return Position(mark, self.until if self.until is not None and self.until > mark else None)


class Spool(Protocol):
    """Where messages wait. Numbers begin at 0 and go up by one (E66)."""

    async def open(self) -> None:
        """Note that something may wait for each store, before there is."""
        ...

    async def is_of(self, session: Session | None) -> bool:
        """Whether it is of the life that this session has."""
        ...

    async def add(self, messages: Sequence[Message]) -> None: ...
    async def wait(self) -> None:
        """Note it again where somebody has noted since that nothing does."""
        ...

    async def since(self, mark: int, until: int | None) -> tuple[list[Numbered], int]:
        """Messages from the mark on, those before `until` and 200 at most, and the mark
        behind them. What is still being said ends them.
        """
        ...

    async def position(self, store: str) -> Position: ...
    async def begin_delivery(self, store: str, mark: int, until: int) -> Position:
        """Note that a store is about to be told this range; what it is to be told
        instead where another has told more, or begun to.
        """
        ...

    async def commit(self, store: str, mark: int) -> None: ...
    async def track_source(self, of: range) -> AbstractContextManager[None]:
        """A context in which entries that are written name the messages of this range
        as their source.
        """
        ...

    async def is_delivered(self) -> bool:
        """Whether every store has everything."""
        ...

    async def close(self) -> bool:
        """Note of each store that has everything that nothing waits for it, unless
        something came in between; whether of all.
        """
        ...


class Buffer:
    """In this process, and lost with it. What every store has is let go (E80)."""

    def __init__(self, stores: Sequence[str]) -> None:
        self._marks = dict.fromkeys(stores, 0)
        self._held: list[Message] = []
        self._first = 0

    async def open(self) -> None:
        """Nothing outlives the process, so nothing is noted."""

    async def is_of(self, session: Session | None) -> bool:
        return session is None

    async def wait(self) -> None:
        """As `open`."""

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
        """No session has these messages, so nothing names them."""
        return nullcontext()

    async def is_delivered(self) -> bool:
        """Whether every store has everything."""
        return not self._held

    async def close(self) -> bool:
        """As `is_told`."""
        return not self._held

    def __len__(self) -> int:
        return len(self._held)


class Log:
    """The log of a session: what was said there is durable, and erased with it.

    How far a store has come is a run of the session, queued for as long as something
    may wait: so what a process left behind is found by the index of runs. Several
    processes may record one session, and one that was taken for dead may be slow, so a
    mark only goes on; and that nothing waits is noted by who has first noted that he is
    about to, then looked what there is, and was not contradicted since. Who adds
    contradicts him, once what he added is there.
    """

    def __init__(self, session: Session, stores: Sequence[str]) -> None:
        self.session = session
        self._stores = stores
        self._token = token_hex(8)
        self._have_all: list[str] = []
        self._unnoted: Sequence[Message] | None = None
        """What was said last, where it could not be noted that it waits: given again it
        is not said twice.
        """

    async def open(self) -> None:
        """Note that something may wait for each store, before there is."""
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
        """Note it again where somebody has noted since that nothing does, or that he is
        about to.
        """
        there = await asyncio.gather(*map(self.position, self._stores))
        for store, come in zip(self._stores, there, strict=True):
            if come != come.at(0):
                await self._change(store, lambda come: come.at(0))

    async def since(self, mark: int, until: int | None) -> tuple[list[Numbered], int]:
        now = self.session._access.engine.placement.now()
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
        run = await self.session._access.engine.conversations.runs.get(log, PREFIX + store)
        return _position_of(run, log.life.incarnation)

    async def begin_delivery(self, store: str, mark: int, until: int) -> Position:
        def set_range(come: Position) -> Position:
            told = come.at(mark)
            return told if told.until is not None or told.mark >= until else replace(told, until=until)

        return await self._change(store, set_range)

    async def commit(self, store: str, mark: int) -> None:
        await self._change(store, lambda come: come.at(mark))

    async def track_source(self, of: range) -> AbstractContextManager[None]:
        """The messages are erased with what was made of them: in the stores of the
        session's own memory.
        """
        life, placement = (await self.session._conversation()).log.life, self.session._access.engine.placement
        source = MessageSource(life.session_id, life.incarnation, numbers=(of.start + 1, of.stop))
        return track_source(placement, life.tenant, source)

    async def is_delivered(self) -> bool:
        """Whether every store has everything; it is about to be noted of those that
        have.
        """
        come = [
            await self._change(store, lambda come: replace(come, closing=self._token))
            for store in self._stores
        ]
        there = (await self.session.info()).message_count
        self._have_all = [store for store, one in zip(self._stores, come, strict=True) if one.mark >= there]
        return len(self._have_all) == len(come)

    async def close(self) -> bool:
        """Note of each store that has everything that nothing waits for it, unless
        something came in between; whether of all.
        """

        def stop_waiting(come: Position) -> Position:
            return replace(come, waits=False) if come.closing == self._token else come

        ends = [await self._change(store, stop_waiting) for store in self._have_all]
        return len(ends) == len(self._stores) and not any(come.waits for come in ends)

    async def _change(self, store: str, change: Callable[[Position], Position]) -> Position:
        """Note what follows from what is noted of a store, which nobody changes in
        between.
        """
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

        await self.session._access.engine.conversations.runs.change(log, PREFIX + store, draft)
        return come


async def _incarnation(session: Session) -> str:
    return (await session._conversation()).log.life.incarnation


def _position_of(run: Run | None, incarnation: str) -> Position:
    """What a run says; nothing where it is of a session of the same id that was
    deleted.
    """
    if run is None or run.metadata.get("of") != incarnation:
        return Position(waits=False)
    return Position(
        run.message_count, run.metadata.get("until"), run.status == "queued", run.metadata.get("closing")
    )


def _most(mark: int, until: int | None) -> int:
    return BATCH if until is None else min(BATCH, until - mark)


async def waiting_sessions(memory: Memory, store: str) -> list[str]:
    """The sessions in which something may wait for a store."""
    found: list[str] = []
    cursor = None
    while True:
        page = await memory.sessions.runs(run_id=PREFIX + store, status="queued", limit=PAGE, cursor=cursor)
        found += [run.session_id for run in page.runs]
        if (cursor := page.cursor) is None:
            return found
