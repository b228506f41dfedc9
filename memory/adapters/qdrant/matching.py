"""Deletes and counts matches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from memory.adapters.qdrant.batch import change_to, raise_if_kept
from memory.adapters.qdrant.codec import Payload, held_in, key_of, stored_in
from memory.adapters.qdrant.engine import Engine, FoundPoint, PointChange
from memory.adapters.qdrant.filters import Compiler, ConstantCondition, scope_conditions
from memory.adapters.qdrant.keys import record_point
from memory.adapters.qdrant.pages import everything
from memory.ports.batch import slot_of
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Count, Query
from memory.ports.query_evaluation import condition
from memory.ports.record import Corrupt, Record
from memory.ports.rows import row_of
from memory.ports.write_decision import tombstone_over

SAMPLE = 256
"""Points of the sample that estimates the total size.

Their ids are digests, so the first points are a random sample.
"""


async def count(engine: Engine, query: Query) -> Count:
    """Return the exact number of matches, and their size estimated from a sample."""
    make = engine.conditions
    compiler = Compiler(query.collection, make)
    compiled = compiler.compile(query.filter)
    if compiled.asked is ConstantCondition.NO:
        return Count(0, 0)
    where = compiler.every(
        [*scope_conditions(make, query.collection, query.where, query.roles, query.types), compiled.asked]
    )
    if compiled.rest is None:
        records = await engine.count(where)
        sample, _ = await engine.scroll(where, SAMPLE, keys=("bytes",))
        return Count(records, _sizes(sample) * records // len(sample) if sample else 0)
    lets_through, records, size = condition(compiled.rest), 0, 0
    async for found in everything(engine, where):
        matching = [
            f
            async for f in iterate_cooperatively(found)
            if not isinstance(stored := stored_in(query.collection, f.payload), Corrupt)
            and lets_through(stored)
        ]
        records += len(matching)
        size += _sizes(matching)
    return Count(records, size)


def _sizes(found: Sequence[FoundPoint]) -> int:
    return sum([size for f in found if isinstance(size := f.payload.get("bytes"), int)])


async def delete_matching(
    engine: Engine, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
) -> int:
    """Replace matches, and every corrupt record there, by tombstones.

    Corrupt records match any filter, so the filter is applied here.
    """
    deletion = _Deletion(engine, query, version, discard_at, carry)
    where = engine.conditions.every(
        scope_conditions(engine.conditions, query.collection, query.where, query.roles)
    )
    deleted, most = 0, query.collection.at_once(engine.thresholds.read_at_once)
    after: Any = None
    while True:
        async with engine.turn:
            found, after = await engine.scroll(where, most, after)
            try:
                deleted += await deletion.delete({str(f.value): f.payload for f in found})
            except Exception as exc:
                raise_if_kept(engine, exc, bool(deleted))
                raise
        if after is None:
            return deleted
        await asyncio.sleep(0)


class _Deletion:
    def __init__(
        self, engine: Engine, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> None:
        self._engine, self._query = engine, query
        self._version, self._discard_at, self._carry = version, discard_at, carry
        self._lets_through = condition(query.filter)

    async def delete(self, standing: dict[str, Payload]) -> int:
        """Delete these points and return how many.

        Points that others change meanwhile are examined again.
        """
        deleted = 0
        while standing:
            changes = [
                change
                async for point, payload in iterate_cooperatively(standing.items())
                if (change := self._change(point, payload))
            ]
            lost = await self._engine.commit(changes) if changes else set()
            deleted += len(changes) - len(lost)
            standing = await self._engine.retrieve(sorted(lost)) if lost else {}
        return deleted

    def _change(self, point: str, payload: Payload) -> PointChange | None:
        collection, key = self._query.collection, key_of(payload)
        slot = slot_of(collection, key, held_in(collection, payload))
        stored = slot.stored_value
        if isinstance(stored, Corrupt):
            if (
                record_point(collection.name, key) != point
            ):  # its owner is damaged, too: a tombstone would belong to nobody
                return PointChange(point, payload, None)
        elif (
            not isinstance(stored, Record)
            or stored.role not in self._query.roles
            or not self._lets_through(stored)
        ):
            return None
        tombstone = tombstone_over(key, slot, self._version, self._discard_at, self._carry)
        return change_to(collection, point, payload, row_of(collection, tombstone))
