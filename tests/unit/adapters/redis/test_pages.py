"""Pages over everything, where many tenants' records stand at one position."""

from __future__ import annotations

import pytest

from memory.adapters.redis.store import RedisStore
from memory.adapters.redis.thresholds import Thresholds
from memory.ports.contract.collections import DECLARED
from memory.ports.query import Order
from tests.support.servers import Server
from tests.unit.adapters.redis.conftest import NEEDS_SERVER
from tests.unit.adapters.same_ids import page_through_ids_of_many_tenants

pytestmark = [pytest.mark.backend("redis"), *NEEDS_SERVER]


@pytest.mark.parametrize("order", [[], [Order("type")]], ids=["by id", "by type"])
async def test_more_tenants_with_one_id_than_are_kept_hide_nothing(store: RedisStore, server: Server, prefix: str, order: list[Order]) -> None:
    small = RedisStore(f"redis://127.0.0.1:{server.port}", prefix=prefix, thresholds=Thresholds(page=2, least_in_portions=1))
    await small.open(DECLARED)
    await page_through_ids_of_many_tenants(small, order)
    await small.close()
