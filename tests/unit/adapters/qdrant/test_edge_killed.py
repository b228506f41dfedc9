"""A process that holds the folder is killed while it writes: what it was told is kept
is there afterwards.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from memory.adapters.qdrant.store import QdrantStore
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, hit_ids, key_of, one
from memory.ports.record import Record, Tombstone
from memory.ports.writes import RaiseGeneration
from tests.support.processes import last_before_kill, started

pytestmark = pytest.mark.backend("qdrant_edge")
ENOUGH = 150
"""Acknowledged writes after which the writer dies."""

WRITER = """
    import asyncio, itertools
    from memory.adapters.qdrant.store import QdrantStore
    from memory.ports.contract.collections import DECLARED, MORE_SAMPLES
    from memory.ports.contract.support import HERE, delete, put, record
    from memory.ports.record import pack_vector
    from memory.ports.writes import Absent, RaiseGeneration

    async def main():
        store = QdrantStore("qdrant+edge:///{folder}")
        await store.open(DECLARED)
        for n in itertools.count():
            writes = [
                put(record(n, body={{"n": n}}, texts={{"content": "lantern word%d" % n}}, vector=pack_vector([1.0, n]))),
                delete(n - 1) if n % 3 == 0 and n else put(record(n + 100_000)),
                put(record(n), Absent(), MORE_SAMPLES),
                RaiseGeneration(HERE, 1 + n // 50),
            ]
            assert all(o.applied for o in await store.apply(writes))
            print(n, flush=True)

    asyncio.run(main())
"""


def _written_until_killed(folder: Path) -> int:
    """The number of the last batch that the writer was told is kept."""
    with started(textwrap.dedent(WRITER.format(folder=folder))) as writer:
        return last_before_kill(writer, ENOUGH)


async def test_nothing_acknowledged_is_lost_with_the_process(folder: Path) -> None:
    last = _written_until_killed(folder)
    store = QdrantStore(f"qdrant+edge:///{folder}")
    await store.open(DECLARED)
    stands = await store.get(SAMPLES, [key_of(n) for n in range(last + 1)])
    for n, stored in enumerate(stands):
        if isinstance(stored, Tombstone):
            assert (n + 1) % 3 == 0
        else:
            assert isinstance(stored, Record), f"{n} is {stored}"
            assert dict(stored.body) == {"n": n}
            assert (n + 1) % 3 or n >= last - 1
    assert await hit_ids(store, f"word{last}") == {key_of(last).id}
    assert ((await one(store, RaiseGeneration(HERE, 0))).number or 0) >= 1 + last // 50
    await store.close()
