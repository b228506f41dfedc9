"""A store in memory whose calls fail when they are told to: before anything is done, or
after all of it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from memory.adapters.in_memory import InMemoryStore
from memory.domain.errors import StoreUnavailable
from memory.ports.collections import Collection
from memory.ports.contract.collections import DECLARED
from memory.ports.query import Page, Query
from memory.ports.record import Key, Stored
from memory.ports.store import Health
from memory.ports.writes import Outcome, Write


class FaultyStore(InMemoryStore):
    """`faults` is used up call by call: an error to raise before, `LOST` to do the work
    and raise, `HANG` never to end, None for nothing.
    """

    LOST = "lost"
    HANG = "hang"

    def __init__(self, *faults: object) -> None:
        super().__init__("faulty")
        self.faults = list(faults)
        self.calls = 0

    def _fault(self) -> object:
        self.calls += 1
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        return fault

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        await self._meet(self._fault())
        return await super()._get(collection, keys)

    async def _query(self, query: Query) -> Page:
        await self._meet(self._fault())
        return await super()._query(query)

    async def _check(self) -> Health:
        await self._meet(self._fault())
        return await super()._check()

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        fault = self._fault()
        outcomes = await super()._apply(writes, together)
        await self._meet(fault)
        return outcomes

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        await self._meet(self._fault())
        return await super()._delete_matching(query, version, discard_at, carry)

    async def _meet(self, fault: object) -> None:
        if fault == self.HANG:
            await asyncio.Event().wait()
        elif fault == self.LOST:
            raise gone()


def gone() -> StoreUnavailable:
    return StoreUnavailable("faulty", "the connection is gone")


async def opened(*faults: object) -> FaultyStore:
    store = FaultyStore(*faults)
    await store.open(DECLARED)
    return store
