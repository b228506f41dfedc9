"""What was said and is not yet in every store: numbered, kept until it is, and how far each store has come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import takewhile
from typing import Protocol

from memory.domain.message import Message, Role
from memory.facade.memory import Memory
from memory.facade.session import Session

PREFIX = "extraction:"
STREAMS = timedelta(minutes=5)
"""After so long nothing is added any more to a message that is not final: it is taken as it stands."""
BATCH = 200
"""Messages of one save at most."""
PAGE = 500
_SPEAK = (Role.USER, Role.ASSISTANT, Role.TOOL)

Numbered = tuple[int, Message]


class Spool(Protocol):
    """Where messages wait. Numbers begin at 0 and go up by one (E66); a store's mark is the number of the first that it has not."""

    async def open(self) -> None:
        """Note that something may wait for each store, before there is."""
        ...

    async def add(self, messages: Sequence[Message]) -> None: ...
    async def since(self, mark: int) -> tuple[list[Numbered], int]:
        """Messages from the mark on, 200 at most, and the mark behind them. What is still being said ends them."""
        ...

    async def mark(self, store: str) -> int: ...
    async def marked(self, store: str, mark: int) -> None: ...
    async def close(self) -> bool:
        """Whether every store has everything."""
        ...


class Buffer:
    """In this process, and lost with it. What every store has is let go (E80)."""

    def __init__(self, stores: Sequence[str]) -> None:
        self._marks = dict.fromkeys(stores, 0)
        self._held: list[Message] = []
        self._first = 0

    async def open(self) -> None:
        """Nothing outlives the process, so nothing is noted."""

    async def add(self, messages: Sequence[Message]) -> None:
        if self._marks:
            self._held += messages

    async def since(self, mark: int) -> tuple[list[Numbered], int]:
        there = self._held[mark - self._first :][:BATCH]
        return list(enumerate(there, mark)), mark + len(there)

    async def mark(self, store: str) -> int:
        return self._marks[store]

    async def marked(self, store: str, mark: int) -> None:
        self._marks[store] = mark
        gone = min(self._marks.values()) - self._first
        del self._held[:gone]
        self._first += gone

    async def close(self) -> bool:
        """Whether every store has everything."""
        return not self._held

    def __len__(self) -> int:
        return len(self._held)


class Log:
    """The log of a session: what was said there is durable, and erased with it.

    How far a store has come is a run of the session, queued for as long as somebody records: so what a process left behind is found by its index.
    """

    def __init__(self, session: Session, stores: Sequence[str]) -> None:
        self.session = session
        self._stores = stores

    async def open(self) -> None:
        """Note that something may wait for each store, before there is."""
        for store in self._stores:
            await self.marked(store, await self.mark(store))

    async def add(self, messages: Sequence[Message]) -> None:
        await self.session.append(list(messages))

    async def since(self, mark: int) -> tuple[list[Numbered], int]:
        now = self.session._access.engine.placement.now()
        page = await self.session.history(first=mark + 1, limit=BATCH)
        items = list(takewhile(lambda item: item.message.is_final or now - item.updated_at > STREAMS, page.items))
        said = [(i.number - 1, i.message) for i in items if i.message.role in _SPEAK and not i.is_redacted and not i.is_summary]
        return said, max((item.number for item in items), default=mark)

    async def mark(self, store: str) -> int:
        run = await self.session.runs.get(PREFIX + store)
        return 0 if run is None else run.message_count

    async def marked(self, store: str, mark: int) -> None:
        await self._save(store, mark, "queued")

    async def close(self) -> bool:
        """Note which stores have everything; whether all have."""
        there = (await self.session.info()).message_count
        marks = {store: await self.mark(store) for store in self._stores}
        for store, mark in marks.items():
            if mark >= there:
                await self._save(store, mark, "completed")
        return all(mark >= there for mark in marks.values())

    async def _save(self, store: str, mark: int, status: str) -> None:
        await self.session.runs.save(PREFIX + store, child_id=store, status=status, mode="background", message_count=mark)


async def waiting(memory: Memory, store: str) -> list[str]:
    """The sessions in which something may wait for a store."""
    found: list[str] = []
    cursor = None
    while True:
        page = await memory.sessions.runs(run_id=PREFIX + store, status="queued", limit=PAGE, cursor=cursor)
        found += [run.session_id for run in page.runs]
        if (cursor := page.cursor) is None:
            return found
