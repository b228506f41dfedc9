"""Partitions that nothing is left of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memory.adapters.mongo.store import MongoStore
from memory.ports.contract.collections import DECLARED
from tests.unit.adapters import forgetting
from tests.unit.adapters.mongo.conftest import BOTH, Raw

pytestmark = pytest.mark.parametrize("server", BOTH, indirect=True)


async def test_dead_scopes_leave_no_document_behind(store: MongoStore, raw: Raw) -> None:
    async def counted() -> object:
        return {name: raw[name].count_documents({}) for name in sorted(raw.list_collection_names())}

    await forgetting.dead_scopes_leave_nothing_behind(store, counted)


async def test_a_writer_who_begins_in_a_partition_that_is_just_forgotten_loses_nothing(store: MongoStore, build: Callable[[], MongoStore]) -> None:
    other = build()
    await other.open(DECLARED)
    try:
        await forgetting.a_writer_who_begins_meanwhile_loses_nothing(store, other)
    finally:
        await other.close()
