"""Records of many tenants under one id: a cursor names no tenant, so they are all on
one page, and what follows is on the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import apply_all, put, record
from memory.ports.query import Everywhere, Order, Query
from memory.ports.record import Key, Partition
from memory.ports.store import Store


async def page_through_ids_of_many_tenants(store: Store, order: Sequence[Order] = ()) -> None:
    """Nine tenants' record "a", and a few more; every record is on one of the pages."""
    keys = [Key(f"tenant-{n}", "a") for n in range(9)] + [Key("tenant-0", letter) for letter in "bcd"]
    await apply_all(
        store,
        *[
            put(replace(record(1, Partition(key.tenant, "org")), key=key, fields={"type": key.id}))
            for key in keys
        ],
    )
    query, seen = Query(SAMPLES, Everywhere(), order=tuple(order), limit=1), list[Key]()
    while True:
        page = await store.query(query)
        seen += [found.key for found in page.records]
        if page.cursor is None:
            break
        query = replace(query, cursor=page.cursor)
    assert sorted(seen, key=str) == sorted(keys, key=str)
