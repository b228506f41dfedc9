"""Another process on the same data.

Start it with `python -m memory.ports.contract.other_process URL OPTIONS`. It executes
each line of its input, and answers with a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import entry_points
from typing import Any

from memory.ports.adapter import Adapter
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    hit_ids,
    key_of,
    one,
    put,
    query_ids,
    record,
)
from memory.ports.query import PartitionPage, Query, Tenant, within
from memory.ports.record import Record
from memory.ports.store import Store
from memory.ports.writes import Annotate, AtVersion, RaiseGeneration

COUNTED = 99
"""The record with the counter of both processes."""


async def increment(store: Store, times: int) -> None:
    """Increment the counter `times` times, each time only if it is unchanged."""
    for _ in range(times):
        while True:
            now = await fetch_record(store, COUNTED)
            new = record(COUNTED, version=now.version + 1, body={"n": now.body["n"] + 1})
            if (await one(store, put(new, AtVersion(now.version)))).applied:
                break


async def change(store: Store, turn: int) -> None:
    """Write something of every kind, different in each turn."""
    await apply_all(
        store,
        put(record(1, version=turn, body={"n": turn}, texts={"content": f"lantern turn{turn}"})),
        RaiseGeneration(ELSEWHERE),
    )
    await apply_all(
        store,
        put(record(10 + turn)),
        put(record(30 + turn, ELSEWHERE)),
        Annotate(SAMPLES, key_of(1), turn, tier=f"tier {turn}"),
    )
    await apply_all(store, delete(10 + turn - 1))
    await store.delete_matching(Query(SAMPLES, within(ELSEWHERE)), 50)
    await apply_all(store, put(record(60 + turn, ELSEWHERE)))


async def snapshot(store: Store) -> Any:
    """Return this process's view of the data as JSON.

    Nothing is written meanwhile, because a store may then reread everything.
    """
    stands = await fetch_stored(store, 1)
    first = [stands.version, stands.tier, stands.body["n"]] if isinstance(stands, Record) else None
    counted = (await store.count(Query(SAMPLES, within(HERE)))).records
    words = sorted(await hit_ids(store, "lantern")) if store.capabilities.lexical else []
    wide = await store.partitions(Tenant(HERE.tenant)) if store.capabilities.tenant_wide else PartitionPage()
    partitions = [(partition.scope, generation) for partition, generation in wide.partitions]
    return json.loads(
        json.dumps(
            [
                first,
                counted,
                words,
                await query_ids(store),
                await query_ids(store, within(ELSEWHERE)),
                partitions,
            ]
        )
    )


async def _obey(url: str, options: dict[str, Any]) -> None:
    (point,) = entry_points(group="memory.adapters", name=url.partition(":")[0])
    adapter: Adapter = point.load()
    store = adapter.build("another-process", url, options)
    await store.open(DECLARED)
    try:
        for line in iter(sys.stdin.readline, ""):
            what, number = json.loads(line)
            if what == "increment":
                await increment(store, number)
            elif what == "change":
                await change(store, number)
            sys.stdout.write(f"{json.dumps(await snapshot(store))}\n")
            sys.stdout.flush()
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(_obey(sys.argv[1], json.loads(sys.argv[2])))
