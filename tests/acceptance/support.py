"""What the acceptance tests share: a clock that obeys, scopes, and a watch on the
stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest

from memory.domain.entry import Entry
from memory.domain.scope import Scope
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.kinds import KINDS
from memory.ports.query import MAX_LIMIT, Everywhere, Query
from memory.ports.record import Role
from memory.ports.store import Store

SESSION = Scope.session("sess-1")
OTHER_SESSION = Scope.session("sess-2")
USER = Scope.user("u1")
OTHER_USER = Scope.user("u2")
ADA, BOB = Scope.user("ada"), Scope.user("bob")
WORKSPACE = Scope.workspace("w1")
ORG = Scope.org("o1")
OBJECT = Scope.object("ticket", "t1")
EVERY_KIND = (SESSION, USER, WORKSPACE, ORG, OBJECT)
SCOPES = pytest.mark.parametrize("scope", [USER, SESSION], ids=str)

START = datetime(2126, 3, 1, 12, 0, tzinfo=UTC)
"""Far ahead: a server forgets by its own clock what these tests say is still to come."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)


class Clock:
    """Time passes a microsecond whenever somebody looks, and otherwise when it is told
    to.
    """

    def __init__(self, moment: datetime = START) -> None:
        self.moment = moment
        self.tick = MICROSECOND

    def __call__(self) -> datetime:
        self.moment += self.tick
        return self.moment

    def advance(self, by: timedelta = HOUR) -> datetime:
        """Let time pass; the moment it is then."""
        self.moment += by
        return self.moment

    def stand_still_at(self, moment: datetime) -> None:
        self.moment, self.tick = moment, timedelta(0)


def contents(entries: Iterable[Entry]) -> list[str]:
    return [entry.content for entry in entries]


def elsewhere(memory: Memory, config: dict[str, Any], clock: Clock) -> AbstractAsyncContextManager[Memory]:
    """As another process has it, where the stores may be opened twice."""
    return (
        nullcontext(memory)
        if any(kind in str(config) for kind in ("memory://", "edge"))
        else Memory(config, clock=clock)
    )


def stores_of(memory: Memory) -> tuple[Store, ...]:
    return engine_of(memory).topology.stores


@contextmanager
def watching(memory: Memory) -> Iterator[list[str]]:
    """The names of every store call made inside."""
    calls: list[str] = []

    def watched(store: Store, name: str) -> Any:
        original = getattr(store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(f"{store.name}.{name}")
            return original(*args, **kwargs)

        return call

    patches = [
        patch.object(store, name, watched(store, name))
        for store in stores_of(memory)
        for name in ("get", "apply", "query", "count", "search", "delete_matching")
    ]
    for one in patches:
        one.start()
    try:
        yield calls
    finally:
        for one in patches:
            one.stop()


async def left_in(memory: Memory) -> list[tuple[str, str, str]]:
    """The live records of callers' scopes in every store, whatever their role: store,
    collection and id.
    """
    found = []
    for store in stores_of(memory):
        for kind in KINDS.scoped:
            page = await store.query(
                Query(kind.collection, Everywhere(), roles=frozenset(Role), limit=MAX_LIMIT)
            )
            found += [(store.name, kind.collection.name, record.key.id) for record in page.records]
    return found


async def everything_stored(memory: Memory) -> list[Any]:
    """All that stands in the stores for this tenant's entries: to compare before and
    after.
    """
    await memory.admin.flush()
    found = []
    async for entry in memory.entries.iterate():
        copies = await memory.admin.where(entry.id)
        found.append((entry, sorted((c.tier, c.store, c.role, c.version) for c in copies)))
    return found
