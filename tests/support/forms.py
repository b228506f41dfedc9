"""What the engine keeps of partitions for searches by meaning, and how that differs
from what the stores hold.
"""

from __future__ import annotations

import asyncio
from typing import Any

from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.partial_answers import BROWSED
from memory.ports.full_scan import scan
from memory.ports.query import Query, Under, within
from memory.ports.record import Partition, Record

FIELDS = ("type", "tags", "valid_from", "valid_to", "model")


async def read(engine: Engine) -> None:
    """Wait until what is wanted has been read."""
    while (task := engine.partition_indexes._task) is not None and not task.done():
        await asyncio.wait([task])


def kept(engine: Engine) -> list[str]:
    """The collections and scopes of which there are forms that choose; a subtree is
    named by its prefixes and scopes.
    """
    return sorted(
        f"{view.collection.name} of {_named(view.place)}" for view in engine.partition_indexes._kept.values()
    )


def _named(place: Partition | Under) -> str:
    if isinstance(place, Partition):
        return place.scope
    return ", ".join([*(f"{prefix}**" for prefix in place.prefixes), *place.scopes])


async def astray(engine: Engine) -> list[str]:
    """Every form says of its partition what its store holds, once it is brought up with
    what the process wrote since; of what only that wrote.
    """
    wrong = []
    for (store, _, place), view in list(engine.partition_indexes._kept.items()):
        await engine.partition_indexes._bring_up(store, view)
        where = within(place) if isinstance(place, Partition) else place
        query = Query(view.collection, where, roles=BROWSED)
        there = {
            row.key.id: _told(row, row.vector)
            async for page in scan(store, query)
            for row in page.records
            if isinstance(row, Record)
        }
        rows = zip(view.form.records, view.form.vectors, strict=True)
        said = {record.key.id: _told(record, vector) for record, vector in rows if record is not None}
        wrong += [
            f"{store.name}, {view.collection.name}: {said.get(i)} for {there.get(i)}"
            for i in {*said, *there}
            if said.get(i) != there.get(i)
        ]
    return wrong


def _told(record: Record, vector: bytes | None) -> tuple[Any, ...]:
    fields = {name: value for name in FIELDS if (value := record.fields.get(name)) is not None}
    return (
        record.scope,
        record.version,
        record.role,
        record.tier,
        record.created_at,
        record.expires_at,
        fields,
        vector,
    )
