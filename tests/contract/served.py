"""What harnesses of stores on a server share: the server is frozen and killed by the hooks of `tests.support`."""

from __future__ import annotations

import asyncio
from typing import Protocol

from memory.ports.contract.harness import Harness
from memory.ports.store import Store


class Mortal(Protocol):
    """A server of this test process alone: others would wait while it is frozen."""

    def kill(self) -> None: ...

    def revive(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


class Served(Harness):
    """A store on a server; implement `running`, `hurried` and what every harness needs. Waiting for the server does not hold up the store."""

    remote = True

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
