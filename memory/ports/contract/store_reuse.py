"""A fresh store for a test, which may be one that another test is done with, emptied:
where making one takes long.
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
    """Open with every collection. With `lent` the test does nothing to it but write and
    ask; one whose test passed is kept for the next.
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
    """At the end of the run."""
    while _kept:
        owner, made = _kept.popitem()[1]
        asyncio.run(owner.dispose(made))
