"""Filters that name very many values."""

from __future__ import annotations

from memory.ports.store import Store
from tests.unit.adapters.sql.long_lists import (
    FIELDS,
    every_record_is_judged_as_the_port_does,
    searching_and_deleting_take_it_too,
)
from tests.unit.adapters.sql.postgresql.conftest import ON_SERVER

pytestmark = ON_SERVER


@FIELDS
async def test_a_list_longer_than_the_server_binds_one_by_one_filters_as_the_port_says(
    store: Store, field: str
) -> None:
    await every_record_is_judged_as_the_port_does(store, field)


async def test_searching_and_deleting_take_such_a_list_too(store: Store) -> None:
    await searching_and_deleting_take_it_too(store)
