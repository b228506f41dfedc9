"""Partitions that nothing is left of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pymongo import AsyncMongoClient, monitoring

from memory.adapters.mongo import connection
from memory.adapters.mongo.store import MongoStore
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import HERE, apply_all, one, put, record
from memory.ports.query import Query, within
from memory.ports.writes import RaiseGeneration
from tests.unit.adapters import forgetting
from tests.unit.adapters.mongo.conftest import BOTH, Raw

pytestmark = pytest.mark.parametrize("server", BOTH, indirect=True)


async def test_dead_scopes_leave_no_document_behind(store: MongoStore, raw: Raw) -> None:
    async def counted() -> object:
        return {
            name: count
            for name in sorted(raw.list_collection_names())
            if (count := raw[name].count_documents({}))
        }

    await forgetting.dead_scopes_leave_nothing_behind(store, counted)


async def test_a_writer_who_begins_in_a_partition_that_is_just_forgotten_loses_nothing(
    store: MongoStore, build: Callable[[], MongoStore]
) -> None:
    other = build()
    await other.open(DECLARED)
    try:
        await forgetting.a_writer_who_begins_meanwhile_loses_nothing(store, other)
    finally:
        await other.close()


class LandsLate(monitoring.CommandListener):
    """Does something once a command has succeeded, as others may: stores what the
    server had looked at before a partition's document was deleted.
    """

    def __init__(self) -> None:
        self.late: Callable[[], object] | None = None
        self.behind = "delete"

    def client(self, uri: str, **settings: Any) -> AsyncMongoClient[dict[str, Any]]:
        return AsyncMongoClient(uri, **settings | {"event_listeners": [*settings["event_listeners"], self]})

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        pass

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        late = self.late
        if event.command_name == self.behind and late is not None:
            self.late = None
            late()

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> LandsLate:
    """Of every client that is connected from now on: a test names it before its stores."""
    made = LandsLate()
    monkeypatch.setattr(connection, "AsyncMongoClient", made.client)
    return made


async def _taken_out(store: MongoStore, raw: Raw) -> Callable[[], object]:
    """Puts a record of generation 2 and takes its document out again: who puts that
    back.
    """
    await apply_all(store, RaiseGeneration(HERE), RaiseGeneration(HERE), put(record(1)))
    ((name, document),) = [
        (name, found)
        for name in raw.list_collection_names()
        if (found := raw[name].find_one({"role": "home"})) is not None
    ]
    raw[name].delete_one({"_id": document["_id"]})
    return lambda: raw[name].insert_one(document)


async def test_a_put_that_lands_when_its_partition_is_just_forgotten_keeps_its_generation(
    listener: LandsLate, store: MongoStore, other: MongoStore, raw: Raw
) -> None:
    listener.late = await _taken_out(store, raw)
    assert await other.forget_partitions([(HERE, 2)]) == 0
    assert listener.late is None
    assert [r.generation for r in (await store.query(Query(SAMPLES, within(HERE)))).records] == [2]
    assert (await one(store, RaiseGeneration(HERE))).number == 3


async def test_who_begins_anew_in_a_partition_that_is_just_forgotten_begins_at_zero(
    listener: LandsLate, store: MongoStore, other: MongoStore, raw: Raw
) -> None:
    await _taken_out(store, raw)
    table = next(name for name in raw.list_collection_names() if name.endswith(SAMPLES.name))
    listener.late = lambda: raw[table].insert_one(
        {"_id": "begun", "tenant": HERE.tenant, "scope": HERE.scope, "type": "record", "generation": 0}
    )
    assert await other.forget_partitions([(HERE, 2)]) == 1
    assert (await one(store, RaiseGeneration(HERE, 0))).number == 0


async def test_a_partition_whose_mark_a_writer_takes_away_is_not_forgotten(
    listener: LandsLate, store: MongoStore, other: MongoStore, raw: Raw
) -> None:
    """Between the look and the deletion; and that is no number below zero."""
    lands = await _taken_out(store, raw)
    partitions = raw[other._names.partitions]

    def begins() -> None:
        partitions.update_many({}, {"$unset": {"leaving": ""}})
        lands()

    listener.late, listener.behind = begins, "aggregate"
    assert await other.forget_partitions([(HERE, 2)]) == 0
    assert listener.late is None
    assert (await one(store, RaiseGeneration(HERE, 0))).number == 2
