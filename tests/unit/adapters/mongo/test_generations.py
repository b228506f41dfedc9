"""A write that is under way when a generation is raised: refused by the server, or
taken back by who brought it, or taken by the erasure's repeat.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence

import pytest

from memory.adapters.mongo import single
from memory.adapters.mongo.batch import WriteBatch
from memory.adapters.mongo.partitions import LEAVING
from memory.adapters.mongo.store import MongoStore
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    hit_ids,
    key_of,
    one,
    put,
    query_ids,
    record,
)
from memory.ports.query import Lt, Query, within
from memory.ports.record import Record, Role, Tombstone
from memory.ports.writes import (
    Absent,
    Always,
    Annotate,
    AtVersion,
    Newer,
    Purge,
    Put,
    RaiseGeneration,
    Status,
    When,
    Write,
)
from tests.support.mongo_servers import Mongo
from tests.unit.adapters.mongo.conftest import BOTH, Held, Raw, directory_of, erased

pytestmark = pytest.mark.parametrize("server", BOTH, indirect=True)


# -- one put ---------------------------------------------------------------------------

CASES: dict[str, tuple[list[Write], When]] = {
    "absent": ([], Absent()),
    "newer, nothing there": ([], Newer()),
    "always, nothing there": ([], Always()),
    "newer": ([put(record(1))], Newer()),
    "always": ([put(record(1))], Always()),
    "at a version": ([put(record(1))], AtVersion(1)),
    "at the tombstone's version": ([put(record(1))], AtVersion(50)),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_put_that_arrives_after_an_erasure_is_refused_by_the_server(
    store: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    before, when = CASES[case]
    await apply_all(store, *before)
    held = Held(monkeypatch, single, "_try_store")
    late = asyncio.ensure_future(one(store, put(record(1, version=90, generation=0), when)))
    await held.reached.wait()
    await erased(other)
    held.let_go.set()
    outcome = await late
    assert (outcome.status, outcome.reason) == (Status.REJECTED, "generation")
    assert await query_ids(other) == []


@pytest.mark.parametrize("when", [Absent(), Newer(), Always()], ids=str)
async def test_a_fresh_record_that_arrives_after_an_erasure_is_born_after_it(
    store: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch, when: When
) -> None:
    held = Held(monkeypatch, single, "_try_store")
    late = asyncio.ensure_future(one(store, put(record(1, version=90), when)))
    await held.reached.wait()
    await erased(other)
    held.let_go.set()
    outcome = await late
    assert (outcome.status, outcome.generation) == (Status.APPLIED, 1)
    assert (await fetch_record(other, 1)).generation == 1


async def test_a_put_of_a_record_as_large_as_the_store_takes_is_one_command_too(store: MongoStore) -> None:
    large = record(1, version=1, body={"said": "y" * (8 * 2**20 - 2_000)})
    await apply_all(store, put(large, Absent()))
    await apply_all(store, put(record(1, version=2, body=large.body), AtVersion(1)))
    assert (await fetch_record(store)).body == large.body


# -- several ---------------------------------------------------------------------------


def _several(*generations: int | None) -> list[Put]:
    return [
        put(record(n, version=90, generation=generation), Newer())
        for n, generation in enumerate(generations, 1)
    ]


@pytest.mark.parametrize("standing", [(), (1, 2)], ids=["nothing there", "records there"])
async def test_writes_that_arrive_after_an_erasure_leave_nothing_of_the_erased_generation(
    store: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch, standing: Sequence[int]
) -> None:
    await apply_all(store, *[put(record(n)) for n in standing])
    held = Held(monkeypatch, directory_of(store), "generations", after=True)
    late = asyncio.ensure_future(store.apply(_several(0, None)))
    await held.reached.wait()
    await erased(other)
    held.let_go.set()
    old, fresh = await late
    assert (old.status, old.reason) == (Status.REJECTED, "generation")
    assert (fresh.status, fresh.generation) == (Status.APPLIED, 1)
    assert not isinstance(await fetch_stored(other, 1), Record)
    assert (await fetch_record(other, 2)).generation == 1


async def test_what_was_taken_back_lets_stand_what_stood_before(
    store: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generation may be raised by who erases nothing."""
    await apply_all(store, put(record(1)), put(record(2)))
    stood = await store.get(SAMPLES, [key_of(1), key_of(2)])
    held = Held(monkeypatch, directory_of(store), "generations_now")
    late = asyncio.ensure_future(
        store.apply(
            [
                *_several(0, 0, 0),
                put(record(1, version=91, generation=0), Newer()),
                Annotate(SAMPLES, key_of(3), 90, tier="mid"),
            ]
        )
    )
    await held.reached.wait()
    assert (await fetch_record(other, 2)).version == 90
    await apply_all(other, RaiseGeneration(HERE))
    held.let_go.set()
    outcomes = await late
    assert [o.reason for o in outcomes[:4]] == ["generation"] * 4
    assert outcomes[4].status is Status.CONFLICT, "the record it is about is not there any more"
    assert await other.get(SAMPLES, [key_of(1), key_of(2), key_of(3)]) == [*stood, None]


async def test_what_an_erasure_has_taken_was_applied_before_it(
    store: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, directory_of(store), "generations_now")
    late = asyncio.ensure_future(store.apply(_several(0, None)))
    await held.reached.wait()
    await apply_all(other, RaiseGeneration(HERE))
    assert await other.delete_matching(Query(SAMPLES, within(HERE)), 99) == 2
    held.let_go.set()
    assert [(o.status, o.generation) for o in await late] == [(Status.APPLIED, 0)] * 2
    assert isinstance(await fetch_stored(other, 1), Tombstone)


async def test_a_call_that_raises_the_generation_itself_takes_nothing_back(store: MongoStore) -> None:
    await apply_all(store, *_several(0, 0), RaiseGeneration(HERE))
    assert [(await fetch_record(store, n)).generation for n in (1, 2)] == [0, 0]


async def test_an_edit_of_what_is_purged_meanwhile_makes_nothing_new(
    store: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply_all(store, delete(1, version=5), delete(2, version=5))
    held = Held(monkeypatch, WriteBatch, "store")
    late = asyncio.ensure_future(store.apply([put(record(n, version=6), AtVersion(5)) for n in (1, 2)]))
    await held.reached.wait()
    await apply_all(other, Purge(SAMPLES, key_of(1), 5))
    held.let_go.set()
    assert [o.status for o in await late] == [Status.CONFLICT, Status.APPLIED]
    assert await fetch_stored(other, 1) is None


# -- many at once, processes that die --------------------------------------------------


async def test_of_many_writers_beside_many_raises_nothing_stands_that_was_erased(
    store: MongoStore, other: MongoStore
) -> None:
    """One put a call and several, fresh ones and copies of what was read."""
    stop = asyncio.Event()
    generation = 0

    async def write(worker: int) -> None:
        n = 1000 * worker
        while not stop.is_set():
            carried = generation if n % 2 else None
            writes = [
                put(record(n + i, version=2, generation=carried), Newer()) for i in range(1 if n % 3 else 3)
            ]
            await store.apply(writes)
            n += 5

    writers = [asyncio.ensure_future(write(worker)) for worker in range(6)]
    for raised in range(1, 13):
        await apply_all(other, RaiseGeneration(HERE, raised))
        await other.delete_matching(Query(SAMPLES, within(HERE)), 10**6)
        generation = raised
    stop.set()
    await asyncio.gather(*writers)
    page = await other.query(Query(SAMPLES, within(HERE)))
    assert {r.generation for r in page.records if isinstance(r, Record)} <= {12}


KILLED = """
import asyncio, os, signal, sys
from memory.adapters.mongo.partitions import Directory
from memory.adapters.mongo.store import MongoStore
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import put, record

look = Directory.generations

async def slowly(self, partitions):
    known = await look(self, partitions)
    print("looked", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return known

async def dies(self, before):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    store = MongoStore(sys.argv[1])
    await store.open(DECLARED)
    Directory.generations, Directory.generations_now = slowly, dies
    await store.apply([put(record(n, generation=0, texts={"content": "cormorant"})) for n in (1, 2)])

asyncio.run(main())
"""


async def test_what_a_process_brought_that_was_killed_before_it_looked_again_is_taken_by_one_repeat(
    store: MongoStore, server: Mongo, database: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        KILLED,
        server.url(database),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"looked\n"
    await erased(store)
    process.stdin.write(b"go on\n")
    assert await process.wait() == -signal.SIGKILL
    assert len(await query_ids(store)) == 2, "it stands, or this proves nothing"
    older = Query(SAMPLES, within(HERE), Lt("generation", 1), roles=frozenset(Role))
    assert await store.delete_matching(older, 99) == 2
    assert await query_ids(store) == []
    assert await hit_ids(store, "cormorant") == set()
    assert await store.delete_matching(older, 99) == 0


# -- forgotten meanwhile ---------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
async def test_whoever_writes_where_a_partition_is_about_to_be_forgotten_keeps_it(
    store: MongoStore, raw: Raw, count: int
) -> None:
    await erased(store)
    raw["memory_store.partitions"].update_one({}, {"$set": {LEAVING: "of one who forgets"}})
    outcomes = await apply_all(store, *[put(record(n), Absent()) for n in range(count)])
    assert {o.generation for o in outcomes} == {1}
    left = raw["memory_store.partitions"].find_one({})
    assert left is not None
    assert (left["generation"], LEAVING in left) == (1, False)


async def test_a_partition_forgotten_while_a_batch_is_under_way_gets_back_what_it_had(
    store: MongoStore, other: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await erased(store)
    held = Held(monkeypatch, directory_of(store), "generations", after=True)
    late = asyncio.ensure_future(store.apply(_several(None, None)))
    await held.reached.wait()
    assert await other.forget_partitions([(HERE, 1)]) == 1
    held.let_go.set()
    assert {o.generation for o in await late} == {1}
    assert (await one(other, RaiseGeneration(HERE))).number == 2
