"""How often an entry that supersedes others goes to a server on which everything is: it
reads once, and writes one batch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from memory.domain.entry import EntryDraft
from memory.domain.scope import Scope
from memory.orchestrator.engine import Engine
from memory.orchestrator.enrichment.superseding import SupersedeRequest
from memory.orchestrator.storage.topology import Topology
from tests.support.backends import marks_of
from tests.support.counting import Counting
from tests.support.drivers import DRIVERS, Driver

ROUNDS = 3
ALLOWED = {"redis": 2, "postgresql": 5, "mariadb": 18, "mongo_replica_set": 11}
TENANT, ADA = "acme", Scope.user("ada")


@pytest.fixture(params=[pytest.param(d, id=d.backend, marks=marks_of(d.backend)) for d in DRIVERS])
async def counted(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Counting, Engine]]:
    driver: Driver = request.param
    if driver.before is not None:
        await driver.before()
    async with Counting(driver.port()) as way:
        store = driver.store(way.port)
        engine = Engine(Topology(short=store, mid=store, long=store))
        await engine.open()
        yield driver.backend, way, engine
        await engine.close()


async def test_a_write_that_supersedes_is_one_read_and_one_batch(
    counted: tuple[str, Counting, Engine],
) -> None:
    backend, way, engine = counted
    taken: list[int] = []
    for round_ in range(ROUNDS):
        old = [
            await engine.entries.write(TENANT, EntryDraft(scope=ADA, content=f"Ada lives in {round_}, {n}"))
            for n in range(3)
        ]
        before = way.trips
        await engine.supersede_writer.write(
            TENANT,
            EntryDraft(scope=ADA, content=f"Ada lives in {round_}"),
            SupersedeRequest([one.id for one in old]),
        )
        taken.append(way.trips - before)
    assert taken[-1] <= ALLOWED[backend], taken
