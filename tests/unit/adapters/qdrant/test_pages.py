"""Pages over everything, where many tenants' records stand at one position."""

from __future__ import annotations

import pytest

from memory.adapters.qdrant.store import QdrantStore
from memory.adapters.qdrant.thresholds import Thresholds
from memory.ports.contract.collections import DECLARED
from memory.ports.query import Order
from tests.unit.adapters.same_ids import page_through_ids_of_many_tenants


async def test_more_tenants_with_one_id_than_are_read_at_once_hide_nothing(either: QdrantStore) -> None:
    await page_through_ids_of_many_tenants(either)


@pytest.mark.backend("qdrant_local")
async def test_nor_do_they_where_the_order_has_no_index() -> None:
    store = QdrantStore("qdrant://:memory:", thresholds=Thresholds(read_at_once=2))
    await store.open(DECLARED)
    await page_through_ids_of_many_tenants(store, [Order("type")])
    await store.close()
