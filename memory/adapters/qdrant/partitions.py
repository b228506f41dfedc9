"""Lists partitions, and forgets those that are empty but have a generation.

A partition's generation is a point of its own, and there is no other registry. A
partition is idle if it has a generation but no record or mark of any collection.
Tombstones have no scope and are ignored.

On a server, a put may come between checking and forgetting. So the call checks again
and restores the generation if needed. A writer that misses its generation undoes its
record (see `batch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from itertools import groupby

from memory.adapters.qdrant.codec import GENERATION, Payload, is_sound
from memory.adapters.qdrant.engine import (
    MOST_VALUES,
    Conditions,
    Engine,
    PointChange,
    QdrantCondition,
    Vectors,
)
from memory.adapters.qdrant.keys import generation_point
from memory.adapters.qdrant.pages import everything
from memory.ports.query import Everywhere, Tenant
from memory.ports.query_evaluation import first_partitions
from memory.ports.record import Partition
from memory.ports.rows import MARK, RECORD

_NAMES = ("schema", "kind", "tenant", "scope", "number", "checksum")
"""All payload keys of a generation."""


async def list_partitions(
    engine: Engine, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
) -> list[tuple[Partition, int]]:
    """Return the first partitions after `after` with a record or a generation.

    The index of scopes returns those of each tenant, so no record is read.
    """
    make, generations = engine.conditions, dict[Partition, int]()
    records = make.equals("kind", RECORD)
    tenants = (
        [where.tenant] if isinstance(where, Tenant) else await engine.values("tenant", make.every([records]))
    )
    for tenant in tenants:
        of_tenant = make.every([records, make.equals("tenant", tenant)])
        behind = None if after is None or after.tenant != tenant else after.scope
        scopes = [s for s in await _scopes(engine, of_tenant) if s.startswith(prefix)]
        scopes = [s for s in scopes if behind is None or s > behind]
        generations |= {Partition(tenant, scope): 0 for scope in nsmallest(limit, scopes)}
    there = [
        make.equals("kind", GENERATION),
        *([make.equals("tenant", where.tenant)] if isinstance(where, Tenant) else []),
    ]
    async for points in everything(engine, make.every(there), _NAMES):
        for point in points:
            partition = Partition(str(point.payload.get("tenant")), str(point.payload.get("scope")))
            numbered = _generation_of(point.payload)
            generations[partition] = 0 if numbered is None else numbered[1]
    return first_partitions(generations.items(), where, prefix, after, limit)


async def _scopes(engine: Engine, where: QdrantCondition) -> set[str]:
    """Return the scopes of these points; read the points if there are very many."""
    scopes = set(await engine.values("scope", where))
    if len(scopes) < MOST_VALUES:
        return scopes
    pages = everything(engine, where, ("scope",))
    return {str(point.payload.get("scope")) async for points in pages for point in points}


async def idle(engine: Engine, limit: int) -> list[tuple[Partition, int]]:
    """Return idle partitions with their generations, at most `limit`."""
    found: list[tuple[Partition, int]] = []
    make = engine.conditions
    async for points in everything(engine, make.every([make.equals("kind", GENERATION)])):
        generations = [numbered for p in points if (numbered := _generation_of(p.payload)) is not None]
        busy = await _busy(engine, [partition for partition, _ in generations])
        found += [(partition, number) for partition, number in generations if partition not in busy]
        if len(found) >= limit:
            return found[:limit]
    return found


async def forget(engine: Engine, wanted: Sequence[tuple[Partition, int]]) -> int:
    """Forget each partition that is idle and of this generation; return how many."""
    generations = dict(wanted)
    busy = await _busy(engine, list(generations))
    standing = await engine.retrieve(
        [generation_point(partition) for partition in generations if partition not in busy]
    )
    changes: dict[str, tuple[Partition, PointChange]] = {}
    for partition, generation in generations.items():
        point = generation_point(partition)
        payload = standing.get(point)
        if payload is not None and _generation_of(payload) == (partition, generation):
            changes[point] = (partition, PointChange(point, payload, None))
    if not changes:
        return 0
    lost = await engine.commit([change for _, change in changes.values()])
    gone = {point: partition for point, (partition, _) in changes.items() if point not in lost}
    if engine.alone:
        return len(gone)
    again = await _busy(engine, list(gone.values()))
    back = [point for point, partition in gone.items() if partition in again]
    await engine.commit(
        [PointChange(point, None, _plain(changes[point][1].before), Vectors()) for point in back]
    )
    return len(gone) - len(back)


def _generation_of(payload: Payload) -> tuple[Partition, int] | None:
    """Return the partition and its generation; None for an unreadable payload."""
    if payload.get("kind") != GENERATION or not is_sound(payload):
        return None
    return Partition(payload["tenant"], payload["scope"]), payload["number"]


def _plain(payload: Payload | None) -> Payload:
    return {name: value for name, value in (payload or {}).items() if name not in ("token", "lineage")}


async def _busy(engine: Engine, partitions: Sequence[Partition]) -> set[Partition]:
    """Return the partitions with data. Little is read, however much there is."""
    busy, most = set[Partition](), engine.thresholds.partitions_at_once
    for tenant, of_tenant in groupby(sorted(partitions), key=lambda partition: partition.tenant):
        scopes = [partition.scope for partition in of_tenant]
        while scopes:
            found, _ = await engine.scroll(
                _in_use(engine.conditions, tenant, scopes[:most]), most, keys=("scope",)
            )
            held = {f.payload.get("scope") for f in found}
            busy |= {Partition(tenant, scope) for scope in scopes if scope in held}
            scopes = [scope for scope in scopes if scope not in held] if held else scopes[most:]
    return busy


def _in_use(make: Conditions, tenant: str, scopes: Sequence[str]) -> QdrantCondition:
    """Match records and marks of these scopes."""
    return make.every(
        [make.equals("tenant", tenant), make.among("scope", scopes), make.among("kind", [RECORD, MARK])]
    )
