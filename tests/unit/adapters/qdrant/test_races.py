"""Several clients of one server that get in between each other's calls. The server is
the client's local mode, whose every call is made to wait.

What is proved is the protocol of `client` and `applying`; that a real server compares
and writes in one step is its own promise.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from qdrant_client import AsyncQdrantClient

from memory.adapters.qdrant.store import QdrantStore
from memory.domain.errors import StoreTimeout
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_record,
    id_of,
    key_of,
    one,
    put,
    record,
    search_hits,
)
from memory.ports.query import MAX_LIMIT, Lt, Query, within
from memory.ports.record import Partition, Record, Role, Tombstone
from memory.ports.writes import Absent, AtVersion, Newer, Purge, RaiseGeneration, Status, Write
from tests.support.depth import drawn

pytestmark = pytest.mark.backend("qdrant_local")
WRITERS = 64


class Interrupted:
    """A client whose calls take turns with everybody else's, before and after."""

    def __init__(self, client: AsyncQdrantClient, chance: random.Random) -> None:
        self._client, self._chance = client, chance

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            for _ in range(self._chance.randrange(4)):
                await asyncio.sleep(0)
            answer = await method(*args, **kwargs)
            for _ in range(self._chance.randrange(4)):
                await asyncio.sleep(0)
            return answer

        return call


async def _clients(count: int, seed: int = 0) -> list[QdrantStore]:
    """Stores on one server, each as another process would have it."""
    server, chance = AsyncQdrantClient(":memory:"), random.Random(seed)  # noqa: S311
    stores = [QdrantStore("qdrant://:memory:", client=Interrupted(server, chance)) for _ in range(count)]
    for store in stores:
        await store.open(DECLARED)
    return stores


@pytest.mark.parametrize("seed", range(drawn(4, 1)))
async def test_of_many_clients_that_create_one_record_exactly_one_wins(seed: int) -> None:
    stores = await _clients(WRITERS, seed)
    outcomes = await asyncio.gather(
        *(one(s, put(record(version=n + 1, body={"by": n}), Absent())) for n, s in enumerate(stores))
    )
    winners = [n for n, o in enumerate(outcomes) if o.applied]
    assert len(winners) == 1
    assert dict((await fetch_record(stores[0])).body) == {"by": winners[0]}
    stands = await fetch_record(stores[0])
    assert all(o.stored == stands for o in outcomes if not o.applied)


@pytest.mark.parametrize("seed", range(drawn(3, 1)))
async def test_no_increment_of_many_clients_is_lost(seed: int) -> None:
    stores = await _clients(16, seed)
    await apply_all(stores[0], put(record(version=1, body={"n": 0})))

    async def increment(store: QdrantStore) -> None:
        for _ in range(2):
            while True:
                now = await fetch_record(store)
                if (
                    await one(
                        store,
                        put(
                            record(version=now.version + 1, body={"n": now.body["n"] + 1}),
                            AtVersion(now.version),
                        ),
                    )
                ).applied:
                    break

    await asyncio.gather(*map(increment, stores))
    assert (await fetch_record(stores[0])).body["n"] == 32
    assert (await fetch_record(stores[0])).version == 33


@pytest.mark.parametrize("seed", range(drawn(3, 1)))
async def test_generations_raised_by_many_clients_are_each_given_once(seed: int) -> None:
    stores = await _clients(24, seed)
    raised = await asyncio.gather(*(one(s, RaiseGeneration(HERE)) for s in stores))
    assert sorted(o.number or 0 for o in raised) == list(range(1, 25))


@pytest.mark.parametrize("seed", range(drawn(12, 1)))
async def test_what_was_written_before_an_erasure_does_not_stand_after_it(seed: int) -> None:
    """Records of the old generation on their way while the generation is raised and the
    partition erased.
    """
    writer, eraser = await _clients(2, seed)

    async def erase() -> None:
        await apply_all(eraser, RaiseGeneration(HERE))
        await eraser.delete_matching(Query(SAMPLES, within(HERE), roles=frozenset(Role)), 50)

    writes = [
        one(writer, put(record(n, generation=0, texts={"content": "secret"}), Newer())) for n in range(12)
    ]
    outcomes, _ = await asyncio.gather(asyncio.gather(*writes), erase())
    assert {o.status for o in outcomes} <= {Status.APPLIED, Status.REJECTED}
    assert (await eraser.query(Query(SAMPLES, within(HERE), roles=frozenset(Role)))).records == ()
    assert await search_hits(eraser, "secret") == []


@pytest.mark.parametrize("seed", range(drawn(6, 1)))
async def test_a_write_and_a_deletion_at_once_leave_what_the_later_version_says(seed: int) -> None:
    stores = await _clients(6, seed)
    writes: list[Write] = [
        delete(version=100),
        *[put(record(version=n + 1, body={"n": n}), Newer()) for n in range(5)],
    ]
    await asyncio.gather(*(one(s, w) for s, w in zip(stores, writes, strict=True)))
    assert not isinstance((await stores[0].get(SAMPLES, [key_of(1)]))[0], Record)


async def test_purges_and_writes_at_once_end_in_one_of_them() -> None:
    for seed in range(8):
        stores = await _clients(4, seed)
        await apply_all(stores[0], put(record(role=Role.CACHED)))
        purges = [one(s, Purge(SAMPLES, key_of(1), 1)) for s in stores[:3]]
        outcomes = await asyncio.gather(*purges, one(stores[3], put(record(version=2), Newer())))
        assert outcomes[3].applied
        assert (await fetch_record(stores[0])).version == 2


async def test_batches_of_many_clients_keep_each_write_apart() -> None:
    stores = await _clients(4, 1)

    async def work(store: QdrantStore) -> int:
        outcomes = await store.apply([put(record(n, version=1), Absent()) for n in range(30)])
        return sum(o.applied for o in outcomes)

    assert sum(await asyncio.gather(*map(work, stores))) == 30
    page = await stores[0].query(Query(SAMPLES, within(HERE), limit=MAX_LIMIT))
    assert [r.key.id for r in page.records] == [id_of(n) for n in range(30)]


async def test_a_write_that_so_many_others_wrote_over_that_nobody_can_tell_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("memory.adapters.qdrant.client.LINEAGE", 1)
    stores = await _clients(12, 3)
    await apply_all(stores[0], put(record()))
    outcomes = await asyncio.gather(
        *(one(s, put(record(version=n + 2))) for n, s in enumerate(stores)), return_exceptions=True
    )
    assert {type(o) for o in outcomes if isinstance(o, BaseException)} <= {StoreTimeout}


class Counted:
    """A client that counts its calls by name."""

    def __init__(self, client: AsyncQdrantClient) -> None:
        self._client = client
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._client, name)


async def test_repeating_an_erasure_of_a_hundred_partitions_is_one_look_and_one_write_where_a_late_record_stands() -> (
    None
):
    client = Counted(AsyncQdrantClient(":memory:"))
    store = QdrantStore("qdrant://:memory:", client=client)
    await store.open(DECLARED)
    places = [Partition("acme", f"session:{n}") for n in range(100)]
    erased = Query(SAMPLES, within(*places), Lt("generation", 1), roles=frozenset(Role))
    client.calls.clear()
    assert await store.delete_matching(erased, 50) == 0
    assert client.calls == {"scroll": 1}

    late = put(record(1, places[7], generation=0))
    await apply_all(
        store, late, RaiseGeneration(places[7]), put(record(2, places[7]))
    )  # as it stands where its writer died before it looked again
    client.calls.clear()
    assert await store.delete_matching(erased, 50) == 1
    assert client.calls == {"scroll": 1, "batch_update_points": 1, "retrieve": 1}
    assert [type(s) for s in await store.get(SAMPLES, [key_of(1, places[7]), key_of(2, places[7])])] == [
        Tombstone,
        Record,
    ]
