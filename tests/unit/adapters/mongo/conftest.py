"""Stores on MongoDB, each in a database of its own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from pymongo.database import Database

from memory.adapters.mongo.partitions import Directory
from memory.adapters.mongo.store import MongoStore
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, apply_all
from memory.ports.query import Query, within
from memory.ports.store import Store
from memory.ports.writes import RaiseGeneration
from tests.support import mongo_servers
from tests.support.backends import BACKENDS
from tests.support.mongo_servers import Mongo

Raw = Database[dict[str, Any]]
_databases = itertools.count()


def backend(name: str) -> list[pytest.MarkDecorator]:
    """The marks of a test on that backend."""
    reason = BACKENDS[name].missing()
    return [
        pytest.mark.backend(name),
        pytest.mark.server,
        pytest.mark.skipif(reason is not None, reason=str(reason)),
    ]


ALONE = backend("mongo")
REPLICA_SET = backend("mongo_replica_set")
BOTH = [pytest.param(name, marks=backend(name), id=name) for name in ("mongo", "mongo_replica_set")]
EITHER = [
    BOTH[0],
    pytest.param("mongo_replica_set", marks=[*REPLICA_SET, pytest.mark.nightly], id="mongo_replica_set"),
]
"""For what is the same on both: CI asks the server that the contract asks little."""


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Mongo:
    """The server on its own; with the parameter `mongo_replica_set` the replica set."""
    return (
        mongo_servers.replica_set()
        if getattr(request, "param", "") == "mongo_replica_set"
        else mongo_servers.alone()
    )


@pytest.fixture
def database() -> str:
    return f"unit_{next(_databases)}"


@pytest.fixture
def raw(server: Mongo, database: str) -> Iterator[Raw]:
    """The database as any other program sees it."""
    with server.connected() as client:
        yield client[database]
        client.drop_database(database)


@pytest.fixture
def build(server: Mongo, database: str) -> Callable[..., MongoStore]:
    """Unopened stores on the test's database. Where many call at once, the last waits
    long on a busy machine.
    """
    return lambda **options: MongoStore(server.url(database), **{"timeout": 120, **options})


@pytest_asyncio.fixture
async def store(build: Callable[..., MongoStore], raw: Raw) -> AsyncIterator[MongoStore]:
    made = build()
    await made.open(DECLARED)
    try:
        yield made
    finally:
        await made.close()


@pytest_asyncio.fixture
async def other(store: MongoStore, build: Callable[[], MongoStore]) -> AsyncIterator[MongoStore]:
    """Another client of the same database."""
    made = build()
    await made.open(DECLARED)
    try:
        yield made
    finally:
        await made.close()


class Held:
    """Holds the first call of `name` back: before it begins, or `after` it ended."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool = False
    ) -> None:
        self.reached, self.let_go = asyncio.Event(), asyncio.Event()
        held = getattr(owner, name)

        async def waits(*args: Any, **named: Any) -> Any:
            answer = await held(*args, **named) if after else None
            if not self.reached.is_set():
                self.reached.set()
                await self.let_go.wait()
            return answer if after else await held(*args, **named)

        monkeypatch.setattr(owner, name, waits)


def directory_of(store: MongoStore) -> Directory:
    return store.ready().directory


async def erased(store: Store) -> None:
    """As an erasure does it."""
    await apply_all(store, RaiseGeneration(HERE))
    await store.delete_matching(Query(SAMPLES, within(HERE)), 50)
