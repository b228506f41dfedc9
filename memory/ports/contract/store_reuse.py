"""Provides a fresh store for a test, or an emptied one of an earlier test.

Emptying is for adapters that take long to make a store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memory.ports.contract.collections import DECLARED
from memory.ports.contract.harness import Harness
from memory.ports.store import Store

_kept: dict[type[Harness], tuple[Harness, Store]] = {}


@asynccontextmanager
async def store(harness: Harness, *, lent: bool) -> AsyncIterator[Store]:
    """Yield a store that is open with every collection.

    With `lent` the test only writes to it and reads it. If the test passes, the store
    is kept for the next test.
    """
    lent = lent and harness.can_be_cleared()
    if lent and (kept := _kept.pop(type(harness), None)) is not None:
        owner, done_with = kept
        made = await owner.clear(done_with, DECLARED)
    else:
        owner, made = harness, await harness.make()
    keeps = False
    try:
        await made.open(DECLARED)
        yield made
        keeps = lent
    finally:
        if keeps:
            _kept[type(harness)] = (owner, made)
        else:
            await owner.dispose(made)


def give_back() -> None:
    """Dispose of the kept stores at the end of the run."""
    while _kept:
        owner, made = _kept.popitem()[1]
        asyncio.run(owner.dispose(made))
