"""A replica set of three whose primary dies: what was acknowledged is there, numbers
are given once, and an erasure holds.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any

import pytest

from memory.adapters.mongo.store import MongoStore
from memory.domain.errors import StoreUnavailable
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, key_of, one, put, record
from memory.ports.query import MAX_LIMIT, Lt, Query, within
from memory.ports.record import Record
from memory.ports.writes import Absent, RaiseGeneration
from tests.support.backends import marks_of
from tests.support.mongo_servers import Mongo

pytestmark = marks_of("mongo_replica_set")

NAME = "rs3"
QUICK = {"electionTimeoutMillis": 1_000, "heartbeatIntervalMillis": 200}


class Member(Mongo):
    """One of three, which find each other on the loopback interface."""

    def __init__(self) -> None:
        super().__init__("--replSet", NAME, host_network=True)

    def _works(self, port: int) -> None:
        with self._connected(port, 1_000) as client:
            client.admin.command("ping")


@pytest.fixture(scope="module")
def members() -> Iterator[list[Member]]:
    with ExitStack() as stack:
        three = [Member() for _ in range(3)]
        for member in three:
            stack.callback(member.stop)
        told = [{"_id": n, "host": f"127.0.0.1:{member.port}"} for n, member in enumerate(three)]
        with three[0].connected() as client:
            client.admin.command("replSetInitiate", {"_id": NAME, "members": told, "settings": QUICK})
        three[0].wait_for(lambda _: primary(three))
        yield three


def primary(members: list[Member]) -> Member:
    """The member that takes writes, known to a majority; raises where there is none."""
    for member in members:
        try:
            with member.connected(500) as client:
                told = client.admin.command("replSetGetStatus")
        except Exception:  # noqa: BLE001, S112 - it is the dead one
            continue
        if told["myState"] == 1 and sum(m["state"] in (1, 2) for m in told["members"]) >= 2:
            return member
    raise LookupError("there is no primary")


@asynccontextmanager
async def opened(members: list[Member]) -> AsyncIterator[MongoStore]:
    places = ",".join(f"127.0.0.1:{member.port}" for member in members)
    store = MongoStore(f"mongodb://{places}/failover?replicaSet={NAME}", timeout=10)
    await store.open(DECLARED)
    try:
        yield store
    finally:
        await store.close()


class Writers:
    """They write new records of their own all the time, and remember what was
    acknowledged.
    """

    def __init__(self, store: MongoStore, first: int) -> None:
        self._store = store
        self._next = itertools.count(first)
        self.acknowledged: set[int] = set()
        self.unknown = 0
        self._stop, self._grown = asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> Writers:
        self._tasks = [asyncio.ensure_future(work()) for work in (self._put, self._put, self._batch)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def more(self) -> None:
        """Until more has been acknowledged than now."""
        enough = len(self.acknowledged) + 20
        async with asyncio.timeout(60):
            while len(self.acknowledged) < enough:
                self._grown.clear()
                await self._grown.wait()

    async def _put(self) -> None:
        await self._until_stopped(1, lambda these: [put(record(these[0], body={"n": these[0]}), Absent())])

    async def _batch(self) -> None:
        await self._until_stopped(5, lambda these: [put(record(n, body={"n": n}), Absent()) for n in these])

    async def _until_stopped(self, at_once: int, writes: Any) -> None:
        while not self._stop.is_set():
            these = [next(self._next) for _ in range(at_once)]
            try:
                outcomes = await self._store.apply(writes(these))
            except StoreUnavailable:
                self.unknown += 1
                continue
            assert all(o.applied for o in outcomes)
            self.acknowledged |= set(these)
            self._grown.set()


async def leader(members: list[Member]) -> Member:
    """The primary, waited for: on a busy machine there is none for a moment."""
    found = list[Member]()
    await asyncio.to_thread(members[0].wait_for, lambda _: found.append(primary(members)))
    return found[-1]


async def died(members: list[Member], writers: Writers) -> Member:
    """The primary dies, and another one takes over."""
    dead = await leader(members)
    await asyncio.to_thread(dead.kill)
    await writers.more()
    return dead


async def test_nothing_acknowledged_is_lost_when_primaries_die(members: list[Member]) -> None:
    async with opened(members) as store:
        async with Writers(store, 0) as writers:
            await writers.more()
            for _ in range(2):
                dead = await died(members, writers)
                await asyncio.to_thread(dead.revive)
                await asyncio.to_thread(dead.wait_for, lambda _: primary(members))
                await writers.more()
        keys = [key_of(n) for n in sorted(writers.acknowledged)]
        found = await store.get(SAMPLES, keys)
    assert [dict(r.body)["n"] if isinstance(r, Record) else r for r in found] == sorted(writers.acknowledged)


async def test_an_erasure_and_its_repeat_hold_whatever_was_under_way_when_the_primary_died(
    members: list[Member],
) -> None:
    async with AsyncExitStack() as stack:
        store, eraser = [await stack.enter_async_context(opened(members)) for _ in range(2)]
        async with Writers(store, 100_000) as writers:
            await writers.more()
            dead = await leader(members)
            await asyncio.to_thread(dead.kill)
            raised: int | None = None
            while raised is None:
                try:
                    raised = (await one(eraser, RaiseGeneration(HERE))).number
                    await eraser.delete_matching(Query(SAMPLES, within(HERE)), 2**62)
                except StoreUnavailable:
                    raised = None
            await writers.more()
        await eraser.delete_matching(
            Query(SAMPLES, within(HERE), Lt("generation", raised)), 2**62
        )  # who lost the server may not have looked again
        left = (await eraser.query(Query(SAMPLES, within(HERE), limit=MAX_LIMIT))).records
        assert all(isinstance(r, Record) and (r.generation or 0) >= raised for r in left)
        assert left, "it was written after the erasure"
        await asyncio.to_thread(dead.revive)
