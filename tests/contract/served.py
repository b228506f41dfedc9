"""What harnesses of stores on a server share: the server is frozen and killed by the
hooks of `tests.support`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, Protocol

from memory.ports.contract.collections import DECLARED
from memory.ports.contract.harness import Harness
from memory.ports.store import Store


class Mortal(Protocol):
    """A server of this test process alone: others would wait while it is frozen."""

    def kill(self) -> None: ...

    def revive(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


class Served(Harness):
    """A store on a server; implement `running`, `with_short_timeouts` and what every harness needs.
    Waiting for the server does not hold up the store.
    """

    remote = True
    patience = timedelta(seconds=30)  # a busy machine's: what hangs does not end in them either

    def running(self) -> Mortal:
        raise NotImplementedError(f"{type(self).__name__} must implement running()")

    async def freeze(self, store: Store) -> None:
        await asyncio.to_thread(self.running().freeze)

    async def thaw(self, store: Store) -> None:
        await asyncio.to_thread(self.running().thaw)

    async def take_away(self, store: Store) -> None:
        await asyncio.to_thread(self.running().kill)

    async def bring_back(self, store: Store) -> None:
        await asyncio.to_thread(self.running().revive)


HURRY: Mapping[str, float] = {"command_timeout": 1, "connect_timeout": 1, "pool_timeout": 1}
"""The options of a store on a database with a pool of connections that waits for
nothing for long.
"""


ROOM = 4_000
"""Kilobytes that a server's small disk has left where a store is cramped."""


class OneSchema(Served):
    """One server a test process. The first store makes the schema; the others find it
    emptied, because making it takes longer than most tests.

    Implement `running`, `store`, `emptied`, `damage` and the claims.
    """

    hurry: ClassVar[Mapping[str, float]]
    """The options of a store that waits for nothing for long."""
    _made: ClassVar[set[str]] = set()

    def store(self, **options: Any) -> Store:
        """A store on the schema."""
        raise NotImplementedError(f"{type(self).__name__} must implement store()")

    async def begin(self) -> None:
        """What is done before the first store makes the schema."""

    async def emptied(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must implement emptied()")

    async def make(self) -> Store:
        if self.name in self._made:
            await self.emptied()
        else:
            await self.begin()
            store = self.store()
            await store.open(DECLARED)
            await store.close()
            self._made.add(self.name)
        return self.store()

    async def client(self, store: Store) -> Store:
        return self.store()

    async def with_short_timeouts(self, store: Store) -> Store:
        return self.store(**self.hurry)

    async def restart(self, store: Store) -> Store:
        self.running().kill()
        self.running().revive()
        return self.store()
