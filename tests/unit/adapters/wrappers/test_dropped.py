"""Retries over each driver's real connections, lost at every point of a write: it comes
to what it would have, once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from memory.adapters.wrappers.retry import Retry
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import HERE, apply_all, delete, fetch_record, fetch_stored, put, record
from memory.ports.query import Query, within
from memory.ports.record import Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion
from tests.support.backends import marks_of
from tests.support.drivers import DRIVERS, Driver
from tests.support.dropping import Dropping

ROUNDS = 8
"""More than the pieces of answers that any driver's write takes."""


@dataclass
class Shaky:
    """A store whose connections are lost on demand, bare and with retries around it."""

    way: Dropping
    bare: Store
    store: Retry


@pytest.fixture(params=[pytest.param(d, id=d.backend, marks=marks_of(d.backend)) for d in DRIVERS])
async def shaky(request: pytest.FixtureRequest) -> AsyncIterator[Shaky]:
    driver: Driver = request.param
    if driver.before is not None:
        await driver.before()
    async with Dropping(driver.port()) as way:
        bare = driver.store(way.port)
        await bare.open(DECLARED)
        await apply_all(
            bare, put(record(900), Absent()), put(record(901), Absent(), MORE_SAMPLES)
        )  # statements are prepared
        yield Shaky(way, bare, Retry(bare, attempts=4, backoff=0.01))
        way.hold_on()
        await bare.close()


async def test_connections_that_died_while_nobody_looked_are_no_matter(shaky: Shaky) -> None:
    await apply_all(shaky.store, put(record(1), Absent()))
    for _ in range(3):
        shaky.way.drop()
        assert (await fetch_record(shaky.store)).version == 1


async def test_a_write_whose_connection_is_lost_at_any_point_is_applied_once(shaky: Shaky) -> None:
    for n in range(ROUNDS):
        shaky.way.drop_answer(n)
        (outcome,) = await shaky.store.apply([put(record(n), Absent())])
        assert outcome.applied, n
        shaky.way.drop_answer(n)
        (outcome,) = await shaky.store.apply([put(record(n, version=2), AtVersion(1))])
        assert outcome.applied, n
        shaky.way.hold_on()
        assert (await fetch_record(shaky.bare, n)).version == 2
    assert shaky.way.dropped >= 2
    assert (await shaky.bare.count(Query(SAMPLES, within(HERE)))).records == ROUNDS + 1


async def test_a_creation_and_a_deletion_are_known(shaky: Shaky) -> None:
    for n in range(ROUNDS):
        shaky.way.drop_answer(n)
        (outcome,) = await shaky.store.apply([put(record(n), Absent(), MORE_SAMPLES)])
        assert outcome.applied, n
    for n in range(ROUNDS):
        shaky.way.drop_answer(n)
        (outcome,) = await shaky.store.apply([delete(n, 9, collection=MORE_SAMPLES)])
        assert outcome.applied, n
        shaky.way.hold_on()
        assert isinstance(await fetch_stored(shaky.bare, n, collection=MORE_SAMPLES), Tombstone)
    assert shaky.way.dropped >= 2


async def test_a_batch_is_known_item_by_item(shaky: Shaky) -> None:
    for n in range(ROUNDS):
        shaky.way.drop_answer(n)
        outcomes = await shaky.store.apply([put(record(10 * n + i), Absent()) for i in range(5)])
        assert all(o.applied for o in outcomes), n
    shaky.way.hold_on()
    assert shaky.way.dropped >= 1
