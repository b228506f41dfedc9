"""Servers that are not as they should be: without a journal, or refusing the password."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from memory.adapters.mongo.store import MongoStore
from memory.domain.errors import ConfigError
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import apply_all, fetch_record, put, record
from tests.support import mongo_servers
from tests.support.mongo_servers import Mongo
from tests.unit.adapters.mongo.conftest import ALONE

pytestmark = ALONE


@pytest.fixture
def careless() -> Iterator[Mongo]:
    server = Mongo("--nojournal")
    yield server
    server.stop()


async def test_a_server_without_a_journal_is_used_but_not_called_durable(
    careless: Mongo, caplog: pytest.LogCaptureFixture
) -> None:
    store = MongoStore(careless.url())
    with caplog.at_level(logging.WARNING):
        await store.open(DECLARED)
    try:
        assert not store.capabilities.durable
        assert "journal" in caplog.text
        await apply_all(store, *[put(record(n)) for n in range(3)])
        assert (await fetch_record(store, 1)).version == 1
        health = await store.check()
        assert "journal" in health.detail
        assert health.epoch == store.epoch != ""
    finally:
        await store.close()


@pytest.mark.parametrize("user", ["root:wrong", "nobody:x"])
async def test_a_wrong_password_is_a_config_error_that_shows_nothing(user: str) -> None:
    store = MongoStore(f"mongodb://{user}-s3cret@127.0.0.1:{mongo_servers.alone().port}/x?authSource=admin")
    with pytest.raises(ConfigError, match="user or the password") as caught:
        await store.open(DECLARED)
    assert "s3cret" not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
