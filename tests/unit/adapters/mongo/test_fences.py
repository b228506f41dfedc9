"""A write that is under way when a generation is raised: kept out, or found by whoever deletes afterwards. Never neither."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
from pymongo.errors import AutoReconnect

from memory.adapters.mongo import passes, writing
from memory.adapters.mongo.partitions import Announced, Announcement, Permit, Registry
from memory.adapters.mongo.schema import FENCE_SECONDS
from memory.adapters.mongo.shelf import Shelf
from memory.adapters.mongo.store import MongoStore
from memory.adapters.mongo.values import Document
from memory.domain.errors import StoreError
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, asked, delete, done, found, id_of, key_of, live, one, put, record
from memory.ports.query import MAX_LIMIT, Query, within
from memory.ports.record import Record
from memory.ports.store import Store
from memory.ports.writes import Absent, Always, AtVersion, Newer, Outcome, Put, RaiseGeneration, Status, When, Write
from tests.support.mongo_servers import Mongo
from tests.unit.adapters.mongo.conftest import BOTH, Raw

pytestmark = pytest.mark.parametrize("server", BOTH, indirect=True)


class Held:
    """Holds a store's next call back between its announcement and its write."""

    def __init__(self, store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.announced, self._go = asyncio.Event(), asyncio.Event()
        registry: Registry = store._desk.registry  # type: ignore[union-attr]
        announce, blindly = registry.announce, writing._blindly

        async def held_batch(what: Announced) -> Announcement:
            made = await announce(what)
            await self._wait()
            return made

        async def held_put(shelf: Shelf, write: Put, document: Document, permit: Permit) -> bool:
            if shelf in store._shelves.values():
                await self._wait()
            return await blindly(shelf, write, document, permit)

        monkeypatch.setattr(registry, "announce", held_batch)
        monkeypatch.setattr(writing, "_blindly", held_put)

    async def _wait(self) -> None:
        if not self.announced.is_set():
            self.announced.set()
            await self._go.wait()

    def let_go(self) -> None:
        self._go.set()


async def _erased(store: Store) -> None:
    """As an erasure does it."""
    await done(store, RaiseGeneration(HERE))
    await store.delete_matching(Query(SAMPLES, within(HERE)), 50)


WAYS = ["by keys", "by a new pass", "by a pass at hand"]
"""How one put is announced. By its key where collections may be sharded; batches always by their keys."""


async def _prepared(store: MongoStore, announcing: str) -> None:
    registry: Registry = store._desk.registry  # type: ignore[union-attr]
    if announcing == "by keys":
        registry._passes = None
    elif announcing == "by a pass at hand":
        while (permit := registry.ready(HERE, "memory_samples")) is None:
            await done(store, put(record(900, version=1), Always()))
        permit.used.block.given -= 1  # type: ignore[union-attr]


WRITES: dict[str, tuple[list[Write], list[Put]]] = {
    "absent": ([], [put(record(1, version=90, generation=0), Absent())]),
    "newer, nothing there": ([], [put(record(1, version=90, generation=0), Newer())]),
    "always, nothing there": ([], [put(record(1, version=90, generation=0), Always())]),
    "newer": ([put(record(1))], [put(record(1, version=90, generation=0), Newer())]),
    "always": ([put(record(1))], [put(record(1, version=90, generation=0), Always())]),
    "at a version": ([put(record(1))], [put(record(1, version=90, generation=0), AtVersion(1))]),
    "at the tombstone's version": ([put(record(1))], [put(record(1, version=90, generation=0), AtVersion(50))]),
    "a batch": ([put(record(1))], [put(record(n, version=90, generation=0), Newer()) for n in (1, 2, 3)]),
    "a batch of new ones": ([], [put(record(n, version=90, generation=0), Absent()) for n in (1, 2, 3)]),
}


@pytest.mark.parametrize(
    ("case", "announcing"), [(case, way) for case, (_, writes) in WRITES.items() for way in (WAYS if len(writes) == 1 else WAYS[:1])]
)
async def test_a_write_held_back_over_an_erasure_leaves_nothing_of_the_erased_generation(
    store: MongoStore, build: Callable[[], MongoStore], monkeypatch: pytest.MonkeyPatch, announcing: str, case: str
) -> None:
    before, writes = WRITES[case]
    other = build()
    await other.open(DECLARED)
    try:
        await done(store, *before)
        await _prepared(store, announcing)
        held = Held(store, monkeypatch)
        late = asyncio.ensure_future(store.apply(writes))
        await held.announced.wait()
        await _erased(other)
        held.let_go()
        assert [(o.status, o.reason) for o in await late] == [(Status.REJECTED, "generation")] * len(writes)
        assert not [s for s in await other.get(SAMPLES, [w.key for w in writes]) if isinstance(s, Record)]
        assert await asked(other) == []
    finally:
        await other.close()


@pytest.mark.parametrize("announcing", WAYS)
@pytest.mark.parametrize("when", [Absent(), Newer(), Always()], ids=str)
async def test_a_fresh_record_held_back_over_an_erasure_is_born_after_it(
    store: MongoStore, build: Callable[[], MongoStore], monkeypatch: pytest.MonkeyPatch, announcing: str, when: When
) -> None:
    other = build()
    await other.open(DECLARED)
    try:
        await _prepared(store, announcing)
        held = Held(store, monkeypatch)
        late = asyncio.ensure_future(one(store, put(record(1, version=90), when)))
        await held.announced.wait()
        await _erased(other)
        held.let_go()
        outcome = await late
        assert (outcome.status, outcome.generation) == (Status.APPLIED, 1)
        assert (await live(other, 1)).generation == 1
    finally:
        await other.close()


@pytest.mark.parametrize("announcing", WAYS)
async def test_a_write_held_back_over_the_servers_death_and_an_erasure_leaves_nothing(
    server: Mongo, store: MongoStore, build: Callable[..., MongoStore], monkeypatch: pytest.MonkeyPatch, announcing: str
) -> None:
    """An announcement outlives the server that took it."""
    await _prepared(store, announcing)
    held = Held(store, monkeypatch)
    late = asyncio.ensure_future(one(store, put(record(1, version=90, generation=0), Absent())))
    await held.announced.wait()
    server.kill()
    server.revive()
    other = build()
    await other.open(DECLARED)
    try:
        await _erased(other)
        held.let_go()
        [answer] = await asyncio.gather(late, return_exceptions=True)  # the connection died with the server
        assert isinstance(answer, StoreError) or (isinstance(answer, Outcome) and answer.reason == "generation")
        assert await found(other, 1) is None
    finally:
        await other.close()


async def test_passes_at_hand_are_of_no_use_after_an_erasure(store: MongoStore, build: Callable[[], MongoStore]) -> None:
    other = build()
    await other.open(DECLARED)
    try:
        await _prepared(store, "by a pass at hand")
        await _erased(other)
        assert (await one(store, put(record(1, version=90, generation=0), Newer()))).reason == "generation"
        assert (await one(store, put(record(2, version=90), Absent()))).generation == 1
        await _erased(store)
        assert (await one(store, put(record(3, version=90), Absent()))).generation == 2
        assert await asked(other) == [key_of(3).id]
    finally:
        await other.close()


def _ahead(clock: Callable[[], float]) -> float:
    return clock() + passes.GOOD_FOR + 1


async def test_a_pass_is_used_for_a_time_much_shorter_than_a_fence_stands(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await _prepared(store, "by a pass at hand")
    registry: Registry = store._desk.registry  # type: ignore[union-attr]
    for clock in ("monotonic", "time"):
        with monkeypatch.context() as patch:
            at = getattr(time, clock)
            clocks = {"monotonic": time.monotonic, "time": time.time, clock: partial(_ahead, at)}
            patch.setattr(passes, "time", SimpleNamespace(**clocks))
            assert registry.ready(HERE, "memory_samples") is None
    assert registry.ready(HERE, "memory_samples") is not None
    assert passes.GOOD_FOR * 60 < FENCE_SECONDS


async def test_puts_one_after_the_other_are_announced_together(store: MongoStore, raw: Raw) -> None:
    raw.command({"profile": 2})
    try:
        for n in range(40):
            await done(store, put(record(n)))
    finally:
        raw.command({"profile": 0})
    assert raw["system.profile"].count_documents({"ns": {"$regex": "store.partitions"}}) == 6  # of 1, 2, 4, 8, 16 and 16
    assert raw["memory_samples"].count_documents({"pass": {"$exists": True}}) == 40


async def test_a_write_of_unknown_end_keeps_its_announcement(store: MongoStore, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(*_: object) -> bool:
        raise AutoReconnect("lost")

    with monkeypatch.context() as patch:
        patch.setattr(writing, "_blindly", lost)
        with pytest.raises(StoreError):
            await store.apply([put(record(1))])
    document = raw["memory_store.partitions"].find_one({})
    assert document is not None
    [unknown] = document["writers"]
    for n in range(50):
        await done(store, put(record(n)))
    document = raw["memory_store.partitions"].find_one({})
    assert document is not None
    assert unknown in document["writers"]
    assert len(document["writers"]) <= 3


async def test_a_fence_survives_what_is_written_in_its_place_later(
    store: MongoStore, build: Callable[[], MongoStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The erased record's tombstone is replaced, by others and by itself, before the late write comes."""
    other = build()
    await other.open(DECLARED)
    try:
        await done(store, put(record(1)))
        held = Held(store, monkeypatch)
        late = asyncio.ensure_future(one(store, put(record(1, version=90, generation=0, body={"said": "before"}), Always())))
        await held.announced.wait()
        await _erased(other)
        await done(other, put(record(1, version=60, body={"said": "after"}), Newer()), delete(1, version=61))
        held.let_go()
        assert (await late).reason == "generation"
        assert not isinstance(await found(other, 1), Record)
    finally:
        await other.close()


async def test_without_its_fence_a_late_write_would_stay(store: MongoStore, build: Callable[[], MongoStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests above prove nothing."""
    other = build()
    await other.open(DECLARED)
    try:
        registry: Registry = other._desk.registry  # type: ignore[union-attr]

        async def no_fence(partition: object) -> None: ...

        monkeypatch.setattr(registry, "fence", no_fence)
        held = Held(store, monkeypatch)
        late = asyncio.ensure_future(one(store, put(record(1, version=90, generation=0), Absent())))
        await held.announced.wait()
        await _erased(other)
        held.let_go()
        assert (await late).applied
        assert (await live(other, 1)).generation == 0
    finally:
        await other.close()


async def test_under_many_writers_an_erasure_leaves_no_record_of_before(store: MongoStore, build: Callable[[], MongoStore]) -> None:
    other = build()
    await other.open(DECLARED)
    try:
        stop = asyncio.Event()

        async def write(worker: int) -> None:
            n = 1000 * worker
            while not stop.is_set():
                await store.apply([put(record(n, version=2, generation=generation), Newer())] if n % 3 else [put(record(n + i)) for i in (1, 2, 4)])
                n += 5

        generation = 0
        writers = [asyncio.ensure_future(write(worker)) for worker in range(6)]
        for generation in range(1, 9):
            await done(other, RaiseGeneration(HERE, generation))
            await other.delete_matching(Query(SAMPLES, within(HERE)), 10**6)
            page = await other.query(Query(SAMPLES, within(HERE), limit=MAX_LIMIT))
            assert {r.generation for r in page.records if isinstance(r, Record)} <= {generation}
        stop.set()
        await asyncio.gather(*writers)
    finally:
        await other.close()


async def test_announcements_are_taken_back(store: MongoStore, raw: Raw) -> None:
    for n in range(5):
        await done(store, put(record(n)))
    await done(store, *[put(record(n, version=2)) for n in range(40)])
    document = raw["memory_store.partitions"].find_one({"_id": {"tenant": HERE.tenant, "scope": HERE.scope}})
    assert document is not None
    assert len(document.get("writers", {})) <= 1, "at most the last one is taken back with the next"


async def test_a_fence_where_nothing_stands_reads_as_nothing_and_gives_way_to_a_new_record(store: MongoStore, raw: Raw) -> None:
    token = {"writers": {"dead": [["memory_samples", id_of(1)]]}, "generation": 0}
    raw["memory_store.partitions"].insert_one({"_id": {"tenant": HERE.tenant, "scope": HERE.scope}, **token})
    await done(store, RaiseGeneration(HERE))

    fence = raw["memory_samples"].find_one({"_id": {"tenant": HERE.tenant, "id": id_of(1)}})
    assert fence is not None
    assert (fence["kind"], fence["fenced"]) == ("fence", ["dead"])
    assert (await found(store), await asked(store)) == (None, [])
    assert (await one(store, put(record(1), AtVersion(1)))).status is Status.CONFLICT
    await done(store, put(record(1), Absent()))
    assert await asked(store) == [key_of(1).id]
